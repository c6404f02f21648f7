// `ridge load`: a load generator for OpenAI-compatible endpoints.
#include <fmt/format.h>
#include <unistd.h>

#include <cmath>

#include "base/error.h"
#include "base/text.h"
#include "base/units.h"
#include "cli/command.h"
#include "cli/interrupt.h"
#include "cli/load_text.h"
#include "load/generator.h"
#include "load/summary.h"

namespace ridge {
namespace {

constexpr const char* kLoadExamples = R"(Examples:
  ridge load                                           100 requests, 8 at once, to `ridge serve` here
  ridge load http://127.0.0.1:8000 --concurrency 64 -p 1024 --output 512 --requests 512
  ridge load --rate 4 --duration 60 --goodput ttft:500 tpot:50
  ridge load -p lognormal:600,0.7 --output 50..400 --rate 2 --burstiness 0.5
  ridge load --prefix-groups 10 --prefix-tokens 256    prompts that share their beginnings
  ridge load --turns 4 -p 60 --output 80               conversations: each turn sends the history
  ridge load --trace day.jsonl                         as recorded

With --concurrency alone a request starts when another ends (closed loop). With --rate requests arrive
at random (Poisson; --burstiness as in vLLM's benchmark), and --concurrency bounds those in flight.
The load ends with --requests sent or --duration passed, whichever is first. Prompts are token ids
where the endpoint has /tokenize or tells its vocabulary, else common words. The same --seed sends the
same requests.
Lengths: 512, 100..900 (uniform), lognormal:MEDIAN,SIGMA. Trace: JSON lines {"arrival_s": 0.5,
"prompt_tokens": 900, "output_tokens": 120}, or a file that `ridge plan --trace` reads.

TTFT: from sending to the first chunk. E2E: to the last. TPOT: (E2E - TTFT) / (tokens - 1), tokens as
the endpoint counts them. ITL: between two chunks with text. Goodput: requests/s that meet all targets,
in ms. --json has the fields of `vllm bench serve` and Ridge's own under "ridge". Exit code 1: no
request completed.)";

struct LoadCommandOptions {
  std::string url = "http://127.0.0.1:8080", model, api_key;
  std::string prompt = "512", output = "128", trace, duration = "600", timeout = "300";
  std::optional<int> concurrency, requests;
  std::optional<double> rate;
  bool has_duration = false;
  WorkloadOptions workload;
  std::vector<std::string> goodput;
  bool chat = false, stop_at_end = false, allow_remote = false;
};

constexpr int kMaxRequests = 1'000'000;
constexpr int kDefaultRequests = 100, kDefaultConcurrency = 8;

double positive_seconds(const std::string& text, const char* option) {
  const double seconds = parse_seconds(text, fmt::format("--{}", option));
  if (!(seconds > 0) || seconds > 1e6) {
    throw OptionError(option,
                      fmt::format("--{} {}: more than 0 and at most 1,000,000 s", option, text));
  }
  return seconds;
}

// How many requests: as asked for, as the trace has, or as arrive in the given time.
int planned_requests(const LoadCommandOptions& o, double duration_s) {
  if (o.requests) return *o.requests;
  if (!o.workload.trace.empty()) return int(o.workload.trace.size());
  if (!o.has_duration) return kDefaultRequests;
  if (!o.rate) return kMaxRequests;
  return int(
      std::clamp(std::round(*o.rate * duration_s) * o.workload.turns, 1., double(kMaxRequests)));
}

LoadOptions load_options(const LoadCommandOptions& o) {
  LoadOptions load;
  load.duration_s = positive_seconds(o.duration, "duration");
  load.open_loop = o.rate || (!o.trace.empty() && !o.concurrency);
  const int most = max_connections();
  load.concurrency = o.concurrency.value_or(load.open_loop ? most : kDefaultConcurrency);
  if (load.concurrency > most) {
    throw OptionError(
        "concurrency",
        fmt::format("--concurrency {}: the limit of open files allows {}", load.concurrency, most));
  }
  load.chat = o.chat || o.workload.turns > 1;
  load.ignore_eos = !o.stop_at_end;
  return load;
}

void check_lengths(const Workload& workload, const LoadEndpoint& endpoint) {
  const int longest = workload.longest_request();
  if (endpoint.max_context == 0 || longest <= endpoint.max_context) return;
  throw OptionError("prompt", fmt::format("{} takes {} tokens, prompt and output together; the "
                                          "longest request has {}: lower --prompt or --output",
                                          endpoint.model, endpoint.max_context, longest));
}

void show_progress(const LoadProgress& p) {
  fmt::print(stderr, "\r{:.0f} s: {} of {} completed, {} failed, {} in flight, {} chunks\033[K",
             p.elapsed_s, p.completed, p.planned, p.failed, p.in_flight, p.chunks);
}

void load(LoadCommandOptions o, Global& global) {
  const GoodputTargets targets = parse_goodput(o.goodput);
  o.workload.prompt = parse_length(o.prompt, "prompt");
  o.workload.output = parse_length(o.output, "output");
  if (!o.trace.empty()) o.workload.trace = read_trace(o.trace).rows;
  if ((o.workload.prefix_groups > 0) != (o.workload.prefix_tokens > 0)) {
    throw OptionError("prefix-groups", "--prefix-groups and --prefix-tokens go together");
  }
  LoadOptions options = load_options(o);
  o.workload.rate = o.rate.value_or(0);
  o.workload.requests = planned_requests(o, options.duration_s);
  HttpTarget target = parse_http_target(o.url);
  if (target.path.ends_with("/v1")) target.path.resize(target.path.size() - 3);

  HttpClient client(target, {.allow_remote = o.allow_remote,
                             .timeout_s = positive_seconds(o.timeout, "timeout"),
                             .api_key = o.api_key});
  const LoadEndpoint endpoint = probe_endpoint(client, o.model);
  const Workload workload(o.workload);
  check_lengths(workload, endpoint);

  const std::optional<ServerTotals> before = read_server_totals(client);
  const InterruptScope interrupt;
  options.interrupted = &interrupt.flag();
  const bool shown = isatty(STDERR_FILENO) != 0;
  const LoadRecord record =
      run_load(client, endpoint, workload, options,
               shown ? show_progress : std::function<void(const LoadProgress&)>());
  if (shown) fmt::print(stderr, "\r\033[K");
  std::optional<ServerTotals> server;
  if (before) server = read_server_totals(client);
  if (server) server = *server - *before;

  const LoadSummary summary = summarize(record, targets);
  const bool token_ids = !options.chat && !endpoint.ids.empty();
  if (global.json) {
    const LoadDescription description{
        .url = target.url(),
        .model = endpoint.model,
        .planned = workload.requests(),
        .rate = o.workload.rate,
        .burstiness = o.workload.burstiness,
        .concurrency = options.open_loop ? o.concurrency : options.concurrency,
        .seed = o.workload.seed,
        .token_ids = token_ids};
    fmt::print("{}\n", load_json(description, summary, server).dump(2));
  } else {
    fmt::print("{}  {}\n", paint(Colour::bold, endpoint.model),
               paint(Colour::dim, fmt::format("{}, prompts of {}", target.url(),
                                              token_ids ? "token ids" : "words")));
    fmt::print("{}", load_text(record, summary, server));
  }
  if (summary.completed == 0) global.exit_code = 1;
  if (record.interrupted) global.exit_code = kInterruptedExitCode;
}

}  // namespace

void add_load_command(CLI::App& app, Global& global) {
  auto o = std::make_shared<LoadCommandOptions>();
  CLI::App* command =
      app.add_subcommand("load", "Send load to an OpenAI-compatible endpoint and time its answers");
  command->add_option("url", o->url, "The endpoint, on plain HTTP")->capture_default_str();
  command->add_option("-m,--model", o->model, "Model; by default the endpoint's first");
  command->add_option("--concurrency", o->concurrency, "Requests in flight at most (default 8)")
      ->check(CLI::Range(1, 1 << 16));
  command->add_option("--rate", o->rate, "Requests a second that arrive, by chance")
      ->check(CLI::Range(1e-6, 1e6));
  command
      ->add_option("--burstiness", o->workload.burstiness,
                   "Below 1: bursts; 1: Poisson; above: even")
      ->check(CLI::Range(0.01, 1e4))
      ->capture_default_str();
  command
      ->add_option("--requests", o->requests, "Requests to send (default 100, or as in the trace)")
      ->check(CLI::Range(1, kMaxRequests));
  CLI::Option* duration =
      command->add_option("--duration", o->duration, "Start no request after this time")
          ->capture_default_str();
  command->add_option("--timeout", o->timeout, "End a request after this time")
      ->capture_default_str();
  command
      ->add_option("-p,--prompt", o->prompt, "Tokens of a prompt: 512, 100..900, lognormal:512,0.8")
      ->capture_default_str();
  command->add_option("-n,--output", o->output, "Tokens of an answer, likewise")
      ->capture_default_str();
  command->add_option("--trace", o->trace, "File of arrivals and lengths")
      ->check(CLI::ExistingFile);
  command
      ->add_option("--prefix-groups", o->workload.prefix_groups,
                   "Groups of prompts that share a prefix")
      ->check(CLI::Range(0, kMaxRequests));
  command->add_option("--prefix-tokens", o->workload.prefix_tokens, "Tokens of a shared prefix")
      ->check(CLI::Range(0, 10'000'000));
  command->add_option("--turns", o->workload.turns, "Requests of a conversation")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  command->add_flag("--chat", o->chat, "Use /v1/chat/completions, as --turns does");
  command->add_flag("--no-ignore-eos", o->stop_at_end, "End an answer where the model ends it");
  command->add_option("--goodput", o->goodput, "Targets in ms: ttft:500 tpot:50 e2el:2000")
      ->delimiter(',');
  command->add_option("--seed", o->workload.seed, "Seed of lengths, arrivals and prompts")
      ->capture_default_str();
  command->add_option("--api-key", o->api_key, "Key of the endpoint")->envname("RIDGE_API_KEY");
  command->add_flag("--allow-remote", o->allow_remote, "Allow an endpoint on another machine");
  command->footer(kLoadExamples);
  command->callback([o, duration, &global] {
    o->has_duration = duration->count() > 0;
    load(*o, global);
  });
}

}  // namespace ridge
