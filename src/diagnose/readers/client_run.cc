#include "diagnose/readers/client_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/units.h"

namespace ridge {
namespace {

using Q = Quantity;

// Reported and settled time per token differ by more than this: events are not tokens. Rounding
// and the weighting of requests stay well below it.
constexpr double kEventsAreNotTokens = 1.3;
// Output tokens/s and requests/s x output differ by more: the client counted its tokens another
// way.
constexpr double kCountedDifferently = 1.1;
constexpr size_t kMaxOtherRuns = 20;

// Clients that tokenize the text again count other tokens than the server made.
void check_tokens(ClientRun& run, double expected) {
  const std::optional<double> reported = run.get(Q::tokens_per_s);
  if (reported && expected > 0) {
    const double ratio = *reported / expected;
    if (ratio < kCountedDifferently && ratio > 1 / kCountedDifferently) return;
    run.notes.push_back(
        fmt::format("{:.4g} tok/s are reported, but requests/s x output length makes {:.4g}, which "
                    "is used: the "
                    "client counts tokens another way",
                    *reported, expected));
    run.drop(Q::tokens_per_s);
  }
  run.set(Q::tokens_per_s, expected, "requests/s x output");
}

void settle_time_per_token(ClientRun& run) {
  const std::optional<double> e2e = run.get(Q::e2e), ttft = run.get(Q::ttft);
  const std::optional<double> output = run.get(Q::output), reported = run.get(Q::itl);
  std::optional<double> settled;
  const char* how = "(e2e - ttft) / (output - 1)";
  if (e2e && ttft && output && *output > 1.5 && *e2e > *ttft) {
    settled = (*e2e - *ttft) / (*output - 1);
  } else if (run.time_per_token_s && *run.time_per_token_s > 0) {
    settled = run.time_per_token_s;
    how = "the reported time per output token (TPOT)";
  }
  if (!settled) return;
  if (!reported || *reported <= 0) {
    run.drop(Q::itl);
    run.set(Q::itl, settled, how);
    return;
  }
  const double ratio = *reported / *settled;
  if (ratio < kEventsAreNotTokens && ratio > 1 / kEventsAreNotTokens) return;
  const bool several_tokens = ratio > 1;
  run.notes.push_back(fmt::format(
      "the reported mean ITL of {} is {:.2g} x the {} of {}: it counts stream events, and {}; the "
      "latter is used{}",
      pretty_time(*reported), ratio, how, pretty_time(*settled),
      several_tokens ? "an event carries several tokens (speculation, coalesced chunks)"
                     : "a token makes several events",
      several_tokens ? ", percentiles divided by the ratio" : ", percentiles are left out"));
  run.drop(Q::itl);
  run.set(Q::itl, settled, how);
  for (const Q q : {Q::itl_p50, Q::itl_p99}) {
    const std::optional<double> value = run.get(q);
    run.drop(q);
    if (several_tokens && value) run.set(q, *value / ratio, "ITL of events / tokens per event");
  }
}

void add_requests_in_flight(ClientRun& run) {
  const std::optional<double> rate = run.get(Q::requests_per_s), e2e = run.get(Q::e2e);
  const std::optional<double> requests = run.get(Q::requests);
  std::optional<double> limit = run.max_concurrency;
  if (limit && requests && *requests > 0) limit = std::min(*limit, *requests);
  const bool paced = run.get(Q::arrivals_per_s).has_value();
  // A client without a rate keeps its limit in flight; with one, what the requests' time makes.
  if (limit && !paced) {
    run.drop(Q::concurrency);
    run.set(Q::concurrency, limit, "max_concurrency");
  }
  if (rate && e2e && *rate * *e2e > 0) {
    run.set(Q::concurrency, *rate * *e2e, "requests/s x e2e (Little's law)");
  }
  run.set(Q::concurrency, limit, "max_concurrency");
  const std::optional<double> tokens = run.get(Q::tokens_per_s), itl = run.get(Q::itl);
  if (tokens && itl && *tokens * *itl > 0 && !run.get(Q::batch)) {
    const double batch = *tokens * *itl;
    const std::optional<double> in_flight = run.get(Q::concurrency);
    if (in_flight && batch > 1.15 * *in_flight + 0.5) {
      run.notes.push_back(fmt::format(
          "tokens/s x time per token makes {:.3g} sequences, but {:.3g} requests are in "
          "flight: the figures do not agree, and the batch is left out",
          batch, *in_flight));
    } else {
      run.set(Q::batch, batch, "tokens/s x time per token (Little's law)");
    }
  }
}

std::string client_run_summary(const ClientRun& run) {
  std::string text;
  for (const Q q : {Q::concurrency, Q::arrivals_per_s, Q::tokens_per_s, Q::ttft, Q::itl}) {
    if (const std::optional<double> value = run.get(q)) {
      text += fmt::format("{}{} {}", text.empty() ? "" : ", ", quantity_info(q).name,
                          pretty_quantity(q, *value));
    }
  }
  return text.empty() ? "no figures" : text;
}

double requests_in_flight(const ClientRun& run) {
  for (const Q q : {Q::concurrency, Q::batch, Q::arrivals_per_s, Q::requests_per_s}) {
    if (const std::optional<double> value = run.get(q)) return *value;
  }
  return 0;
}

}  // namespace

void ClientRun::set(Quantity quantity, const std::optional<double>& value, std::string_view origin,
                    double scale) {
  if (!value || get(quantity)) return;
  const double scaled = *value * scale;
  if (!std::isfinite(scaled) || scaled < 0) {
    notes.push_back(fmt::format("{} is {:g}, which cannot be: left out", origin, *value));
    return;
  }
  observed.push_back({quantity, scaled, Trust::window, 0, std::string(origin), 0});
}

std::optional<double> ClientRun::get(Quantity quantity) const {
  for (const Observed& o : observed) {
    if (o.quantity == quantity) return o.value;
  }
  return std::nullopt;
}

void ClientRun::drop(Quantity quantity) {
  std::erase_if(observed, [&](const Observed& o) { return o.quantity == quantity; });
}

void complete_run(ClientRun& run) {
  const std::optional<double> requests = run.get(Q::requests);
  const auto positive = [](const std::optional<double>& value) { return value && *value > 0; };
  if (requests && *requests == 0) {
    run.notes.push_back("no request completed: the latencies and rates are left out");
    std::erase_if(run.observed, [](const Observed& o) {
      return o.quantity != Q::requests && o.quantity != Q::failed &&
             o.quantity != Q::arrivals_per_s && o.quantity != Q::concurrency;
    });
    return;
  }
  if (const std::optional<double> failed = run.get(Q::failed); positive(failed)) {
    run.notes.push_back(fmt::format("{:g} of {:g} requests failed: the figures are of the others",
                                    *failed, *failed + requests.value_or(0)));
  }
  if (positive(requests)) {
    if (positive(run.prompt_tokens)) {
      run.set(Q::prompt, *run.prompt_tokens / *requests, "input tokens / requests");
    }
    if (positive(run.output_tokens)) {
      run.set(Q::output, *run.output_tokens / *requests, "output tokens / requests");
    }
  }
  if (positive(run.duration_s)) {
    const double s = *run.duration_s;
    if (requests) {
      // Printed rates have two digits behind the point: 0.02 requests/s may be 0.024.
      const std::optional<double> printed = run.get(Q::requests_per_s);
      if (printed && std::abs(*printed - *requests / s) < 0.01) run.drop(Q::requests_per_s);
      run.set(Q::requests_per_s, *requests / s, "requests / duration");
    }
    if (run.output_tokens) run.set(Q::tokens_per_s, *run.output_tokens / s, "tokens / duration");
    if (run.prompt_tokens) {
      run.set(Q::prompt_tokens_per_s, *run.prompt_tokens / s, "input tokens / duration");
    }
  }
  if (const auto rate = run.get(Q::requests_per_s); positive(rate)) {
    if (const auto prompt = run.get(Q::prompt)) {
      run.set(Q::prompt_tokens_per_s, *rate * *prompt, "requests/s x prompt");
    }
    // Where the length itself comes from the tokens that the client counted, they must agree.
    const auto output = run.get(Q::output);
    if (output && !run.output_tokens) check_tokens(run, *rate * *output);
  }
  settle_time_per_token(run);
  // Zeros stand for "not measured": a client that does not stream has no TTFT.
  std::erase_if(run.observed, [](const Observed& o) {
    const bool latency = quantity_info(o.quantity).unit == QuantityUnit::seconds;
    return o.value == 0 && (latency || o.quantity == Q::tokens_per_s);
  });
  add_requests_in_flight(run);
  for (Observed& o : run.observed) o.window_s = run.duration_s.value_or(0);
}

EvidenceFile choose_run(std::vector<ClientRun> runs, const std::string& name) {
  for (ClientRun& run : runs) complete_run(run);
  size_t chosen = 0;
  for (size_t i = 1; i < runs.size(); ++i) {
    if (requests_in_flight(runs[i]) >= requests_in_flight(runs[chosen])) chosen = i;
  }
  ClientRun& run = runs[chosen];
  EvidenceFile file;
  file.path = name;
  file.kind = run.kind;
  file.setup = run.setup;
  file.observed = run.observed;
  file.window = run.duration_s ? fmt::format("a client's run of {}", pretty_time(*run.duration_s))
                               : "a client's run";
  if (runs.size() > 1) {
    file.notes.push_back(fmt::format("{} runs: run {}, with most requests in flight, is used ({})",
                                     runs.size(), chosen + 1, client_run_summary(run)));
  }
  file.notes.insert(file.notes.end(), run.notes.begin(), run.notes.end());
  for (size_t i = 0; i < std::min(runs.size(), kMaxOtherRuns); ++i) {
    if (i == chosen) continue;
    file.notes.push_back(fmt::format("run {} is not used: {}", i + 1, client_run_summary(runs[i])));
  }
  if (runs.size() > kMaxOtherRuns) {
    file.notes.push_back(fmt::format("{} further runs are not used", runs.size() - kMaxOtherRuns));
  }
  return file;
}

std::string engine_of_backend(std::string_view backend) {
  constexpr std::pair<std::string_view, const char*> kBackends[] = {
      {"sglang", "sglang"},       {"vllm", "vllm"},     {"tgi", "tgi"},
      {"tensorrt", "trtllm"},     {"trt", "trtllm"},    {"llama.cpp", "llama.cpp"},
      {"llamacpp", "llama.cpp"},  {"ollama", "ollama"}, {"lmdeploy", "lmdeploy"},
      {"deepspeed", "deepspeed"}, {"ridge", "ridge"}};
  for (const auto& [prefix, engine] : kBackends) {
    if (backend.starts_with(prefix)) return engine;
  }
  return {};
}

}  // namespace ridge
