#include "load/summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <ctime>

#include "base/error.h"

namespace ridge {
namespace {

// The names of vLLM's results: mean_ttft_ms and so on.
void add_percentiles(Json& json, const char* name, const Percentiles& p) {
  const auto add = [&](const char* what, double seconds) {
    json[fmt::format("{}_{}_ms", what, name)] = 1000 * seconds;
  };
  add("mean", p.mean);
  add("median", p.p50);
  add("std", p.deviation);
  add("p50", p.p50);
  add("p90", p.p90);
  add("p95", p.p95);
  add("p99", p.p99);
  add("max", p.max);
}

std::string today() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  return fmt::format("{:04}{:02}{:02}-{:02}{:02}{:02}", utc.tm_year + 1900, utc.tm_mon + 1,
                     utc.tm_mday, utc.tm_hour, utc.tm_min, utc.tm_sec);
}

Json server_json(const ServerTotals& server) {
  Json phases = Json::array();
  const auto mean = [](double sum, double count) {
    return count > 0 ? Json(1000 * sum / count) : Json(nullptr);
  };
  for (size_t p = 0; p < kLoadPhases.size(); ++p) {
    const StepTotals& t = server.phases[p];
    if (t.steps <= 0) continue;
    phases.push_back({{"phase", kLoadPhases[p]},
                      {"steps", t.steps},
                      {"measured_ms", mean(t.measured_s, t.steps)},
                      {"predicted_ms", mean(t.predicted_s, t.predicted_steps)},
                      {"roof_ms", mean(t.roof_s, t.roof_steps)}});
  }
  return {{"steps", std::move(phases)},
          {"host_gap_ms", mean(server.gap_s, server.gaps)},
          {"preemptions", server.preemptions},
          {"draft_tokens", server.drafts},
          {"accepted_tokens", server.accepted}};
}

}  // namespace

bool GoodputTargets::met_by(const LoadRequest& request) const {
  return request.ttft_s <= ttft_s.value_or(INFINITY) &&
         request.tpot_s() <= tpot_s.value_or(INFINITY) &&
         request.latency_s <= e2el_s.value_or(INFINITY);
}

GoodputTargets parse_goodput(const std::vector<std::string>& texts) {
  GoodputTargets targets;
  for (const std::string& text : texts) {
    const size_t colon = std::min(text.find(':'), text.size());
    const std::string name = text.substr(0, colon);
    std::optional<double>* target = name == "ttft"   ? &targets.ttft_s
                                    : name == "tpot" ? &targets.tpot_s
                                    : name == "e2el" ? &targets.e2el_s
                                                     : nullptr;
    double ms = 0;
    const char* begin = text.data() + std::min(colon + 1, text.size());
    const char* end = text.data() + text.size();
    const auto [read, error] = std::from_chars(begin, end, ms);
    if (target == nullptr || error != std::errc() || read != end || !(ms > 0)) {
      throw OptionError("goodput", fmt::format("--goodput {}: a target in milliseconds is "
                                               "ttft:500, tpot:50 or e2el:2000",
                                               text));
    }
    *target = ms / 1000;
  }
  return targets;
}

LoadSummary summarize(const LoadRecord& record, const GoodputTargets& targets) {
  LoadSummary s;
  s.duration_s = record.duration_s;
  s.peak_in_flight = record.peak_in_flight;
  s.latest_start_s = record.latest_start_s;
  s.has_targets = targets.any();
  s.messages = record.messages;
  for (const int chunks : record.chunks_per_second) {
    s.peak_chunks_per_s = std::max(s.peak_chunks_per_s, chunks);
  }
  std::vector<double> ttft, tpot, e2el;
  for (const LoadRequest& request : record.requests) {
    if (!request.error.empty()) {
      ++s.failed;
      ++s.errors[request.error];
      continue;
    }
    ++s.completed;
    s.good += targets.met_by(request) ? 1 : 0;
    s.without_usage += request.has_usage ? 0 : 1;
    s.input_tokens += request.prompt_tokens;
    s.output_tokens += request.output_tokens;
    s.cached_tokens += request.cached_tokens;
    ttft.push_back(request.ttft_s);
    e2el.push_back(request.latency_s);
    if (request.output_tokens > 1) tpot.push_back(request.tpot_s());
  }
  s.ttft = percentiles_of(std::move(ttft));
  s.tpot = percentiles_of(std::move(tpot));
  s.e2el = percentiles_of(std::move(e2el));
  s.itl = percentiles_of({record.itl_s.begin(), record.itl_s.end()});
  return s;
}

Json load_json(const LoadDescription& load, const LoadSummary& s,
               const std::optional<ServerTotals>& server) {
  Json json{{"date", today()},
            {"endpoint_type", "openai"},
            {"backend", "openai"},
            {"label", nullptr},
            {"model_id", load.model},
            {"tokenizer_id", load.model},
            {"num_prompts", load.planned},
            {"request_rate", load.rate > 0 ? Json(load.rate) : Json("inf")},
            {"burstiness", load.burstiness},
            {"max_concurrency", load.concurrency ? Json(*load.concurrency) : Json(nullptr)},
            {"duration", s.duration_s},
            {"completed", s.completed},
            {"failed", s.failed},
            {"total_input_tokens", s.input_tokens},
            {"total_output_tokens", s.output_tokens},
            {"request_throughput", s.per_second(s.completed)},
            {"request_goodput", s.has_targets ? Json(s.per_second(s.good)) : Json(nullptr)},
            {"output_throughput", s.per_second(double(s.output_tokens))},
            {"total_token_throughput", s.per_second(double(s.input_tokens + s.output_tokens))},
            {"max_output_tokens_per_s", s.peak_chunks_per_s},
            {"max_concurrent_requests", s.peak_in_flight}};
  add_percentiles(json, "ttft", s.ttft);
  add_percentiles(json, "tpot", s.tpot);
  add_percentiles(json, "itl", s.itl);
  add_percentiles(json, "e2el", s.e2el);
  Json errors = Json::object();
  for (const auto& [kind, count] : s.errors) errors[kind] = count;
  Json messages = Json::object();
  for (const auto& [kind, message] : s.messages) messages[kind] = message;
  // Ridge's own.
  json["ridge"] = {{"url", load.url},
                   {"seed", load.seed},
                   {"token_ids", load.token_ids},
                   {"cached_input_tokens", s.cached_tokens},
                   {"requests_without_usage", s.without_usage},
                   {"latest_start_ms", 1000 * s.latest_start_s},
                   {"errors", std::move(errors)},
                   {"error_messages", std::move(messages)},
                   {"server", server ? server_json(*server) : Json(nullptr)}};
  return json;
}

}  // namespace ridge
