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
#include "plan/plan_options.h"

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

struct PlanCommandOptions : PlanOptions {
  std::string simulate, requests_file, svg;
  bool csv = false;
};

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

void replay_workload(const PlanCommandOptions& o, const Global& global) {
  if (!o.requests_file.empty()) check_writable(o.requests_file);
  RequestOptions one = o.request;
  if (one.machine.empty()) one.machine = kDefaultMachine;
  const Request request = make_request(one);
  const LatencyTargets targets = latency_targets(o);
  const RoutingRule routing = parse_routing(o.routing);
  const Trace traffic = plan_traffic(o, o.simulate);
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

// "3/20 candidates" on standard error while someone watches.
PlanAnswer watched_plan(const PlanOptions& o, const PlanTask& task,
                        const std::vector<Request>& candidates) {
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
  return make_plan(o, task, candidates, &done);
}

void print_plan(const PlanCommandOptions& o, const Global& global) {
  const std::vector<Request> candidates = plan_candidates(o);
  const PlanTask task = plan_task(o);
  const PlanAnswer answer = watched_plan(o, task, candidates);
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
      [o, &global] { o->simulate.empty() ? print_plan(*o, global) : replay_workload(*o, global); });
}

}  // namespace ridge
