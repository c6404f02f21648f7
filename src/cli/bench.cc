// `ridge bench`: how fast is this model here, over batch and context, against the roof.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>

#include "base/error.h"
#include "base/json.h"
#include "base/json_csv.h"
#include "base/text.h"
#include "base/units.h"
#include "cli/bench_serving.h"
#include "cli/command.h"
#include "cli/engine_options.h"
#include "cli/measurement_doubt.h"
#include "cli/run_report.h"
#include "engine/generate/bench_steps.h"
#include "engine/generate/generate.h"

namespace ridge {
namespace {

constexpr const char* kBenchFooter = R"(Examples:
  ridge bench                                       the model inside the program
  ridge bench model.gguf -p 512 -n 32
  ridge bench tinyllama-1.1b --weights random:1 --format q4_0
  ridge bench model.gguf -b 1,2,4..16 -c 128,1024   generation over batch and context
  ridge bench llama-3-8b --device cuda --weights random:1 --format int4 -b 1,8,32
  ridge bench model.gguf --serve 1,8,32 -p 128 -n 128   continuous batching against its ceiling
  ridge bench model.gguf --csv > bench.csv

Rows: "prompt" is one prompt of that many tokens; "generate" is steps of `batch` sequences that each
hold `context` tokens (random keys and values), each giving its likeliest token. Times are the median
step; spread is the share by which the slowest quarter exceeds it. Roof: the same operators at this
machine's measured ceilings; for generation on a CPU the memory's is the median of plain reads of the
weights, one after each step. With ranks (--tp, --pp), rate, work and roof are those of one rank (of
each stage), its collectives included.

JSON: {model, device, weight_bytes, repacked_bytes, load_s, machine, doubt (what else used the
processors, or null), rows: [{test, batch, context, tokens, steps, seconds, spread, tokens_per_s,
bytes_per_s, flops_per_s, roof_s, expected_s, share_of_roof, wall}]}; seconds, roof_s and expected_s
are of one step. With --serve: {model, device, prompt, tokens, prompt_s, doubt, rows: [{clients,
requests, seconds, tokens_per_s, step_s, ceiling,
share_of_ceiling, ttft_s, itl_s, host_gap_s, predicted_s, measured_s}]}; ceiling is the tokens/s of
C O / (O d(C) + C p): C clients, O tokens each, d the step of C sequences, p one prompt.)";

struct BenchCommandOptions {
  EngineOptions engine;
  std::string prompt = "512", batch = "1", context = "128";
  int tokens = 32, repeats = 3;
  std::string clients;  // empty: single steps
  bool csv = false;
};

std::vector<int> counts(const std::string& text, const char* what) {
  std::vector<int> values;
  for (double value : parse_sweep(text, what)) {
    if (value < 1 || value > (1 << 24))
      throw OptionError(what, fmt::format("--{} {}: from 1 to 16 M", what, value));
    values.push_back(int(value));
  }
  return values;
}

double spread(const BenchRow& row) { return row.quantile(0.75) / row.median() - 1; }

Json row_json(const BenchRow& row) {
  const Account& a = row.account;
  return {{"test", row.test},
          {"batch", row.batch},
          {"context", row.context},
          {"tokens", row.tokens},
          {"steps", row.seconds.size()},
          {"seconds", row.median()},
          {"spread", spread(row)},
          {"tokens_per_s", row.tokens / row.median()},
          {"bytes_per_s", a.bytes_per_s()},
          {"flops_per_s", a.flops_per_s()},
          {"roof_s", a.roof_s},
          {"expected_s", a.expected_s},
          {"share_of_roof", a.share_of_roof()},
          {"wall", wall_name(a.wall)}};
}

void bench(const BenchCommandOptions& options, const Global& global) {
  if (!options.clients.empty()) {
    const std::vector<int> prompt = counts(options.prompt, "prompt");
    if (prompt.size() > 1) throw OptionError("prompt", "--serve: one length of prompts");
    bench_serving(
        options.engine,
        {counts(options.clients, "serve"), prompt.front(), options.tokens, options.repeats},
        global);
    return;
  }
  const std::vector<int> prompts = counts(options.prompt, "prompt");
  const std::vector<int> batches = counts(options.batch, "batch");
  const std::vector<int> contexts = counts(options.context, "context");
  int64_t room = *std::max_element(prompts.begin(), prompts.end());
  const int64_t batch = *std::max_element(batches.begin(), batches.end());
  const int64_t context = *std::max_element(contexts.begin(), contexts.end());
  const int64_t page = options.engine.page_tokens;
  room = std::max(room, batch * ((context + 1 + page - 1) / page * page));
  if (room > (1 << 26))
    throw Error("{} sequences of {} tokens are more than a cache holds", batch, context);
  EngineOptions engine = options.engine;
  engine.chunk = std::max<int>(chunk_of(engine), int(batch));

  const auto start = std::chrono::steady_clock::now();
  const std::unique_ptr<Runner> runner =
      make_runner(engine, {.cache_tokens = int(room), .max_sequences = int(batch)});
  const std::chrono::duration<double> loaded = std::chrono::steady_clock::now() - start;
  const Disturbance began = disturbance_now();
  const System system = roof_system(options.engine, *runner);
  const bool shown = !global.json && isatty(STDERR_FILENO) != 0;  // progress
  std::vector<BenchRow> rows;
  for (int tokens : prompts) {
    if (shown) fmt::print(stderr, "\rprompt {} ...\033[K", tokens);
    rows.push_back(bench_prompt(*runner, system, tokens, options.repeats));
  }
  runner->fill_cache(1);
  for (int b : batches) {
    for (int c : contexts) {
      if (shown) fmt::print(stderr, "\rgenerate, batch {}, context {} ...\033[K", b, c);
      rows.push_back(bench_generate(*runner, system, b, c, options.tokens));
    }
  }
  if (shown) fmt::print(stderr, "\r\033[K");
  const std::string doubt = doubt_since(began, options.engine, *runner);

  const Weights& weights = runner->weights();
  Json list = Json::array();
  for (const BenchRow& row : rows) list.push_back(row_json(row));
  if (global.json) {
    fmt::print("{}\n", Json{{"model", weights.source},
                            {"device", runner->device()},
                            {"weight_bytes", weights.bytes},
                            {"repacked_bytes", runner->repacked_bytes()},
                            {"load_s", loaded.count()},
                            {"machine", system.name()},
                            {"doubt", doubt_json(doubt)},
                            {"rows", std::move(list)}}
                           .dump(2));
    return;
  }
  if (options.csv) {
    fmt::print(stderr, "{}", doubt_line(doubt));
    fmt::print("{}", json_csv(list));
    return;
  }
  Table table({"test", "batch", "context", "tok/s", "step", "spread", "rate", "work", "roof",
               "of roof", "predicted", "wall"});
  for (const BenchRow& row : rows) {
    const Account& a = row.account;
    const bool prompt = row.context == 0;
    table.add({prompt ? fmt::format("prompt {}", row.tokens) : "generate",
               fmt::format("{}", row.batch), prompt ? "" : fmt::format("{}", row.context),
               pretty_number(row.tokens / row.median()), pretty_time(row.median()),
               pretty_percent(spread(row)), pretty_rate(a.bytes_per_s()),
               pretty_flop_rate(a.flops_per_s()), pretty_time(a.roof_s),
               pretty_percent(a.share_of_roof()), pretty_time(a.expected_s),
               std::string(wall_name(a.wall))});
  }
  fmt::print("{}", doubt_line(doubt));
  fmt::print(
      "{}  {}\n", paint(Colour::bold, weights.source),
      paint(Colour::dim,
            fmt::format("{}, {} of weights, ready in {}{}", runner->device(),
                        pretty_bytes(weights.bytes), pretty_time(loaded.count()),
                        runner->repacked_bytes() > 0
                            ? fmt::format(", {} repacked", pretty_bytes(runner->repacked_bytes()))
                            : "")));
  fmt::print("{}", table.text());
  const int ranks = runner->plan().devices();
  fmt::print("Roof: {} reads {} from {}{}.\n",
             ranks > 1 ? fmt::format("each of {} ranks", ranks) : system.name(),
             pretty_rate(rows.back().account.bandwidth), rows.back().account.memory,
             rows.back().rates.empty() ? "" : ", the same weights between the steps");
  if (ranks > 1) fmt::print("{}\n", ranks_line(*runner, system));
}

}  // namespace

void add_bench_command(CLI::App& app, Global& global) {
  auto options = std::make_shared<BenchCommandOptions>();
  CLI::App* command = app.add_subcommand("bench", "Time prompts and generation against the roof");
  command->footer(kBenchFooter);
  command->add_option("model", options->engine.model, "As for ridge run");
  command->add_option("-p,--prompt", options->prompt, "Prompt tokens, a list or sweep")
      ->capture_default_str();
  command->add_option("-b,--batch", options->batch, "Sequences at once, a list or sweep")
      ->capture_default_str();
  command->add_option("-c,--context", options->context, "Tokens each holds, a list or sweep")
      ->capture_default_str();
  command->add_option("-n,--tokens", options->tokens, "Generation steps timed")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str();
  command->add_option("-r,--repeats", options->repeats, "Prompts timed")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  command->add_option("--serve", options->clients,
                      "Clients at once, a list: the scheduler with -r requests each of -p prompt "
                      "and -n generated tokens, against its ceiling");
  command->add_flag("--csv", options->csv,
                    "The rows as comma-separated values, fields as in --json");
  add_engine_options(*command, options->engine);
  command->callback([options, &global] { bench(*options, global); });
}

}  // namespace ridge
