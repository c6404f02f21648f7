// One device's share of a model under a plan, worked out once, so that lowering a batch is
// arithmetic only.
#pragma once

#include <vector>

#include "cost/attention.h"
#include "cost/cpu_format.h"
#include "cost/moe.h"
#include "cost/scan.h"
#include "model/model.h"
#include "step/plan.h"

namespace ridge {

// The matrices of one stage, cut for one rank.
struct Projection {
  const char* name = "";
  double in = 0, out = 0;   // columns on this rank
  double weight_bits = 16;  // mean over the stage's matrices
  double matrices = 0;      // kernels when not fused; 0: the layer has no such stage
  double inner = 0;         // columns left after the activation that follows; 0: none follows
  bool gated = false;       // the activation multiplies a gate
  DType math = DType::bf16;
  CpuFormat format = CpuFormat::other;  // of its last matrix

  bool present() const { return matrices > 0; }
};

struct RankGroup {  // identical layers
  MixerKind kind = MixerKind::none;
  double count = 0;  // layers of this kind in the whole model
  Projection mixer_in, mla_down, mla_up_q, mla_up_kv, index_in, mixer_out;
  Projection router, expert_in, expert_out, shared_in, shared_out, ffn_in, ffn_out;
  AttentionShape attention;  // attention and MLA
  ScanShape scan;            // linear attention, SSM, convolution
  Routing routing;
  double q_columns = 0, kv_columns = 0;  // that rope and the cache write touch
  double window = 0;                     // tokens the cache keeps; 0: all
  double cache_per_token = 0;            // bytes
  double state_bytes = 0;                // bytes per sequence
  bool output_gate = false;
  double norms = 2;
};

struct Rank {
  const Model* model = nullptr;
  Plan plan;
  DType math = DType::bf16;  // of most matrices
  double hidden = 0, vocab = 0;
  double act_bytes = 2;  // per element of the residual stream
  double sum_bytes = 2;  // per element of it that travels between ranks
  double kv_bytes = 2;   // per cached element
  std::vector<RankGroup> groups;
  Projection head;
  double embed_bits = 16;
  double weight_bytes = 0;  // held by the fullest rank
  double layer_share = 1;   // of all layers, held by the fullest pipeline stage
};

// Throws Error when the plan cannot be (more expert ranks than experts, zero degrees).
// The result points to `model`, which must outlive it.
Rank make_rank(const Model& model, const Plan& plan);

// KV pages and states one rank holds for a sequence of `context` tokens.
double sequence_bytes(const Rank& rank, double context);
// The largest activations alive at once on a rank that handles `tokens` tokens in a step.
double activation_bytes(const Rank& rank, double tokens, double sequences);

// What attention that materialises its scores adds to them: the scores and the probabilities of one
// layer, for so many pairs of a query and a key. 0 with flash attention.
double score_bytes(const Rank& rank, double prompt_pairs, double decode_pairs);

}  // namespace ridge
