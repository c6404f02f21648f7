// A device for tests of the scheduler: its cache holds token ids, so that every page which a step
// reads can be compared with the sequence it should hold. The "model" draws the next token from a
// hash of all tokens before it.
#pragma once

#include <gtest/gtest.h>

#include <span>
#include <vector>

#include "base/random.h"
#include "serving/scheduler.h"

namespace ridge {

class FakeDevice {
 public:
  FakeDevice(int pages, int page_tokens, int vocab)
      : page_tokens_(page_tokens),
        vocab_(vocab),
        cache_(static_cast<size_t>(pages) * static_cast<size_t>(page_tokens), -1) {}

  // The token that follows `tokens`, whatever ran before.
  static Token next_token(std::span<const Token> tokens, int vocab) {
    uint64_t hash = 1;
    for (const Token token : tokens) hash = splitmix64(hash ^ static_cast<uint32_t>(token));
    return static_cast<Token>(hash % static_cast<uint64_t>(vocab));
  }

  // Runs a step and gives the token drawn behind each of its rows of logits.
  std::vector<Token> run(const ScheduledStep& step) {
    for (const PageCopy& copy : step.copies) {
      for (int i = 0; i < copy.tokens; ++i) at(copy.to, i) = at(copy.from, i);
    }
    std::vector<Token> drawn;
    std::vector<std::vector<Token>> contexts;
    for (const ScheduledSlice& slice : step.slices) {
      std::vector<Token> context;
      for (int i = 0; i < slice.past; ++i) context.push_back(at_position(slice.pages, i));
      for (const Token token : step.tokens_of(slice)) {
        context.push_back(token >= 0 ? token : last_drawn_.at(static_cast<size_t>(-1 - token)));
      }
      contexts.push_back(std::move(context));
    }
    for (size_t s = 0; s < step.slices.size(); ++s) {
      const ScheduledSlice& slice = step.slices[s];
      const std::span<const Token> context = contexts[s];
      for (int i = 0; i < slice.count; ++i) {
        at_position(slice.pages, slice.past + i) = context[static_cast<size_t>(slice.past + i)];
      }
      for (int row = slice.count - slice.logits; row < slice.count; ++row) {
        drawn.push_back(
            next_token(context.first(static_cast<size_t>(slice.past + row + 1)), vocab_));
      }
    }
    last_drawn_ = drawn;
    return drawn;
  }

 private:
  Token& at(int page, int token) {
    return cache_.at(static_cast<size_t>(page) * static_cast<size_t>(page_tokens_) +
                     static_cast<size_t>(token));
  }
  Token& at_position(std::span<const int> pages, int position) {
    return at(pages[static_cast<size_t>(position / page_tokens_)], position % page_tokens_);
  }

  int page_tokens_, vocab_;
  std::vector<Token> cache_;
  std::vector<Token> last_drawn_;
};

}  // namespace ridge
