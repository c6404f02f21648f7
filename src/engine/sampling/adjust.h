// Steps 1 to 3 of a draw (sampler.h): the tokens whose logits bias and penalties change.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/sampling/sampler_options.h"

namespace ridge {

struct Adjustment {
  Token token = 0;
  float bias = 0;
  bool repeated = false;  // stands among the last repeat_last_n
  int generated = 0;      // how often it was generated, where a penalty counts that
};

// The logit after bias and penalties; never +inf.
float adjusted_logit(float logit, const Adjustment& adjustment, const SamplerOptions& options);

// The adjusted tokens of one draw, each once. The order depends on options and context alone.
// Reused from draw to draw: 4 bytes for each token of the vocabulary.
class Adjustments {
 public:
  void collect(const SamplerOptions& options, const SampleContext& context, int vocab);
  std::span<const Adjustment> list() const { return list_; }
  const Adjustment* find(Token token) const;  // null: not adjusted

 private:
  Adjustment& at(Token token);

  std::vector<Adjustment> list_;
  std::vector<int32_t> places_;  // by token: its index in list_ plus 1, or 0
};

}  // namespace ridge
