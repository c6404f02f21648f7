#include "engine/cpu/step_buffers.h"

#include <algorithm>

namespace ridge::cpu {
namespace {

int widest(const Architecture& a) {
  return std::max({a.hidden, a.out_columns(), a.latent.q_rank, a.ffn, a.shared_ffn});
}

}  // namespace

StepBuffers::StepBuffers(const Architecture& shape, const RunnerOptions& options, bool is_cut,
                         int64_t logit_columns)
    : x(options.max_tokens, shape.hidden),
      normed(options.max_tokens, shape.hidden),
      q(options.max_tokens, shape.q_columns()),
      k(options.max_tokens, shape.kv_columns()),
      v(options.max_tokens, shape.kv_columns()),
      mixed(options.max_tokens, shape.out_columns()),
      q_latent(options.max_tokens, shape.latent.q_rank),
      q_heads(options.max_tokens, shape.latent ? shape.q_rows() : 0),
      mixed_latent(options.max_tokens, shape.heads * shape.latent.kv_rank),
      inner(options.max_tokens, std::max(shape.ffn, shape.shared_ffn)),
      block(options.max_tokens, shape.hidden),
      expert_sum(shape.experts > 0 && is_cut ? options.max_tokens : 1, shape.hidden),
      logits(options.logit_rows(), std::max<int64_t>(logit_columns, 1), Rows::Layout::contiguous),
      input(options.max_tokens, widest(shape)),
      inner_input(options.max_tokens, widest(shape)),
      head_input(shape.latent ? int64_t{options.max_tokens} * shape.heads : 1,
                 std::max(shape.latent.nope, shape.latent.kv_rank)) {}

}  // namespace ridge::cpu
