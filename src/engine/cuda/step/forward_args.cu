// The arguments of a step's operators.
#include "engine/cuda/step/forward.cuh"

namespace ridge::cuda {

LinearArgs Forward::gemm_args(const Matrices& m, int index, const uint16_t* x,
                              LinearArgs args) const {
  args.tiles = m.tiles;
  args.matrix = index;
  args.row_count = m.rows;
  args.x = x;
  if (args.padded == 0) args.tokens = step_.tokens, args.padded = step_.padded;
  args.activation = w_.shape.clamped_swiglu ? Activation::clamped_swiglu
                    : w_.shape.gelu         ? Activation::gelu_tanh
                                            : Activation::silu;
  return args;
}

LinearArgs Forward::qkv_args(int layer) const {
  LinearArgs args;
  args.bias = w_.vector(VectorKind::qkv_bias, layer);
  args.rows = b_.qkv, args.stride = w_.qkv_rows();
  return args;
}

LinearArgs Forward::block_output_args() const {
  const bool apart = adds_block_later();
  LinearArgs args;
  args.epilogue = apart ? Epilogue::store : Epilogue::add;
  args.rows = apart ? b_.block_output : b_.residual;
  args.stride = w_.shape.hidden;
  return args;
}

LinearArgs Forward::gate_args() const {
  LinearArgs args;
  args.epilogue = Epilogue::gate, args.out = b_.activated;
  return args;
}

LinearArgs Forward::head_args() const {
  LinearArgs args;
  args.tokens = step_.logit_rows, args.padded = Linear::padded(step_.logit_rows);
  args.softcap = w_.shape.logit_softcap;
  args.rows = first_logits(), args.stride = w_.shape.head_columns();
  return args;
}

// `bias`: of all experts, where the model has some.
LinearArgs Forward::expert_args(VectorKind bias, int layer) const {
  LinearArgs args;
  args.bias = w_.vector(bias, layer);
  args.bias_stride =
      bias == VectorKind::expert_down_bias ? w_.shape.hidden : 2 * w_.shape.expert_ffn;
  args.tokens = step_.slots, args.padded = step_.slots, args.matrices = w_.shape.experts_here();
  args.tile_count = b_.tile_count, args.tile_matrix = b_.tile_expert;
  args.out = b_.expert_activated;
  args.rows = b_.expert_rows, args.stride = w_.shape.hidden;
  return args;
}

// Of all tokens.
RmsNormArgs Forward::norm_args(VectorKind kind, int layer, const PendingAdd& pending) const {
  RmsNormArgs args = {};
  args.residual = b_.residual;
  args.added = pending.rows, args.experts = pending.experts, args.added_norm = pending.norm;
  args.norm = w_.vector(kind, layer);
  args.out = b_.x, args.hidden = w_.shape.hidden;
  args.count = step_.tokens, args.padded = step_.padded, args.eps = w_.shape.norm_eps;
  if (step_.fp8_products && step_.path == StepPath::per_operator) {
    args.fp8_out = reinterpret_cast<uint8_t*>(b_.x), args.token_scale = b_.token_scale;
  }
  return args;
}

ExpertRouting Forward::routing(int layer) const {
  const ModelShape& s = w_.shape;
  return {step_.tokens,
          s.experts,
          s.expert_first,
          s.experts_here(),
          s.top_k,
          step_.slot_tile,
          s.normalize_top_k,
          b_.router_logits,
          b_.expert,
          b_.expert_weight,
          b_.slot,
          b_.expert_count,
          b_.source,
          b_.tile_expert,
          b_.tile_count,
          s.routing,
          w_.vector(VectorKind::router_correction, layer),
          b_.expert_input_weight};
}

// Otherwise the GEMM has added its result already.
Forward::PendingAdd Forward::pending_block_output(VectorKind post_norm, int layer) const {
  if (!adds_block_later()) return {};
  PendingAdd pending;
  pending.rows = b_.block_output, pending.norm = w_.vector(post_norm, layer);
  return pending;
}

Forward::PendingAdd Forward::pending_experts(int layer) const {
  PendingAdd pending;
  pending.experts = {b_.expert_rows, b_.slot, b_.expert_weight, w_.shape.top_k};
  pending.norm = w_.vector(VectorKind::post_mlp_norm, layer);
  return pending;
}

}  // namespace ridge::cuda
