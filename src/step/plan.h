// How a model is run: precisions, parallelism and techniques.
#pragma once

#include <optional>
#include <string>

#include "base/dtype.h"

namespace ridge {

struct Plan {
  // Precisions. Unset: as the model's files say.
  std::optional<Format> weights;     // layer matrices; of GGUF formats also embedding and head
  bool quantizes_head = false;       // the head is kept in `weights` too (Stack)
  std::optional<DType> activations;  // unset: as the weights where matrix units take both
  std::optional<Format> kv;

  // Parallelism. A model copy takes tp * pp devices; dp copies share the batch. Experts are spread
  // over ep of the tp * dp ranks of a stage (1: every rank holds a slice of every expert).
  int tp = 1, pp = 1, dp = 1, ep = 1;
  // Pipeline stages: tokens that take as long as reading a stage's weights, by which a step is
  // divided into micro-batches (step/micro_batches.h). 0: a step is one.
  double turn_tokens = 0;
  bool cut_embedding = true;  // over the tp ranks, which all-reduce what they look up
  std::optional<DType> sums;  // of the ranks, as they travel; unset: as the residual stream
  // Rank 0 sends every step to the others and gets the top logits of each part of the vocabulary.
  // Otherwise every rank knows the step, and they gather whole rows of logits.
  bool led = false;

  // Techniques.
  bool flash = true;       // attention never materialises n x n
  bool fusion = true;      // norms with residuals, rope with cache writes, activations in epilogues
  bool graphs = true;      // kernels replayed from a graph instead of launched one by one
  bool paging = true;      // KV in pages; otherwise every sequence reserves `reserve` tokens
  bool continuous = true;  // finished sequences are replaced at once
  int page_tokens = 16;
  double reserve = 0;       // tokens reserved per sequence without paging; 0: the model's maximum
  double chunk = 0;         // prompt tokens per step (chunked prefill); 0: the whole prompt at once
  double prefix_hit = 0;    // share of the prompt found in the prefix cache
  int speculate = 0;        // draft tokens verified per step
  double acceptance = 0.7;  // probability that a draft token is accepted
  double expert_skew = 0;   // see cost/moe.h
  double offload = 0;       // share of the weights kept in host memory and streamed each step

  int devices() const { return tp * pp * dp; }
};

// Tokens a speculative step yields on average: 1 + a + ... + a^k. Leviathan et al. 2023, eq. 1.
double tokens_per_step(const Plan& plan);

}  // namespace ridge
