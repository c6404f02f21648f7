// Steps of any number of tokens, layer by layer: prompts, large and mixed batches, and the models
// that the decode kernel has no code for. step_path.cuh says which of the two ways a step takes:
//   fused_layer   attention, then one kernel for all GEMMs up to the next attention
//   per_operator  one kernel per operator; experts in two ways (uses_skinny_experts)
// The portable kernels (portable/) always run per_operator.
// Kernels are dependent launches (device.cuh): weights arrive while the kernel before still runs.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "engine/cuda/attention/attention.cuh"
#include "engine/cuda/attention/latent_attention.cuh"
#include "engine/cuda/device/kernel_set.h"
#include "engine/cuda/device/step_inputs.cuh"
#include "engine/cuda/elementwise/rms_norm.cuh"
#include "engine/cuda/gemm/linear.cuh"
#include "engine/cuda/gemm/skinny_gemm.cuh"
#include "engine/cuda/layout/device_weights.cuh"
#include "engine/cuda/moe/expert_mlp.cuh"
#include "engine/cuda/moe/experts.cuh"
#include "engine/cuda/portable/attention.cuh"
#include "engine/cuda/portable/gemm.cuh"
#include "engine/cuda/ranks/rank_exchange.h"
#include "engine/cuda/step/forward_buffers.cuh"
#include "engine/cuda/step/operator_timer.cuh"
#include "engine/cuda/step/step_path.cuh"
#include "engine/cuda/step/step_slice.h"

namespace ridge::cuda {

std::vector<int> distinct_windows(const ModelShape& shape);  // of its layers; 0: none, or chunks

class Forward {
 public:
  // `exchange`: of a part of a model. Throws Error for shapes it has no code for.
  Forward(const DeviceWeights& weights, KernelSet kernels, int sms, const ForwardBuffers& buffers,
          const AttentionBounds& bounds, RankExchange* exchange);

  static size_t input_bytes(const ModelShape& shape, KernelSet kernels, int sms,
                            const StepBounds& bounds, const AttentionBounds& attention);
  // Adds the step's inputs; the caller uploads them before queue(), which may be called repeatedly.
  // Logits are written from row `first_row` on.
  void prepare(StepInputs& inputs, const StepSlice* slices, int count, int first_row = 0);
  void queue(cudaStream_t stream);

  int* tokens() const { return step_.token_ids; }  // [token], of the step's inputs
  int logit_rows() const { return step_.logit_rows; }
  OperatorTimer& timer() { return timer_; }

 private:
  // What the block before computed and has not added to the residual: the next norm adds it first.
  struct PendingAdd {
    const float* rows = nullptr;  // [token][hidden]
    ExpertOutputs experts = {};   // or the outputs of experts, to be summed with their weights
    const float* norm = nullptr;  // post-norm of what is added; null: none
  };
  // One step's sizes, and its inputs on the device.
  struct Step {
    StepPath path = StepPath::per_operator;
    int tokens = 0, padded = 0, tile = 0;  // tile: tokens of a GEMM's tile
    bool fp8_products = false;
    bool fp8_attended = false;  // attention writes E4M3; otherwise the GEMM quantizes its outputs
    bool skinny_experts = false;
    int slot_tile = 0, slots = 0;
    int logit_rows = 0, first_row = 0;
    int* token_ids = nullptr;
    const KvSlot* kv_slots = nullptr;
    const int* pages = nullptr;
    const int* logit_tokens = nullptr;  // [logit row]: the token whose logits are wanted
    bool scales_queries = false;        // a temperature other than 1 (ModelShape)
    // GEMMs by head of latent attention: tokens of a tile and of a head, and their lists.
    int head_tile = 0, head_padded = 0;
    const int *head_tile_count = nullptr, *head_tile_matrix = nullptr, *head_source = nullptr;
  };

  struct FusedGemms {
    const char* names[kMaxChain];
    LinearArgs args[kMaxChain];
    int count = 0;
    void add(const char* name, const LinearArgs& gemm) {
      names[count] = name;
      args[count++] = gemm;
    }
  };

