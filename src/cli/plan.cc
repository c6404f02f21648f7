// ridge plan: which machine, layout and limits meet my latency targets at the least cost?
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <thread>

#include "base/error.h"
#include "base/file.h"
#include "base/json_csv.h"
#include "base/units.h"
#include "cli/command.h"
#include "cli/plan_text.h"
#include "plan/json.h"

namespace ridge {
namespace {

constexpr const char* kPlanExamples = R"(Examples:
  ridge plan -m llama-3-70b --rate 5 --prompt 1024 --output 256 --ttft 500ms --itl 40ms \
             -M 8xh100-sxm,8xh200,8xl40s --stack vllm
  ridge plan -m llama-3-8b --trace AzureLLMInferenceTrace_conv_2023.csv --ttft 1s --itl 50ms
  ridge plan -m llama-3-70b --weights bf16,fp8 --clients 64 --itl 30ms -M 8xh200 --max-machines 1
  ridge plan -m llama-3-8b --trace day.csv --ttft 1s -M h100-sxm=2.5 --interval 15min --start-up 3min
  ridge plan --simulate day.jsonl -m llama-3-8b -M h100-sxm --stack vllm --requests out.csv
  ridge plan --simulate w.jsonl -m llama-3.1-8b -M rtx-4090 --set kv_blocks=2588,max_num_seqs=256

A plan tries every machine of -M (by default all priced GPUs) with every layout that fits, discards by bounds
what cannot meet the targets, simulates the rest with the same requests, and takes as many machines as each
needs. 8xh100-sxm is bought as a node of 8; --max-machines 1 plans with what is there. NAME=DOLLARS in -M gives
a price per device and hour.

--simulate replays a workload on the scheduler's rules with predicted step times. --requests writes one
line a request, in the order of the file, times in seconds on the workload's clock:
  request        position in the file, from 0
  arrival_s, scheduled_s, first_token_s, finish_s   (empty after arrival_s: refused, longer than the cache)
  prompt_tokens, output_tokens, cached_tokens, preemptions, replica

Workloads and traces: JSON lines {"arrival_ms": 12, "prompt_tokens": 900, "output_tokens": 120, "hash_ids": [1, 2]}
(also arrival_s; timestamp in ms, input_length and output_length of Mooncake; block_size), CSV of Azure,
BurstGPT or Vidur, the JSON of vllm bench serve --save-detailed; any of them as .gz.
Lengths: 512, 100..900 (uniform), lognormal:MEDIAN,SIGMA.
--set takes engines' own names: max_num_seqs, max_num_batched_tokens, kv_blocks, block_size, prefix_cache=off.
TTFT: first token - arrival. ITL: (finish - first token) / (output - 1) of a request. E2E: finish - arrival.)";

struct PlanCommandOptions {
  RequestOptions request;
  std::string simulate, trace, requests_file, settings, routing = "round-robin", svg;
  std::string prompt = "1024", output = "256";
  std::string ttft, itl, e2e, interval, start_up = "120s";
  double percentile = 99, rate = 0, growth = 1, burstiness = 1, headroom = 20;
  int clients = 0, count = 0, max_machines = 64;
  int prefix_groups = 0, prefix_tokens = 0;
  uint64_t seed = 1;
  bool csv = false, disaggregated = false;
};

// Requests where nothing says how many: enough for a p99, for an overload to show (queues grow over
// minutes), and for clients to send several times.
int made_requests(const PlanCommandOptions& o) {
  constexpr double kForPercentile = 10'000, kSeconds = 120, kEach = 8, kMost = 500'000;
  const double needed = std::max({kForPercentile, o.rate * kSeconds, o.clients * kEach});
  return static_cast<int>(std::min(needed, std::max(kMost, 2.0 * o.clients)));
}

// The options of a request that make sense for a whole endpoint.
void add_plan_request_options(CLI::App& command, RequestOptions& options) {
  constexpr std::string_view kTaken[] = {"model", "machine", "stack",       "weights", "kv",
                                         "tp",    "pp",      "activations", "dp",      "ep"};
  for (const RequestOption& option : request_options()) {
    if (std::find(std::begin(kTaken), std::end(kTaken), option.name) == std::end(kTaken)) continue;
    std::string names = fmt::format("--{}", option.name);
    if (*option.letter) names += fmt::format(",-{}", option.letter);
    command.add_option(names, options.*option.value, option.help)->group(option.group);
  }
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

LatencyTargets latency_targets(const PlanCommandOptions& o) {
  LatencyTargets targets;
  if (!o.ttft.empty()) targets.ttft_s = positive_time(o.ttft, "ttft");
  if (!o.itl.empty()) targets.itl_s = positive_time(o.itl, "itl");
  if (!o.e2e.empty()) targets.e2e_s = positive_time(o.e2e, "e2e");
  targets.percentile = o.percentile / 100;
  return targets;
}

Trace command_traffic(const PlanCommandOptions& o) {
  TrafficOptions options;
  options.trace = o.simulate.empty() ? o.trace : o.simulate;
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

void replay_workload(const PlanCommandOptions& o, const Global& global) {
  if (!o.requests_file.empty()) check_writable(o.requests_file);
  RequestOptions one = o.request;
  if (one.machine.empty()) one.machine = kDefaultMachine;
  const Request request = make_request(one);
  const LatencyTargets targets = latency_targets(o);
  const RoutingRule routing = parse_routing(o.routing);
  const Trace traffic = command_traffic(o);
  const Replica replica = make_replica(request, o.settings, longest_request(traffic));
  if (replica.pages < 1) {
    throw Error("{} does not fit {} with tp {}, pp {}", request.model->name, request.system.name(),
                request.plan.tp, request.plan.pp);
  }
  const std::vector<SimulatedRequest> requests =
      simulated_requests(traffic, replica.policy.page_tokens);
  const FleetRun run =
      simulate_fleet(replica.fleet(request.plan.dp, routing), requests, o.clients, true);
  const ServiceSummary service = summarize_service(run.requests, targets);
  if (!o.requests_file.empty()) write_file(o.requests_file, requests_csv(traffic, run.requests));
  if (global.json) {
    fmt::print("{}\n", simulation_json(request, replica, run, service, targets).dump(2));
  } else {
    fmt::print("{}", simulation_text(request, replica, traffic, run, service, targets));
  }
}

// "8xh100-sxm=2.5,8xh200": the names stay in `machines`, the prices are by device.
std::map<std::string, double> take_prices(std::string& machines) {
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
    prices[find_system(name, Sources::names_and_files).device.name] = dollars;
  }
  machines = names;
  return prices;
}

PlanTask plan_task(const PlanCommandOptions& o) {
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
  task.traffic = command_traffic(o);
  if (o.clients == 0 && !task.traffic.has_arrivals) {
    throw OptionError("rate",
                      fmt::format("{} has no arrival times: add --rate or --clients", o.trace));
  }
  return task;
}

// "3/20 candidates" on standard error while someone watches.
PlanReport watched_search(const PlanTask& task, const std::vector<Request>& candidates) {
  std::atomic<size_t> done = 0;
  std::jthread watcher;
  if (isatty(STDERR_FILENO)) {
    watcher = std::jthread([&](const std::stop_token& stop) {
      for (int ticks = 0; !stop.stop_requested(); ++ticks) {
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        if (ticks >= 10) {
          fmt::print(stderr, "\r{}/{} candidates ", done.load(), candidates.size());
        }
      }
      fmt::print(stderr, "\r\033[K");
    });
  }
  return search_plan(task, candidates, &done);
}

void make_plan(const PlanCommandOptions& o, const Global& global) {
  RequestOptions request = o.request;
  const std::map<std::string, double> prices = take_prices(request.machine);
  const std::vector<Request> candidates = plan_candidates(request);
  PlanTask task = plan_task(o);
  task.prices = prices;
  PlanAnswer answer;
  answer.report = watched_search(task, candidates);
  if (const PlanOutcome* best = answer.report.best()) {
    answer.breaks = breaking_point(task, *best);
    answer.changes = sensitivities(task, *best);
    if (!o.interval.empty() && task.clients == 0) {
      const double interval = positive_time(o.interval, "interval");
      if (interval < 1) throw OptionError("interval", "--interval must be a second or more");
      answer.curve = capacity_curve(task, *best, interval, parse_seconds(o.start_up, "--start-up"));
    }
  }
  if (!o.svg.empty()) write_file(o.svg, draw_svg(plan_front_plot(answer.report)));
  if (global.json) {
    fmt::print("{}\n", plan_answer_json(task, answer).dump(2));
  } else if (o.csv) {
    fmt::print("{}", json_csv(plan_rows(task, answer.report)));
  } else {
    fmt::print("{}", plan_text(task, answer));
  }
}

// Within bounds, which "nan" is not.
CLI::Validator within(double low, double high) {
  return CLI::Validator(
      [=](const std::string& text) -> std::string {
        char* end = nullptr;
        const double value = std::strtod(text.c_str(), &end);
        if (end != text.c_str() && *end == 0 && value >= low && value <= high) return {};
        return fmt::format("'{}' is no number from {:g} to {:g}", text, low, high);
      },
      "NUMBER");
}

void add_traffic_options(CLI::App& command, PlanCommandOptions& o) {
  constexpr const char* kGroup = "Traffic";
  const auto count = CLI::Range(1, 100'000'000);
  CLI::Option* simulate =
      command.add_option("--simulate", o.simulate, "Replay this workload instead of planning")
          ->check(CLI::ExistingFile)
          ->group(kGroup);
  command.add_option("--trace", o.trace, "Recorded traffic")
      ->check(CLI::ExistingFile)
      ->excludes(simulate)
      ->group(kGroup);
  command.add_option("--rate", o.rate, "Requests a second; a trace is stretched to it")
      ->check(within(1e-6, 1e6))
      ->group(kGroup);
  command.add_option("--clients", o.clients, "Clients that each send when answered (closed loop)")
      ->check(CLI::Range(1, 1 << 20))
      ->group(kGroup);
  command.add_option("--growth", o.growth, "Times the rate")
      ->check(within(1e-3, 1e3))
      ->group(kGroup);
  command.add_option("-p,--prompt", o.prompt, "Tokens of a prompt, without a trace")
      ->capture_default_str()
      ->group(kGroup);
  command.add_option("-n,--output", o.output, "Tokens of an answer, likewise")
      ->capture_default_str()
      ->group(kGroup);
  command.add_option("--burstiness", o.burstiness, "Below 1: bursts; 1: Poisson; 10000: even gaps")
      ->check(within(0.01, 1e4))
      ->capture_default_str()
      ->group(kGroup);
  command.add_option("--prefix-groups", o.prefix_groups, "Groups of prompts that share a prefix")
      ->check(count)
      ->group(kGroup);
  command.add_option("--prefix-tokens", o.prefix_tokens, "Tokens of a shared prefix")
      ->check(CLI::Range(1, 10'000'000))
      ->group(kGroup);
  command.add_option("--count", o.count, "Requests: of a trace the first ones (default: all)")
      ->check(count)
      ->group(kGroup);
  command.add_option("--seed", o.seed, "Seed of made arrivals and lengths")
      ->capture_default_str()
      ->group(kGroup);
}

void add_target_options(CLI::App& command, PlanCommandOptions& o) {
  constexpr const char* kGroup = "Targets";
  command.add_option("--ttft", o.ttft, "Time to first token: 500ms")->group(kGroup);
  command.add_option("--itl", o.itl, "A request's mean time per output token: 40ms")->group(kGroup);
  command.add_option("--e2e", o.e2e, "Time to the last token: 10s")->group(kGroup);
  command.add_option("--percentile", o.percentile, "Percentile of requests that meets them")
      ->check(within(1, 99.99))
      ->capture_default_str()
      ->group(kGroup);
  command.add_option("--headroom", o.headroom, "Percent of load that may be added")
      ->check(within(0, 1000))
      ->capture_default_str()
      ->group(kGroup);
  command.add_option("--max-machines", o.max_machines, "Machines of a kind at most")
      ->check(CLI::Range(1, 10'000))
      ->capture_default_str()
      ->group(kGroup);
}

}  // namespace

void add_plan_command(CLI::App& app, Global& global) {
  auto o = std::make_shared<PlanCommandOptions>();
  o->request.machine.clear();
  CLI::App* command = app.add_subcommand(
      "plan",
      "Which machines and layout meet latency targets at the least cost? --simulate replays "
      "a workload");
  add_plan_request_options(*command, o->request);
  add_traffic_options(*command, *o);
  add_target_options(*command, *o);
  command->add_option("--set", o->settings, "Limits of the engine: max_num_seqs=64,kv_blocks=2588")
      ->group("Engine");
  command->add_option("--routing", o->routing, "round-robin, least-loaded or prefix-aware")
      ->capture_default_str()
      ->group("Engine");
  command
      ->add_flag("--disaggregated", o->disaggregated,
                 "Also with prompts and answers on different replicas")
      ->group("Engine");
  command->add_option("--interval", o->interval, "Machines needed in each interval: 15min")
      ->group("Output");
  command->add_option("--start-up", o->start_up, "Time a machine takes to start, with --interval")
      ->capture_default_str()
      ->group("Output");
  command->add_option("--requests", o->requests_file, "Write each request's times as CSV")
      ->needs("--simulate")
      ->group("Output");
  command->add_flag("--csv", o->csv, "Comma-separated: the candidates")->group("Output");
  command->add_option("--svg", o->svg, "Write the plot of cost against latency")->group("Output");
  command->footer(kPlanExamples);
  command->callback(
      [o, &global] { o->simulate.empty() ? make_plan(*o, global) : replay_workload(*o, global); });
}

}  // namespace ridge
