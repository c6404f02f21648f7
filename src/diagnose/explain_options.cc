#include "diagnose/explain_options.h"

#include "base/error.h"
#include "base/units.h"
#include "diagnose/readers/reader.h"

namespace ridge {
namespace {

double duration_option(const std::string& text, const char* option, double otherwise) {
  if (text.empty()) return otherwise;
  double seconds = 0;
  try {
    seconds = parse_latency(text, std::string("--") + option);
  } catch (const Error& error) {
    throw OptionError(option, error.what());
  }
  if (!(seconds > 0 && seconds <= 86400)) {
    throw OptionError(option, std::string("--") + option + " must be positive, at most a day");
  }
  return seconds;
}

// Drafts per step, where a person states them; a list is refused by identify().
int stated_drafts(const RequestOptions& request) {
  const bool number = !request.speculate.empty() && request.speculate.size() < 4 &&
                      request.speculate.find_first_not_of("0123456789") == std::string::npos;
  return number ? std::stoi(request.speculate) : 0;
}

// The share of the weights that a person says is in host memory.
std::optional<double> stated_offload(const RequestOptions& request) {
  if (request.offload == "0" || request.offload.find(',') != std::string::npos) return std::nullopt;
  try {
    const double share = parse_quantity(request.offload, "", "--offload");
    if (share > 0 && share <= 1) return share;
  } catch (const Error&) {
  }
  return std::nullopt;  // identify() refuses it
}

bool is_engine(const std::string& stack) {
  return stack == "vllm" || stack == "sglang" || stack == "trtllm" || stack == "llama.cpp";
}

}  // namespace

Diagnosis explain(const ExplainOptions& options, Sources sources) {
  EvidenceFile stated = stated_evidence(options.stated, stated_drafts(options.request));
  if (is_engine(options.request.stack)) stated.setup.engine = options.request.stack;
  // Settings and lengths that a person gives are evidence as well, also without a model.
  if (options.request.no_graphs) stated.setup.eager = true;
  stated.setup.offloaded = stated_offload(options.request);
  const std::string& prompt = options.request.prompt;
  if (prompt != kAuto && prompt.find(',') == std::string::npos) {
    try {
      stated.add(Quantity::prompt, parse_quantity(prompt, "", "--prompt"), Trust::stated,
                 "--prompt");
    } catch (const Error& error) {
      throw OptionError("prompt", error.what());
    }
  }
  ReadOptions read;
  read.window_s = duration_option(options.window, "window", 0);
  read.sample_s = duration_option(options.sample, "for", read.sample_s);
  read.tick = options.tick;
  read.most_unpacked_bytes = options.most_unpacked_bytes;
  for (const Observed& o : stated.observed) {
    if (o.quantity == Quantity::wall_time) read.wall_time_s = o.value;
  }
  Evidence evidence;
  std::vector<EvidenceInput> inputs(options.files.begin(), options.files.end());
  inputs.insert(inputs.end(), options.sent.begin(), options.sent.end());
  if (!inputs.empty()) evidence = read_evidence(inputs, read);
  const bool set = !stated.setup.engine.empty() || stated.setup.eager || stated.setup.offloaded;
  if (!stated.observed.empty() || set) evidence.files.push_back(std::move(stated));
  Observations seen = combine(std::move(evidence));
  Identified identified = identify(options.request, seen, sources);
  return diagnose(std::move(seen), std::move(identified));
}

}  // namespace ridge
