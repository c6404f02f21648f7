#include "plan/plan_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "base/units.h"
#include "load/workload.h"
#include "machine/atlas.h"

namespace ridge {
namespace {

// Requests where nothing says how many: enough for a p99, for an overload to show (queues grow over
// minutes), and for clients to send several times.
int made_requests(const PlanOptions& o) {
  constexpr double kForPercentile = 10'000, kSeconds = 120, kEach = 8, kMost = 500'000;
  const double needed = std::max({kForPercentile, o.rate * kSeconds, o.clients * kEach});
  return static_cast<int>(std::min(needed, std::max(kMost, 2.0 * o.clients)));
}

double positive_time(const std::string& text, const char* option) {
  const std::string what = fmt::format("--{}", option);
  double value = 0;
  try {
    value = parse_latency(text, what);
  } catch (const Error& error) {
    throw OptionError(option, error.what());
  }
  if (!(value > 0)) throw OptionError(option, fmt::format("--{} must be above 0", option));
  return value;
}

// "8xh100-sxm=2.5,8xh200": the names stay in `machines`, the prices are by device.
std::map<std::string, double> take_prices(std::string& machines, Sources sources) {
  std::map<std::string, double> prices;
  std::string names;
  std::string_view rest = machines;
  while (!rest.empty()) {
    const size_t comma = std::min(rest.find(','), rest.size());
    const std::string_view part = rest.substr(0, comma);
    rest.remove_prefix(std::min(comma + 1, rest.size()));
    const size_t equals = std::min(part.find('='), part.size());
    const std::string name(part.substr(0, equals));
    names += (names.empty() ? "" : ",") + name;
    if (equals == part.size()) continue;
    std::string_view price = part.substr(equals + 1);
    if (price.starts_with('$')) price.remove_prefix(1);
    double dollars = 0;
    const auto [end, error] = std::from_chars(price.data(), price.data() + price.size(), dollars);
    if (error != std::errc() || end != price.data() + price.size() || !(dollars > 0)) {
      throw OptionError("machine", fmt::format("--machine {}: a price is NAME=2.5, dollars per "
                                               "device and hour",
                                               part));
    }
    prices[find_system(name, sources).device.name] = dollars;
  }
  machines = names;
  return prices;
}

}  // namespace

LatencyTargets latency_targets(const PlanOptions& o) {
  LatencyTargets targets;
  if (!o.ttft.empty()) targets.ttft_s = positive_time(o.ttft, "ttft");
  if (!o.itl.empty()) targets.itl_s = positive_time(o.itl, "itl");
  if (!o.e2e.empty()) targets.e2e_s = positive_time(o.e2e, "e2e");
  targets.percentile = o.percentile / 100;
  return targets;
}

Trace plan_traffic(const PlanOptions& o, const std::string& file) {
  TrafficOptions options;
  options.trace = file.empty() ? o.trace : file;
  options.rate = o.rate;
  options.burstiness = o.burstiness;
  options.prompt = parse_length(o.prompt, "prompt");
  options.output = parse_length(o.output, "output");
  options.prefix_groups = o.prefix_groups;
  options.prefix_tokens = o.prefix_tokens;
  options.seed = o.seed;
  options.requests = o.count;
  if (options.trace.empty() && o.count == 0) options.requests = made_requests(o);
  Trace traffic = make_traffic(options);
  return o.growth == 1 ? traffic : with_rate(std::move(traffic), o.growth);
}

PlanTask plan_task(const PlanOptions& o, Sources sources) {
  PlanTask task;
  task.targets = latency_targets(o);
  if (!task.targets.any()) {
    throw Error("ridge plan needs a target: --ttft 500ms, --itl 40ms or --e2e 10s");
  }
  if (o.rate > 0 && o.clients > 0) {
    throw OptionError("rate", "--rate and --clients are two kinds of traffic: leave out one");
  }
  if (o.trace.empty() && o.rate == 0 && o.clients == 0) {
    throw Error("ridge plan needs traffic: --rate 5, --clients 64 or --trace FILE");
  }
  task.clients = o.clients;
  task.headroom = o.headroom / 100;
  task.max_machines = o.max_machines;
  task.routing = parse_routing(o.routing);
  task.settings = o.settings;
  task.disaggregated = o.disaggregated;
  task.traffic = plan_traffic(o);
  std::string machines = o.request.machine;
  task.prices = take_prices(machines, sources);
  if (o.clients == 0 && !task.traffic.has_arrivals) {
    throw OptionError("rate",
                      fmt::format("{} has no arrival times: add --rate or --clients", o.trace));
  }
  return task;
}

std::vector<Request> plan_candidates(const PlanOptions& o, Sources sources, size_t max_points) {
  RequestOptions request = o.request;
  take_prices(request.machine, sources);
  return plan_candidates(request, sources, max_points);
}

PlanAnswer make_plan(const PlanOptions& o, const PlanTask& task,
                     const std::vector<Request>& candidates, std::atomic<size_t>* done) {
  PlanAnswer answer;
  answer.report = search_plan(task, candidates, done);
  const PlanOutcome* best = answer.report.best();
  if (!best) return answer;
  answer.breaks = breaking_point(task, *best);
  answer.changes = sensitivities(task, *best);
  if (!o.interval.empty() && task.clients == 0) {
    const double interval = positive_time(o.interval, "interval");
    if (interval < 1) throw OptionError("interval", "--interval must be a second or more");
    answer.curve = capacity_curve(task, *best, interval, parse_seconds(o.start_up, "--start-up"));
  }
  return answer;
}

}  // namespace ridge