  // windows: the distinct ones of the layers it is for.
  std::unique_ptr<StepAttention> make_attention(std::vector<int> windows,
                                                const AttentionBounds& bounds) const;
  void fused_layers(cudaStream_t stream);
  // fused_layers() computes the logits too, where all tokens have some.
  bool fuses_head() const { return step_.logit_rows == step_.tokens; }
  void launch(cudaStream_t stream, const FusedGemms& gemms);
  PendingAdd separate_layers(cudaStream_t stream);
  // Between the ranks of a stage, and from one stage to the next.
  PendingAdd sum_of_ranks(cudaStream_t stream, const char* name, const PendingAdd& mine);
  void receive(cudaStream_t stream);
  void send(cudaStream_t stream, const PendingAdd& pending);
  size_t residual_floats() const { return size_t(step_.tokens) * size_t(w_.shape.hidden); }
  float* first_logits() const {
    return b_.logits + size_t(step_.first_row) * size_t(w_.shape.head_columns());
  }
  bool adds_block_later() const { return w_.shape.post_norms || w_.shape.partial_sums; }
  void logits(cudaStream_t stream, const PendingAdd& pending);

  void attention(cudaStream_t stream, int layer);
  // Whether gate_up and down of a dense layer are one kernel. Not for parts of a model: ranks may
  // share a device, and the blocks of such a kernel wait for each other.
  bool chains_mlp() const {
    return linear_ && !w_.shape.is_part() && !step_.fp8_products &&
           step_.tokens > kSkinnyDenseTokens && step_.tokens <= Linear::kMaxChainedTokens;
  }
  // Latent attention (forward_latent.cu).
  static size_t latent_input_bytes(const ModelShape& shape, int sms, const StepBounds& bounds,
                                   const AttentionBounds& attention);
  void prepare_latents(StepInputs& inputs);
  void latent_attention(cudaStream_t stream, int layer);
  void latent_queries(cudaStream_t stream, int layer);
  void head_gemm(cudaStream_t stream, const Matrices& m, int layer, const uint16_t* x, float* rows,
                 int stride);
  PendingAdd mlp(cudaStream_t stream, int layer, const PendingAdd& pending);
  PendingAdd experts(cudaStream_t stream, int layer, const PendingAdd& pending);
  PendingAdd skinny_experts(cudaStream_t stream, int layer, const PendingAdd& pending);
  void skinny_gemms(cudaStream_t stream, int layer, const uint16_t* x, bool by_slot);
  void shared_expert(cudaStream_t stream, int index);  // index: among the layers with experts

  // Arguments of operators.
  LinearArgs gemm_args(const Matrices& m, int index, const uint16_t* x, LinearArgs args) const;
  LinearArgs qkv_args(int layer) const;
  LinearArgs block_output_args() const;  // of out and down
  LinearArgs gate_args() const;
  LinearArgs head_args() const;
  LinearArgs expert_args(VectorKind bias, int layer) const;
  RmsNormArgs norm_args(VectorKind kind, int layer, const PendingAdd& pending) const;
  ExpertRouting routing(int layer) const;
  PendingAdd pending_block_output(VectorKind post_norm, int layer) const;
  PendingAdd pending_experts(int layer) const;
  // fp8 products: x is quantized, by the norm before or here.
  void fp8_gemm(cudaStream_t stream, const LinearArgs& args);
  // Queues one GEMM by the kernel for its number of tokens.
  void gemm(cudaStream_t stream, const Matrices& m, int index, const uint16_t* x, LinearArgs args);

  const DeviceWeights& w_;
  KernelSet kernels_;
  int sms_;
  ForwardBuffers b_;
  RankExchange* exchange_;
  // Hopper. linear_ has the dense format, second_linear_ bf16 for the router, or MXFP4 for experts.
  std::optional<Linear> linear_, second_linear_;
  std::optional<ExpertMlp> expert_mlp_;        // of skinny experts
  std::optional<PortableGemm> portable_gemm_;  // every other card
  std::unique_ptr<StepAttention> attention_;
  std::unique_ptr<StepAttention> chunked_attention_;  // of the chunked layers, where there are some
  std::optional<LatentAttention> latent_attention_;   // instead of both
  OperatorTimer timer_;
  Step step_;
  std::vector<AttentionSequence> sequences_, chunks_;  // the step's; kept for their memory
};

}  // namespace ridge::cuda
