#include "page/plan_api.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <mutex>

#include "base/error.h"
#include "base/units.h"
#include "load/workload.h"
#include "openai/busy_error.h"
#include "plan/json.h"
#include "plan/plan_options.h"

namespace ridge {
namespace {

constexpr std::chrono::seconds kPlanLimit{30};
constexpr int kMostPlanRequests = 20000;  // simulated
constexpr double kMostPlanTokens = 1e7;   // answers of one simulation, at their longest
constexpr size_t kMostPlanCandidates = 128;
constexpr int kMostPlanMachines = 256;
constexpr int kMostPlanClients = 4096;
constexpr int kMostPlanReplicas = 4096;        // of the largest fleet
constexpr double kMostPlanPrefixTokens = 3e7;  // of all requests

using PO = PlanOptions;

// Options of a request that a plan takes; their help is that of `ridge predict`.
constexpr const char* kPlanRequestOptions[] = {"model", "machine", "stack", "weights",    "kv",
                                               "tp",    "pp",      "ep",    "activations"};

struct PlanText {
  const char* name;
  std::string PO::*value;
  const char* help;
};
constexpr PlanText kPlanTexts[] = {
    {"prompt", &PO::prompt, "Tokens of a prompt: 1024, 100..900, lognormal:600,0.7"},
    {"output", &PO::output, "Tokens of an answer, likewise"},
    {"ttft", &PO::ttft, "Target of the time to first token: 500ms"},
    {"itl", &PO::itl, "Target of a request's mean time per output token: 40ms"},
    {"e2e", &PO::e2e, "Target of the time to the last token: 10s"},
    {"routing", &PO::routing, "round-robin, least-loaded or prefix-aware"},
    {"set", &PO::settings, "Limits of the engine: max_num_seqs=64,kv_blocks=2588"},
};

struct PlanNumber {
  const char* name;
  double PO::*real;
  int PO::*whole;  // nullptr: `real`
  double low, high;
  const char* help;
};
constexpr PlanNumber kPlanNumbers[] = {
    {"rate", &PO::rate, nullptr, 1e-3, 1e5, "Requests a second"},
    {"clients", nullptr, &PO::clients, 1, kMostPlanClients, "Clients that each send when answered"},
    {"count", nullptr, &PO::count, 1, kMostPlanRequests, "Requests that are simulated"},
    {"burstiness", &PO::burstiness, nullptr, 0.01, 1e4, "Below 1: bursts; 1: Poisson; 10000: even"},
    {"prefix-groups", nullptr, &PO::prefix_groups, 1, 1e6, "Groups of prompts that share a prefix"},
    {"prefix-tokens", nullptr, &PO::prefix_tokens, 1, 131072, "Tokens of a shared prefix"},
    {"percentile", &PO::percentile, nullptr, 1, 99.99,
     "Percentile of requests that meets the targets"},
    {"headroom", &PO::headroom, nullptr, 0, 1000, "Percent of load that may be added"},
    {"max-machines", nullptr, &PO::max_machines, 1, kMostPlanMachines,
     "Machines of a kind at most"},
};

const RequestOption& request_option(std::string_view name) {
  for (const RequestOption& option : request_options()) {
    if (name == option.name) return option;
  }
  throw Error("no option {}", name);
}

void set_number(PlanOptions& options, const PlanNumber& number, const std::string& text) {
  double value = 0;
  try {
    value = parse_quantity(text, "", std::string("--") + number.name);
  } catch (const Error& error) {
    throw OptionError(number.name, error.what());
  }
  const bool whole = number.whole && value != std::floor(value);
  if (!(value >= number.low && value <= number.high) || whole) {
    throw OptionError(
        number.name,
        fmt::format("--{} must be {} from {:g} to {:g}, not {}", number.name,
                    number.whole ? "a whole number" : "a number", number.low, number.high, text));
  }
  if (number.whole) {
    options.*number.whole = int(value);
  } else {
    options.*number.real = value;
  }
}

PlanOptions plan_options_of(const ApiOptions& given) {
  PlanOptions options;
  const auto each = [&](const char* name, auto take) {
    const auto found = given.find(name);
    if (found != given.end() && !found->second.empty()) take(found->second);
  };
  for (const char* name : kPlanRequestOptions) {
    each(name,
         [&](const std::string& text) { options.request.*request_option(name).value = text; });
  }
  for (const PlanText& text : kPlanTexts) {
    each(text.name, [&](const std::string& value) { options.*text.value = value; });
  }
  for (const PlanNumber& number : kPlanNumbers) {
    each(number.name, [&](const std::string& value) { set_number(options, number, value); });
  }
  return options;
}

void check_prefixes(const PlanOptions& options, size_t requests) {
  const double tokens = double(options.prefix_tokens) * double(requests);
  if (tokens <= kMostPlanPrefixTokens) return;
  throw OptionError("prefix-tokens",
                    fmt::format("{} tokens of shared prefixes, of at most {} here: a "
                                "smaller --count",
                                pretty_count(tokens), pretty_count(kMostPlanPrefixTokens)));
}

void check_plan_size(const PlanTask& task, const std::vector<Request>& candidates) {
  if (candidates.size() > kMostPlanCandidates) {
    throw Error("{} candidates, of at most {} here: fewer machines or formats", candidates.size(),
                kMostPlanCandidates);
  }
  for (const Request& candidate : candidates) {
    const int each =
        std::max(1, candidate.system.devices() / (candidate.plan.tp * candidate.plan.pp));
    if (double(each) * task.max_machines <= kMostPlanReplicas) continue;
    throw OptionError("max-machines",
                      fmt::format("{} machines of {} replicas: at most {} in all here",
                                  task.max_machines, each, kMostPlanReplicas));
  }
  double tokens = 0;
  for (const TraceRow& row : task.traffic.rows) tokens += row.output_tokens;
  if (tokens > kMostPlanTokens) {
    throw OptionError("output", fmt::format("{} tokens to simulate, of at most {} here: shorter "
                                            "answers, or a smaller --count",
                                            pretty_count(tokens), pretty_count(kMostPlanTokens)));
  }
}

}  // namespace

std::vector<std::pair<std::string, std::string>> plan_api_options() {
  std::vector<std::pair<std::string, std::string>> list;
  for (const char* name : kPlanRequestOptions) {
    list.emplace_back(name, std::string_view(name) == "machine"
                                ? "Machines to choose from, comma-separated; NAME=2.5 sets a price "
                                  "per device and hour; all priced ones where none is given"
                                : request_option(name).help);
  }
  for (const PlanText& text : kPlanTexts) list.emplace_back(text.name, text.help);
  for (const PlanNumber& number : kPlanNumbers) list.emplace_back(number.name, number.help);
  return list;
}

Json plan_answer_for(const ApiOptions& given, const Cancelled& cancelled) {
  // A worker that waited would be missing to those who generate.
  static std::mutex one_at_a_time;
  const std::unique_lock lock(one_at_a_time, std::try_to_lock);
  if (!lock) throw BusyError("another plan is being made: try again");
  PlanOptions options = plan_options_of(given);
  // The command line makes more where the traffic is heavy: a p99 needs ten thousand.
  if (options.count == 0 && options.rate * 120 > kMostPlanRequests)
    options.count = kMostPlanRequests;
  const auto deadline = std::chrono::steady_clock::now() + kPlanLimit;
  const std::vector<Request> candidates =
      plan_candidates(options, Sources::names_only, kMostPlanCandidates);
  check_prefixes(options, size_t(options.count));
  PlanTask task = plan_task(options, Sources::names_only);
  check_prefixes(options, task.traffic.rows.size());
  check_plan_size(task, candidates);
  task.check_limits = [&] {
    if (cancelled && cancelled()) throw Error("the client has gone");
    if (std::chrono::steady_clock::now() < deadline) return;
    throw Error("the search takes too long: fewer machines, formats or requests");
  };
  return plan_answer_json(task, make_plan(options, task, candidates));
}

}  // namespace ridge
