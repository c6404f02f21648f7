#include "fit/endpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>

#include "base/file.h"
#include "base/json.h"
#include "fit/optimise.h"
#include "validate/endpoints.h"

namespace ridge {
namespace {

struct Sample {
  Load load;
  EndpointParts parts;
  double ttft_s = 0, tpot_s = 0;
  bool held_out = false;
};

// Bounds of what is fitted, seconds but for the share. The fit moves on a logarithmic scale.
struct Knob {
  const char* name;
  double Stack::*member;
  double low, high;
};
constexpr Knob kKnobs[] = {{"step", &Stack::step, 1e-5, 2e-2},
                           {"layer", &Stack::layer, 1e-7, 2e-4},
                           {"prompt_step", &Stack::prompt_step, 1e-5, 5e-1},
                           {"first", &Stack::first, 1e-4, 5e-1},
                           {"burst", &Stack::burst, 1e-3, 1}};

Stack with(Stack stack, const std::vector<double>& x) {
  for (size_t i = 0; i < std::size(kKnobs); ++i) {
    const Knob& knob = kKnobs[i];
    stack.*knob.member = knob.low * std::pow(knob.high / knob.low, x[i]);
  }
  return stack;
}

// The first token is weighed less, and only where clients are few: under load it measures the
// benchmark's arrival pattern.
constexpr double kFirstWeight = 0.3, kFewClients = 4;

double loss(const Stack& stack, const std::vector<Sample>& samples, bool only_fit) {
  double sum = 0, weight = 0;
  for (const Sample& s : samples) {
    if (only_fit && s.held_out) continue;
    const EndpointEstimate e = estimate_endpoint(s.parts, stack, s.load);
    sum += std::abs(std::log(e.tpot_s / s.tpot_s));
    weight += 1;
    if (s.load.clients > kFewClients) continue;
    sum += kFirstWeight * std::abs(std::log(e.ttft_s / s.ttft_s));
    weight += kFirstWeight;
  }
  return sum / weight;
}

Stack fit(const Stack& start, const std::vector<Sample>& samples, bool only_fit) {
  const auto objective = [&](const std::vector<double>& x) {
    return loss(with(start, x), samples, only_fit);
  };
  return with(start,
              minimise(objective, std::vector<double>(std::size(kKnobs), 0.5), 0.25, 4000, 7).x);
}

void print_scores(const std::string& name, const Stack& stack, const std::vector<Sample>& samples) {
  std::vector<double> tpot, ttft;
  for (const Sample& s : samples) {
    if (!s.held_out) continue;
    const EndpointEstimate e = estimate_endpoint(s.parts, stack, s.load);
    tpot.push_back(std::abs(e.tpot_s / s.tpot_s - 1));
    if (s.load.clients <= kFewClients) ttft.push_back(std::abs(e.ttft_s / s.ttft_s - 1));
  }
  const auto text = [](std::vector<double>& errors) {
    if (errors.empty()) return std::string("no rows");
    double sum = 0;
    for (double error : errors) sum += error;
    std::nth_element(errors.begin(), errors.begin() + errors.size() / 2, errors.end());
    return fmt::format("{} rows MAPE {:.1f} median {:.1f}", errors.size(),
                       100 * sum / double(errors.size()), 100 * errors[errors.size() / 2]);
  };
  fmt::print("endpoint {:8} per token: {}; first token, few clients: {}\n", name, text(tpot),
             text(ttft));
}

void write_numbers(const std::string& folder, const Stack& stack) {
  const std::string path = fmt::format("{}/{}.json", folder, stack.name);
  Json json = Json::parse(read_file(path, kMaxJsonBytes));
  std::string text = read_file(path, kMaxJsonBytes);
  for (const Knob& knob : kKnobs) {
    const std::string value = fmt::format("{:.4g}", stack.*knob.member);
    const std::string key = fmt::format("\"{}\": ", knob.name);
    if (json.contains(knob.name)) {
      const size_t at = text.find("\n  " + key) + 3 + key.size();
      text.replace(at, text.find_first_of(",\n", at) - at, value);
    } else {
      const size_t at = text.find("\n  \"low\": ");
      text.insert(at, "\n  " + key + value + ",");
    }
  }
  write_file(path, text);
}

}  // namespace

void fit_endpoints(const std::string& data, const std::string& write) {
  std::map<std::string, std::vector<Sample>> by_stack;
  std::map<std::string, Stack> stacks;
  size_t skipped = 0;
  for (const std::string& path : find_endpoint_files(data)) {
    const auto complain = [](const std::string& line) { fmt::print(stderr, "{}\n", line); };
    for (const Endpoint& e : read_endpoints(path, skipped, complain)) {
      Sample s;
      s.load = e.load;
      s.parts = endpoint_parts(e.request, e.load);
      s.ttft_s = e.ttft_s;
      s.tpot_s = e.tpot_s;
      // One configuration's loads stay together on one side of the split.
      const std::string site = fmt::format("{} {} {} {} {}", e.request.model->name, e.gpu,
                                           e.request.plan.tp, e.load.prompt, e.load.output);
      s.held_out = std::hash<std::string>{}(site) % 2 == 0;
      stacks.emplace(e.framework, e.request.stack);
      by_stack[e.framework].push_back(s);
    }
  }
  for (const auto& [name, samples] : by_stack) {
    print_scores(name, fit(stacks.at(name), samples, true), samples);
    const Stack final = fit(stacks.at(name), samples, false);
    for (const Knob& knob : kKnobs) fmt::print("  {} {:.3g}", knob.name, final.*knob.member);
    fmt::print("\n");
    if (!write.empty()) write_numbers(write, final);
  }
}

}  // namespace ridge
