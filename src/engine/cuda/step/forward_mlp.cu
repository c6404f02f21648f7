// A layer's second block: the dense MLP, or experts as wgmma tiles or as skinny GEMMs.
#include "engine/cuda/step/forward.cuh"

namespace ridge::cuda {

Forward::PendingAdd Forward::mlp(cudaStream_t stream, int layer, const PendingAdd& pending) {
  const int index = w_.place_of(layer);
  timer_.mark(stream, "mlp_norm");
  rms_norm(stream, norm_args(VectorKind::mlp_norm, layer, pending));
  if (chains_mlp()) {
    FusedGemms gemms;
    gemms.add("gate_up", gemm_args(w_.gate_up, index, b_.x, gate_args()));
    gemms.add("down", gemm_args(w_.down, index, b_.activated, block_output_args()));
    launch(stream, gemms);
  } else {
    timer_.mark(stream, "gate_up");
    gemm(stream, w_.gate_up, index, b_.x, gate_args());
    timer_.mark(stream, "down");
    gemm(stream, w_.down, index, b_.activated, block_output_args());
  }
  return pending_block_output(VectorKind::post_mlp_norm, layer);
}

// Experts whose tokens fill tiles of the wgmma GEMM.
Forward::PendingAdd Forward::experts(cudaStream_t stream, int layer, const PendingAdd& pending) {
  const ModelShape& s = w_.shape;
  const int index = w_.place_of(layer);
  timer_.mark(stream, "mlp_norm");
  rms_norm(stream, norm_args(VectorKind::mlp_norm, layer, pending));
  shared_expert(stream, index);
  timer_.mark(stream, "router");
  LinearArgs router;
  router.rows = b_.router_logits, router.stride = s.experts;
  router.bias = w_.vector(VectorKind::router_bias, layer);
  gemm(stream, w_.router, index, b_.x, router);
  timer_.mark(stream, "route");
  route_tokens(stream, routing(layer));
  gather_tokens(stream, routing(layer), b_.x, step_.padded, b_.expert_x, step_.slots, s.hidden);
  timer_.mark(stream, "expert_gate_up");
  LinearArgs gate = expert_args(VectorKind::expert_gate_up_bias, layer);
  gate.epilogue = Epilogue::gate;
  gemm(stream, w_.expert_gate_up, index * s.experts_here(), b_.expert_x, gate);
  timer_.mark(stream, "expert_down");
  gemm(stream, w_.expert_down, index * s.experts_here(), b_.expert_activated,
       expert_args(VectorKind::expert_down_bias, layer));
  return pending_experts(layer);
}

// Experts in steps of few tokens: norm, router and routing in one kernel, then the MLPs in another.
Forward::PendingAdd Forward::skinny_experts(cudaStream_t stream, int layer,
                                            const PendingAdd& pending) {
  const ModelShape& s = w_.shape;
  const int index = w_.place_of(layer);
  const bool one_kernel =
      expert_mlp_ && !timer_.enabled();  // one per operator where they are timed
  // The blocks of that kernel choose the experts, each for itself.
  const bool routes_in_mlp = one_kernel && s.routing.is_plain() && s.shared_ffn == 0 &&
                             step_.tokens * s.experts <= kMaxRoutedLogits;
  timer_.mark(stream, "route");
  route_tokens_fused(stream, {norm_args(VectorKind::mlp_norm, layer, pending), w_.router.tiles,
                              index, w_.vector(VectorKind::router_bias, layer), routing(layer),
                              b_.arrived, routes_in_mlp});
  shared_expert(stream, index);
  const bool gathered = s.routing.scales_input;  // the GEMM gathers tokens as they are
  if (gathered) {
    timer_.mark(stream, "route");
    gather_tokens(stream, routing(layer), b_.x, step_.padded, b_.expert_x, step_.slots, s.hidden);
  }
  const uint16_t* const x = gathered ? b_.expert_x : b_.x;
  if (!one_kernel) {
    skinny_gemms(stream, layer, x, gathered);
    return pending_experts(layer);
  }
  ExpertMlpArgs mlp;
  mlp.gate_up = w_.expert_gate_up.tiles, mlp.down = w_.expert_down.tiles;
  mlp.matrix = index * s.experts;
  mlp.x = x, mlp.x_by_slot = gathered, mlp.x_padded = gathered ? step_.slots : step_.padded;
  mlp.slots = step_.slots;
  mlp.routing = routing(layer), mlp.routes = routes_in_mlp;
  mlp.activation = gemm_args(w_.expert_gate_up, 0, x, {}).activation;
  mlp.rows = b_.expert_rows, mlp.stride = s.hidden;
  expert_mlp_->launch(stream, mlp);
  return pending_experts(layer);
}

void Forward::skinny_gemms(cudaStream_t stream, int layer, const uint16_t* x, bool by_slot) {
  const int first_matrix = w_.place_of(layer) * w_.shape.experts;
  timer_.mark(stream, "expert_gate_up");
  SkinnyGemmArgs gate = {gemm_args(w_.expert_gate_up, first_matrix, x,
                                   expert_args(VectorKind::expert_gate_up_bias, layer))};
  gate.epilogue = Epilogue::gate, gate.source = b_.source;
  gate.gathers = !by_slot, gate.x_padded = step_.padded;
  skinny_gemm(stream, w_.expert_gate_up.format, sms_, gate);
  timer_.mark(stream, "expert_down");
  SkinnyGemmArgs down = {gemm_args(w_.expert_down, first_matrix, b_.expert_activated,
                                   expert_args(VectorKind::expert_down_bias, layer))};
  down.source = b_.source;
  skinny_gemm(stream, w_.expert_down.format, sms_, down);
}

// The MLP that every token passes beside its experts. Its result is added to the residual here: the
// norm that its input and the experts' came from has read the residual.
void Forward::shared_expert(cudaStream_t stream, int index) {
  if (w_.shape.shared_ffn == 0) return;
  timer_.mark(stream, "shared_gate_up");
  LinearArgs gate = gate_args();
  gate.out = b_.shared_activated;
  gemm(stream, w_.shared_gate_up, index, b_.x, gate);
  timer_.mark(stream, "shared_down");
  gemm(stream, w_.shared_down, index, b_.shared_activated, block_output_args());
}

}  // namespace ridge::cuda
