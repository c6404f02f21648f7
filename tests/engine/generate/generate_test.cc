// What ends a generation, and what is left of it then.
#include "engine/generate/generate.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "text/tokenizer/tokenizer.h"

namespace ridge {
namespace {

constexpr int kTokens = 24;

GenerateOptions greedy() {
  GenerateOptions options;
  options.sampler.temperature = 0;
  options.sampler.repetition_penalty = 1;
  options.max_tokens = kTokens;
  return options;
}

class GenerateEnds : public testing::Test {
 protected:
  // The end tokens of the architecture and of the tokenizer are replaced by those given.
  static std::unique_ptr<Runner> runner(std::vector<Token> architecture_ends = {},
                                        std::vector<Token> tokenizer_ends = {},
                                        int cache_tokens = 256) {
    Weights weights = load_weights("ridge-1m");
    weights.architecture.ends = std::move(architecture_ends);
    weights.tokenizer->ends = std::move(tokenizer_ends);
    RunnerOptions options;
    options.threads = 1;
    options.cache_tokens = cache_tokens;
    return make_cpu_runner(std::move(weights), options);
  }
  Generated run(Runner& runner, const GenerateOptions& options) {
    shown_.clear();
    PagePool pool(runner.page_count(), runner.options().page_tokens);
    KvSequence sequence(pool);
    Generated made = generate(runner, sequence, prompt(runner), options,
                              [this](std::string_view text) { shown_ += text; });
    length_ = sequence.length();
    EXPECT_EQ(shown_, made.text);
    EXPECT_EQ(made.sampled.size(), made.tokens.size());
    return made;
  }
  static std::vector<Token> prompt(const Runner& runner) {
    return runner.weights().tokenizer->encode("The");
  }
  static std::string text_of(const Runner& runner, std::span<const Token> tokens) {
    std::string text;
    for (const Token token : tokens) text += runner.weights().tokenizer->decode(token);
    return text;
  }

  std::string shown_;
  int length_ = 0;  // of the sequence after the last run
};

TEST_F(GenerateEnds, AtTheMostTokens) {
  const auto engine = runner();
  const Generated made = run(*engine, greedy());
  EXPECT_EQ(made.end, EndReason::length);
  EXPECT_EQ(made.tokens.size(), size_t{kTokens});
  EXPECT_EQ(made.text, text_of(*engine, made.tokens));
  EXPECT_EQ(made.prompt.steps(), 1);
  EXPECT_EQ(made.generation.steps(), kTokens - 1);  // the last token was not run
  EXPECT_EQ(length_, int(prompt(*engine).size()) + kTokens - 1);
}

TEST_F(GenerateEnds, AtAnEndTokenOfTheModelOrItsTokenizer) {
  const Generated all = run(*runner(), greedy());
  // The first token that did not occur before it, from the middle on.
  size_t at = all.tokens.size() / 2;
  const auto is_new = [&](size_t i) {
    const auto end = all.tokens.begin() + std::ptrdiff_t(i);
    return std::find(all.tokens.begin(), end, all.tokens[i]) == end;
  };
  while (at < all.tokens.size() && !is_new(at)) ++at;
  ASSERT_LT(at, all.tokens.size()) << "the text repeats itself: choose another prompt";
  const Token end = all.tokens[at];
  for (const bool of_tokenizer : {false, true}) {
    const auto engine = of_tokenizer ? runner({}, {end}) : runner({end}, {});
    const Generated made = run(*engine, greedy());
    EXPECT_EQ(made.end, EndReason::end_token);
    EXPECT_EQ(made.tokens,
              std::vector<Token>(all.tokens.begin(), all.tokens.begin() + std::ptrdiff_t(at) + 1));
    EXPECT_EQ(made.text, text_of(*engine, std::span(all.tokens).first(at)));  // the end not shown
    GenerateOptions on = greedy();
    on.ignore_end = true;
    EXPECT_EQ(run(*engine, on).tokens, all.tokens);
    EXPECT_EQ(run(*engine, on).end, EndReason::length);
  }
}

TEST_F(GenerateEnds, AtAStopStringThatIsNotShown) {
  const auto engine = runner();
  const Generated all = run(*engine, greedy());
  // Across the boundary of two tokens: the last byte of one and the first of the next.
  const size_t boundary = text_of(*engine, std::span(all.tokens).first(kTokens / 2)).size();
  const std::string stop = all.text.substr(boundary - 1, 2);
  const size_t first = all.text.find(stop);
  GenerateOptions options = greedy();
  options.stops = {"never in the text", stop};
  const Generated made = run(*engine, options);
  EXPECT_EQ(made.end, EndReason::stop_string);
  EXPECT_EQ(made.text, all.text.substr(0, first));
  EXPECT_LE(made.tokens.size(), size_t{kTokens} / 2 + 1);
  // No token was made after the stop string was complete.
  EXPECT_LT(text_of(*engine, std::span(made.tokens).first(made.tokens.size() - 1)).size(),
            first + stop.size());
}

TEST_F(GenerateEnds, WhereTheContextIsFull) {
  const Generated all = run(*runner(), greedy());
  constexpr int kContext = 16;
  const auto engine = runner({}, {}, kContext);
  const Generated made = run(*engine, greedy());
  EXPECT_EQ(made.end, EndReason::context);
  EXPECT_EQ(length_, kContext);
  // The last token was sampled from a full context, and needs no place in it.
  const size_t expected = size_t(kContext) - prompt(*engine).size() + 1;
  EXPECT_EQ(made.tokens,
            std::vector<Token>(all.tokens.begin(), all.tokens.begin() + std::ptrdiff_t(expected)));
}

TEST_F(GenerateEnds, BeforeItBeginsWhereThePromptCannotRun) {
  const auto engine = runner({}, {}, 16);
  PagePool pool(engine->page_count(), engine->options().page_tokens);
  KvSequence sequence(pool);
  const std::vector<Token> too_long(17, prompt(*engine).front());
  EXPECT_THROW(generate(*engine, sequence, too_long, greedy(), nullptr), Error);
  EXPECT_THROW(generate(*engine, sequence, {}, greedy(), nullptr), Error);
  EXPECT_EQ(sequence.length(), 0);
}

TEST_F(GenerateEnds, ContinuesASequenceAsIfThePromptWereOne) {
  const auto engine = runner();
  const Generated all = run(*engine, greedy());
  PagePool pool(engine->page_count(), engine->options().page_tokens);
  KvSequence sequence(pool);
  GenerateOptions half = greedy();
  half.max_tokens = kTokens / 2;
  const Generated first = generate(*engine, sequence, prompt(*engine), half, nullptr);
  const Generated second = generate(*engine, sequence, {&first.tokens.back(), 1}, half, nullptr);
  std::vector<Token> both = first.tokens;
  both.insert(both.end(), second.tokens.begin(), second.tokens.end());
  EXPECT_EQ(both, all.tokens);
}

}  // namespace
}  // namespace ridge
