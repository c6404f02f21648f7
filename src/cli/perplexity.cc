// `ridge perplexity`: how well does this model, in this format, predict a text?
#include "engine/generate/perplexity.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cmath>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "base/units.h"
#include "cli/command.h"
#include "cli/engine_options.h"

namespace ridge {
namespace {

constexpr const char* kPerplexityFooter = R"(Examples:
  ridge perplexity model.gguf text.txt
  ridge perplexity model-q4_0.gguf text.txt --window 1024
  ridge perplexity "" text.txt                   the model inside the program

The text is cut into windows that do not overlap; every token but a window's first is scored with
the window's tokens before it. Bits per byte compare models whose tokens differ.

JSON: {model, device, tokens, scored, bytes, window, nll, perplexity, standard_error, bits_per_byte,
seconds, tokens_per_s}; nll is the mean negative log likelihood per scored token, in nats.)";

constexpr size_t kMaxText = size_t{256} << 20;

struct PerplexityCommandOptions {
  EngineOptions engine;
  std::string file;
  int window = 512;
};

void perplexity(const PerplexityCommandOptions& options, const Global& global) {
  const std::string text = read_file(options.file, kMaxText);
  EngineOptions engine = options.engine;
  engine.chunk = std::min(chunk_of(engine), options.window);
  const std::unique_ptr<Runner> runner =
      make_runner(engine, {.cache_tokens = options.window, .max_logit_rows = chunk_of(engine)});
  const bool shown = !global.json && isatty(STDERR_FILENO) != 0;  // progress
  const auto start = std::chrono::steady_clock::now();
  const TextScore score = score_text(*runner, text, options.window, [&](double share) {
    if (shown) fmt::print(stderr, "\r{:3.0f} %\033[K", 100 * share);
  });
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  if (global.json) {
    fmt::print("{}\n", Json{{"model", runner->weights().source},
                            {"device", runner->device()},
                            {"tokens", score.tokens},
                            {"scored", score.scored},
                            {"bytes", text.size()},
                            {"window", options.window},
                            {"nll", score.nll},
                            {"perplexity", score.perplexity()},
                            {"standard_error", score.standard_error()},
                            {"bits_per_byte", score.bits_per_byte},
                            {"seconds", took.count()},
                            {"tokens_per_s", double(score.tokens) / took.count()}}
                           .dump(2));
    return;
  }
  if (shown) fmt::print(stderr, "\r\033[K");
  fmt::print("perplexity {} ± {}, {:.4f} bits per byte\n",
             paint(Colour::bold, fmt::format("{:.4f}", score.perplexity())),
             fmt::format("{:.4f}", score.standard_error()), score.bits_per_byte);
  fmt::print("{} tokens of {} in windows of {}, {} tok/s on {}\n", score.tokens,
             pretty_bytes(double(text.size())), options.window,
             pretty_number(double(score.tokens) / took.count()), runner->device());
}

}  // namespace

void add_perplexity_command(CLI::App& app, Global& global) {
  auto options = std::make_shared<PerplexityCommandOptions>();
  CLI::App* command = app.add_subcommand("perplexity", "Score a text with a model");
  command->footer(kPerplexityFooter);
  command->add_option("model", options->engine.model, "As for ridge run; \"\": the one inside")
      ->required();
  command->add_option("file", options->file, "A text")->required();
  command->add_option("-w,--window", options->window, "Tokens of a window")
      ->check(CLI::Range(2, 1 << 20))
      ->capture_default_str();
  add_engine_options(*command, options->engine);
  command->callback([options, &global] { perplexity(*options, global); });
}

}  // namespace ridge
