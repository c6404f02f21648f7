// Times of an endpoint's steps: the kernels of a mixed step, and what the stack's host adds.
//
// A step carries decoding sequences and prompt tokens. Its GEMMs read the weights once for both, so
// that prompt tokens cost only what they add; attention is each sequence's own. With dec for the
// decode part and host work, and prompt for what the prompt tokens add: step = dec + prompt.
#pragma once

#include <memory>
#include <vector>

#include "predict/predict.h"
#include "predict/step_clock.h"
#include "step/step.h"

namespace ridge {

// Seconds of a step's kernels.
struct KernelSeconds {
  double experts = 0, rest = 0;
};

// Any step of one replica, operator by operator. Host work is left out.
class StepKernels {
 public:
  explicit StepKernels(const Request& request);
  ~StepKernels();

  KernelSeconds step(std::span<const Sequences> batch) const;
  // `sequences` decode, each after `context` tokens.
  KernelSeconds decode(double sequences, double context) const;
  // What a chunk of a prompt adds to a step of `sequences` decodes.
  KernelSeconds added_by(const Sequences& chunk, double sequences, double context) const;
  // Without attention and the head: `tokens` tokens of prompts. And their attention alone.
  KernelSeconds layers_of(double tokens) const;
  double prompt_attention(double tokens) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// The same as tables, for simulations: a step costs a few interpolations.
class StepTimes : public StepClock {
 public:
  // For steps of at most `max_sequences` decodes with contexts up to `max_context`, and at most
  // `max_tokens` prompt tokens.
  StepTimes(const Request& request, double max_sequences, double max_tokens, double max_context);

  double step(double decodes, double context,
              std::span<const PromptChunk> chunks = {}) const override;
  double linear_until(double decodes, double context) const override;
  double first_token_overhead() const override { return first_s_; }

 private:
  double decode(double sequences, double context) const;
  double prompt(double sequences, std::span<const PromptChunk> chunks) const;

  HostCosts host_;
  double layers_ = 0, layers_host_s_ = 0;
  double tokens_per_step_ = 1;
  double first_s_ = 0;
  std::vector<double> batches_, contexts_;  // of the table of decode steps
  std::vector<double> decode_s_;            // by batch, then context; host work included
  std::vector<double> tokens_, layers_s_;  // of prompts without attention; experts' factor included
  std::vector<double> lengths_, attention_s_;  // of a whole prompt's attention
  double attention_start_s_ = 0;               // of its kernels, whatever they compute
};

// Pages of the KV cache that the stack leaves on one replica.
int kv_pages(const Request& request, int page_tokens);

}  // namespace ridge
