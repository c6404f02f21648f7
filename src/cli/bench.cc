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
#include "cli/command.h"
#include "cli/engine_options.h"
#include "cli/run_report.h"
#include "engine/generate.h"

namespace ridge {
namespace {

constexpr const char* kBenchFooter = R"(Examples:
  ridge bench                                       the model inside the program
  ridge bench model.gguf -p 512 -n 32
  ridge bench tinyllama-1.1b --weights random:1 --format q4_0
  ridge bench model.gguf -b 1,2,4..16 -c 128,1024   generation over batch and context
  ridge bench llama-3-8b --device cuda --weights random:1 --format int4 -b 1,8,32
  ridge bench model.gguf --csv > bench.csv

Rows: "prompt" is one prompt of that many tokens; "generate" is steps of `batch` sequences that each
hold `context` tokens (random keys and values), each giving its likeliest token. Times are the median
step; spread is the share by which the slowest quarter exceeds it. Roof: the same operators at this
machine's measured ceilings; for generation on a CPU the memory's is the median of plain reads of the
weights, one after each step.

JSON: {model, device, weight_bytes, repacked_bytes, load_s, machine, rows: [{test, batch, context,
tokens, steps, seconds, spread, tokens_per_s, bytes_per_s, flops_per_s, roof_s, expected_s,
share_of_roof, wall}]}; seconds, roof_s and expected_s are of one step.)";

struct BenchCommandOptions {
  EngineOptions engine;
  std::string prompt = "512", batch = "1", context = "128";
  int tokens = 32, repeats = 3;
  bool csv = false;
};

struct BenchRow {
  const char* test;
  int batch, context, tokens;   // tokens of one step, all sequences
  std::vector<double> seconds;  // of each step
  std::vector<double> rates;    // plain reads of the weights between the steps, bytes/s
  Account account;              // of one step at the median

  double median() const { return quantile(0.5); }
  double quantile(double q) const { return quantile_of(seconds, q); }
  static double quantile_of(std::vector<double> values, double q) {
    std::sort(values.begin(), values.end());
    return values[size_t(q * double(values.size() - 1) + 0.5)];
  }
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

std::vector<Token> some_tokens(int count, int vocab, uint32_t salt) {
  std::vector<Token> tokens(static_cast<size_t>(count));
  for (size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] = Token((uint32_t(i) * 2654435761u + salt * 40503u + 17u) % uint32_t(vocab));
  }
  return tokens;
}

void settle(BenchRow& row, const Runner& runner, const System& system, const Sequences& work) {
  Ledger ledger;
  ledger.record({&work, 1}, row.median());
  // Generation is held against what the memory gave between its own steps.
  const double rate = row.rates.empty() ? 0 : BenchRow::quantile_of(row.rates, 0.5);
  row.account = ledger.account(runner.weights().model, runner.plan(),
                               with_read_rate(system, runner, rate), engine_stack(system), nullptr);
}

BenchRow bench_prompt(Runner& runner, const System& system, int tokens, int repeats) {
  BenchRow row{"prompt", 1, 0, tokens, {}, {}, {}};
  const std::vector<Token> prompt = some_tokens(tokens, runner.weights().architecture.vocab, 1);
  PagePool pool(runner.page_count(), runner.options().page_tokens);
  const TopLogitsRequest greedy;
  for (int r = 0; r <= repeats; ++r) {  // the first warms up
    Ledger ledger;
    KvSequence sequence(pool);
    const auto start = std::chrono::steady_clock::now();
    prefill(runner, sequence, prompt, 1, ledger);
    runner.top_logits({&greedy, 1});
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    if (r > 0) row.seconds.push_back(took.count());
  }
  settle(row, runner, system, {1, double(tokens), 0, 1});
  return row;
}

BenchRow bench_generate(Runner& runner, const System& system, int batch, int context, int steps) {
  BenchRow row{"generate", batch, context, batch, {}, {}, {}};
  PagePool pool(runner.page_count(), runner.options().page_tokens);
  std::vector<KvSequence> sequences;
  std::vector<PageCopy> copies;  // none: nothing is shared
  for (int s = 0; s < batch; ++s) {
    sequences.emplace_back(pool);
    if (!sequences.back().reserve(context + 1, copies)) {
      throw Error("the KV cache has no room for {} sequences of {} tokens", batch, context + 1);
    }
  }
  const std::vector<TopLogitsRequest> greedy(size_t(batch), TopLogitsRequest{});
  std::vector<Token> tokens = some_tokens(batch, runner.weights().architecture.vocab, 2);
  std::vector<Slice> slices(size_t(batch), Slice{});
  constexpr int kWarm = 2;
  for (int step = 0; step < steps + kWarm; ++step) {
    for (size_t s = 0; s < slices.size(); ++s) {
      slices[s] = {{&tokens[s], 1}, context, sequences[s].pages(), 1};
    }
    const auto start = std::chrono::steady_clock::now();
    runner.run(slices);
    runner.top_logits(greedy);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    if (step >= kWarm) row.seconds.push_back(took.count());
    if (const double rate = runner.read_rate(); rate > 0 && step >= kWarm)
      row.rates.push_back(rate);
  }
  settle(row, runner, system, {double(batch), 1, double(context), 1});
  return row;
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
                            {"rows", std::move(list)}}
                           .dump(2));
    return;
  }
  if (options.csv) {
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
  fmt::print(
      "{}  {}\n", paint(Colour::bold, weights.source),
      paint(Colour::dim,
            fmt::format("{}, {} of weights, ready in {}{}", runner->device(),
                        pretty_bytes(weights.bytes), pretty_time(loaded.count()),
                        runner->repacked_bytes() > 0
                            ? fmt::format(", {} repacked", pretty_bytes(runner->repacked_bytes()))
                            : "")));
  fmt::print("{}", table.text());
  fmt::print("Roof: {} reads {} from {}{}.\n", system.name(),
             pretty_rate(rows.back().account.bandwidth), rows.back().account.memory,
             rows.back().rates.empty() ? "" : ", the same weights between the steps");
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
  command->add_flag("--csv", options->csv,
                    "The rows as comma-separated values, fields as in --json");
  add_engine_options(*command, options->engine);
  command->callback([options, &global] { bench(*options, global); });
}

}  // namespace ridge
