#include "load/endpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>
#include <thread>

#include "base/error.h"
#include "base/text.h"
#include "load/workload.h"

namespace ridge {
namespace {

using Parsed = nlohmann::json;

constexpr double kReadyWait = 60;  // s
constexpr int kMostIds = 1 << 20;
constexpr size_t kFewestIds = 16;  // fewer make prompts that repeat themselves

int count_of(const Parsed& object, const char* key) {  // 0: none
  constexpr uint64_t kMost = 1 << 30;
  if (!object.is_object() || !object.contains(key) || !object[key].is_number_unsigned()) return 0;
  return static_cast<int>(std::min(object[key].get<uint64_t>(), kMost));
}

std::vector<int> ask_ids(HttpClient& client, const std::string& model) {
  std::string text;
  for (const std::string_view word : load_words()) text += fmt::format(" {}", word);
  // vLLM and Ridge read "prompt", llama.cpp "content".
  const Parsed body{
      {"model", model}, {"prompt", text}, {"content", text}, {"add_special_tokens", false}};
  const HttpClient::Answer answer = client.ask("/tokenize", body.dump());
  if (answer.status != 200) return {};
  const Parsed reply = Parsed::parse(answer.body, nullptr, false);
  if (!reply.is_object() || !reply.contains("tokens") || !reply["tokens"].is_array()) return {};
  std::set<int> ids;
  for (const Parsed& id : reply["tokens"]) {
    if (!id.is_number_integer()) return {};
    ids.insert(id.get<int>());
  }
  if (ids.size() < kFewestIds) return {};
  return {ids.begin(), ids.end()};
}

// A server that was just started answers 503 while it loads its model.
void wait_until_ready(HttpClient& client) {
  const double end = client.now() + kReadyWait;
  while (client.ask("/health").status == 503) {
    if (client.now() > end) {
      throw Error("{} is not ready after {} s: /health answers 503", client.target().url(),
                  kReadyWait);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
}

// The value of a sample line; the labels that lie between the braces.
struct Sample {
  std::string_view name, labels;
  double value = 0;
};

std::optional<Sample> parse_sample(std::string_view line) {
  const size_t space = line.rfind(' ');
  const size_t name_end = line.find_first_of("{ ");
  if (line.empty() || line[0] == '#' || space == std::string_view::npos) return std::nullopt;
  Sample sample{.name = line.substr(0, name_end),
                .labels = line.substr(name_end, space - name_end)};
  const std::string_view number = line.substr(space + 1);
  const auto [end, error] =
      std::from_chars(number.data(), number.data() + number.size(), sample.value);
  if (error != std::errc()) return std::nullopt;
  return sample;
}

void add_phase_sample(const Sample& sample, StepTotals& totals) {
  if (sample.name == "ridge:step_measured_seconds_count") totals.steps += sample.value;
  if (sample.name == "ridge:step_measured_seconds_sum") totals.measured_s += sample.value;
  if (sample.name == "ridge:step_predicted_seconds_count") totals.predicted_steps += sample.value;
  if (sample.name == "ridge:step_predicted_seconds_sum") totals.predicted_s += sample.value;
  if (sample.name == "ridge:step_share_of_roof_count") totals.roof_steps += sample.value;
  if (sample.name == "ridge:step_roof_seconds_total") totals.roof_s += sample.value;
}

}  // namespace

LoadEndpoint probe_endpoint(HttpClient& client, const std::string& model) {
  wait_until_ready(client);
  const HttpClient::Answer answer = client.ask("/v1/models");
  const std::string url = client.target().url();
  if (answer.status == 0) throw Error("{} does not answer", url);
  if (answer.status == 401 || answer.status == 403) {
    throw OptionError("api-key", fmt::format("{} wants a key: --api-key", url));
  }
  LoadEndpoint endpoint{.model = model, .max_context = 0, .ids = {}};
  std::vector<std::string> names;
  int vocabulary = 0;
  const Parsed reply = Parsed::parse(answer.body, nullptr, false);
  if (answer.status == 200 && reply.is_object() && reply.contains("data") &&
      reply["data"].is_array()) {
    for (const Parsed& entry : reply["data"]) {
      if (!entry.is_object() || !entry.contains("id") || !entry["id"].is_string()) continue;
      names.push_back(entry["id"].get<std::string>());
      if (endpoint.model.empty()) endpoint.model = names.back();
      if (names.back() != endpoint.model) continue;
      endpoint.max_context = count_of(entry, "max_model_len");
      if (entry.contains("meta")) vocabulary = count_of(entry["meta"], "n_vocab");
    }
  }
  if (endpoint.model.empty()) {
    throw OptionError(
        "model", fmt::format("{}/v1/models names no model (status {}): name it with --model", url,
                             answer.status));
  }
  if (!names.empty() && std::ranges::find(names, endpoint.model) == names.end()) {
    throw OptionError("model", fmt::format("{} has no model {}; it has {}", url, endpoint.model,
                                           fmt::join(names, ", ")));
  }
  endpoint.ids = ask_ids(client, endpoint.model);
  if (endpoint.ids.empty() && vocabulary > 0) {
    endpoint.ids.resize(size_t(std::min(vocabulary, kMostIds)));
    std::iota(endpoint.ids.begin(), endpoint.ids.end(), 0);
  }
  return endpoint;
}

ServerTotals ServerTotals::operator-(const ServerTotals& before) const {
  ServerTotals left = *this;
  for (size_t p = 0; p < phases.size(); ++p) {
    left.phases[p].steps -= before.phases[p].steps;
    left.phases[p].measured_s -= before.phases[p].measured_s;
    left.phases[p].predicted_steps -= before.phases[p].predicted_steps;
    left.phases[p].predicted_s -= before.phases[p].predicted_s;
    left.phases[p].roof_steps -= before.phases[p].roof_steps;
    left.phases[p].roof_s -= before.phases[p].roof_s;
  }
  left.gaps -= before.gaps;
  left.gap_s -= before.gap_s;
  left.drafts -= before.drafts;
  left.accepted -= before.accepted;
  left.preemptions -= before.preemptions;
  return left;
}

std::optional<ServerTotals> parse_server_totals(std::string_view metrics) {
  ServerTotals totals;
  bool is_ridge = false;
  while (!metrics.empty()) {
    const size_t end = std::min(metrics.find('\n'), metrics.size());
    const std::optional<Sample> sample = parse_sample(metrics.substr(0, end));
    metrics.remove_prefix(std::min(end + 1, metrics.size()));
    if (!sample) continue;
    is_ridge = is_ridge || sample->name.starts_with("ridge:");
    for (size_t p = 0; p < kLoadPhases.size(); ++p) {
      const bool of_phase = sample->labels.find(fmt::format("phase=\"{}\"", kLoadPhases[p])) !=
                            std::string_view::npos;
      if (of_phase) add_phase_sample(*sample, totals.phases[p]);
    }
    if (sample->name == "ridge:host_gap_seconds_count") totals.gaps += sample->value;
    if (sample->name == "ridge:host_gap_seconds_sum") totals.gap_s += sample->value;
    if (sample->name == "vllm:num_preemptions_total") totals.preemptions += sample->value;
    if (sample->name == "vllm:spec_decode_num_draft_tokens_total") totals.drafts += sample->value;
    if (sample->name == "vllm:spec_decode_num_accepted_tokens_total") {
      totals.accepted += sample->value;
    }
  }
  return is_ridge ? std::optional(totals) : std::nullopt;
}

std::optional<ServerTotals> read_server_totals(HttpClient& client) {
  const HttpClient::Answer answer = client.ask("/metrics");
  if (answer.status != 200) return std::nullopt;
  return parse_server_totals(answer.body);
}

}  // namespace ridge
