// The next token from a row of logits.
//
// In this order, each step on what the one before left:
//   0. tokens that SampleContext::allowed leaves out are banned
//   1. logit_bias is added
//   2. repetition_penalty: the logit of every distinct token among the last repeat_last_n is
//      divided by it where positive, multiplied where negative (Keskar et al. 2019, section 4.1)
//   3. presence_penalty is subtracted from the logit of every token that was generated, and
//      frequency_penalty once for each time it was (the OpenAI API's definition: output only)
//   4. temperature 0 takes the largest logit, the lowest id among equals, and ends here; otherwise
//      logits are divided by the temperature
//   5. top_k: the k largest stay (the lower id among equals), then softmax
//   6. top_p: the fewest of the most probable that together reach p stay (at least one)
//   7. min_p: those with at least min_p times the probability of the first stay
//   8. one of the rest is drawn in proportion to its probability: the largest scaled logit plus
//      Gumbel number (gumbel.h), which depends on seed, position and token alone
//
// A Sampler is what one request asked for and nothing else: no state changes from draw to draw.
// The same row, sequence and options give the same token however often, in whatever order and from
// whichever of the two inputs (whole row or TopLogits) it is drawn.
#pragma once

#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "engine/sampling/adjust.h"
#include "engine/sampling/cuts.h"
#include "engine/sampling/sampler_options.h"
#include "engine/sampling/top_logits.h"

namespace ridge {

// Log probabilities are natural and of the model's own distribution: before steps 1 to 8. Without
// SamplerOptions::logprobs they are not computed: 0 and none.
struct Sampled {
  Token token = 0;
  float logprob = 0;
  std::vector<std::pair<Token, float>> top_logprobs;  // `logprobs` of them, most probable first
};

// Memory that draws need while they run, about 16 bytes for each token of the vocabulary. One for a
// thread that samples, not one for a request. Grows on first use, then allocates nothing.
struct SamplerWorkspace {
  Adjustments adjustments;            // steps 1 to 3: which tokens, and how
  std::vector<float> logits;          // the row after these steps
  std::vector<Candidate> candidates;  // what steps 5 to 7 have left
};

class Sampler {
 public:
  Sampler(SamplerOptions options, int vocab);  // throws OptionError (check_sampler_options)
  const SamplerOptions& options() const { return options_; }
  // Whether the token that a device chooses for request() is the drawn one whatever the context,
  // so that a step may be queued before it is known (sampled_row). Without a mask.
  bool device_draws() const;

  // From the whole row, which has `vocab` entries. Throws Error where logits are not numbers or
  // every token is banned.
  void sample(std::span<const float> logits, const SampleContext& context,
              SamplerWorkspace& workspace, Sampled& to) const;

  // From the top of the row, which is all that a device need send. request() writes what must be
  // known; false where only the whole row will do. sample() of the answer is false where that
  // leaves the token in doubt: then the whole row decides, and gives the same token as any answer
  // that is not in doubt.
  bool request(const SampleContext& context, SamplerWorkspace& workspace,
               TopLogitsRequest& to) const;
  bool sample(const TopLogits& top, const TopLogitsRequest& request, const SampleContext& context,
              SamplerWorkspace& workspace, Sampled& to) const;

  // The distribution that step 8 draws from, most probable first: what a speculative step accepts
  // or rejects drafts by. Greedy: one token of probability 1.
  void distribution(std::span<const float> logits, const SampleContext& context,
                    SamplerWorkspace& workspace, std::vector<std::pair<Token, double>>& to) const;

 private:
  bool greedy() const { return options_.temperature == 0; }
  uint64_t key(const SampleContext& context) const;
  int candidates_needed(size_t adjusted) const;
  std::span<const float> adjusted_row(std::span<const float> logits, const SampleContext& context,
                                      SamplerWorkspace& workspace) const;
  Token draw_from(std::span<const Candidate> candidates, uint64_t key) const;
  std::optional<Token> token_from_chosen(const TopLogits& top, const Adjustments& adjustments,
                                         const SampleContext& context) const;
  std::optional<Token> token_from_candidates(const TopLogits& top, SamplerWorkspace& workspace,
                                             const SampleContext& context) const;
  RowTail tail_behind(const TopLogits& top, const Adjustments& adjustments, float max) const;
  void report(std::span<const float> logits, SamplerWorkspace& workspace, Sampled& to) const;
  void report(const TopLogits& top, const Adjustments& adjustments, Sampled& to) const;

  SamplerOptions options_;
  int vocab_;
  float scale_;  // 1 / temperature; greedy: 1
  Cuts cuts_;
};

}  // namespace ridge
