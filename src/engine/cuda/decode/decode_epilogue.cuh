// Epilogue warps of the decode kernel: reduce the split-K partial sums of a 16-row block and do
// what follows the GEMM (norm scale, bias, residual, gate, logits, argmax). Epilogue warp 0 also
// takes part in the grid barrier; with kBarrierAhead the warp that has the time.
//
// Norms need no pass of their own. Who writes the residual also writes its product with the next
// norm's weight (the next GEMM's input) and each block's sum of squares. The norm's scale
// multiplies the result of the next GEMM. Norms after out and down (Gemma): decode_post_norm.cuh.
#pragma once

#include "engine/cuda/decode/decode_post_norm.cuh"
#include "engine/cuda/decode/decode_router.cuh"
#include "engine/cuda/decode/decode_sync.cuh"
#include "engine/cuda/device/scalar.cuh"

#ifdef __CUDA_ARCH__
namespace ridge::cuda {

template <WeightFormat kFormat, int kRows, DecodeVariant kVariant, KernelSet kKernels>
struct EpilogueWarp {
  const DecodeArgs& args;
  DecodeShared& shared;
  int lane, warp;  // warp: 0 .. kEpilogueWarps - 1; each takes every third block of the SM
  PipelineState partials;
  uint32_t attention_phase = 0;
  Choice choice = {};          // lane k: the row's k-th expert in this layer
  unsigned choice_tag = ~0u;   // of which layer (route_tag)
  unsigned blocks_summed = 0;  // of down, over its choices

  static constexpr bool kExperts = kVariant == DecodeVariant::experts;
  static constexpr bool kGemma = kVariant == DecodeVariant::gemma;
  // Nothing but the reduction is between the partial sums and the store of the result, for which
  // all other SMs wait.
  static constexpr bool kStoresFirst = shortens_exchange(kFormat, kVariant, kRows);
  // int4, whose operators are short: the grid barrier is passed one operator ahead (pass_barrier).
  // It took 1.1 % less time, fp8 1 % more.
  static constexpr bool kBarrierAhead =
      kStoresFirst && kFormat == WeightFormat::int4 && kKernels == KernelSet::hopper;
  // Results of a block, row after row of the batch: the lane's result `i` is element 32 i + lane of
  // [kRows][16], so 16 lanes hold the 16 outputs of one batch row.
  static constexpr float kActivationScale = activation_scale(kFormat);
  static constexpr int kResults = kBlockRows * kRows;
  static constexpr int kPerLane = (kResults + 31) / 32;
  unsigned long long best[kPerLane];  // argmax keys of this lane

  __device__ int row_of(int i) const { return i * 2 + lane / 16; }
  __device__ bool is_result(int i) const {
    return (kRows > 1 || lane < 16) && row_of(i) < args.row_count;
  }

  // rsqrt(mean(x^2) + eps) of each row's residual, from the blocks' sums of squares. The loads of
  // all rows are in flight at once: row after row, the round trips to L2 took 10 us at 8 rows.
  __device__ void compute_norm_scales(OpKind kind) {
    if constexpr (kGemma) return compute_both_scales(kind);
    constexpr int kInFlight = kRows == 1 ? 8 : 4;  // of a row and lane
    constexpr int kCopies = sum_copies(kFormat, kVariant, kRows);
    const int blocks = args.hidden / kBlockRows;
    float sum[kRows];
    bool again = true;
    while (again) {
      again = false;
#pragma unroll
      for (float& of_row : sum) of_row = 0;
#pragma unroll 1
      for (int first = lane; first < blocks; first += 32 * kInFlight) {
        float square[kInFlight][kRows];
#pragma unroll
        for (int i = 0; i < kInFlight; ++i) {
#pragma unroll
          for (int n = 0; n < kRows; ++n) {
            const bool valid = first + 32 * i < blocks && n < args.row_count;
            const int from = kCopies > 1 ? int(blockIdx.x % kCopies) : n;
            const float* const sums = sums_of_squares_of(args, kind, from);
            square[i][n] = valid ? ptx::ld_relaxed(sums + first + 32 * i) : 0.0f;
          }
        }
#pragma unroll
        for (int i = 0; i < kInFlight; ++i) {
#pragma unroll
          for (int n = 0; n < kRows; ++n) {
            again |= __float_as_uint(square[i][n]) == kNotReadyFloat;
            sum[n] += square[i][n];
          }
        }
      }
    }
#pragma unroll
    for (int n = 0; n < kRows; ++n) {
      for (int across = 16; across; across /= 2) {
        sum[n] += __shfl_xor_sync(0xffffffffu, sum[n], across);
      }
      if (lane == 0) {
        shared.control.norm_scale[warp][n] =
            rsqrtf(sum[n] / static_cast<float>(args.hidden) + args.norm_eps);
      }
    }
    __syncwarp();
  }

  // The same where a norm may follow the block before, whose scale is computed too.
  __device__ void compute_both_scales(OpKind kind) {
    float sum[kRows][4];
    add_block_sums<kRows>(args, kind, lane, sum);
#pragma unroll
    for (int n = 0; n < kRows; ++n) {
      const NormScales scales = norm_scales(args, sum[n]);
      if (lane > 0) continue;
      shared.control.norm_scale[warp][n] = scales.input;
      shared.control.added_scale[warp][n] = scales.added;
    }
    __syncwarp();
  }
  __device__ float added_scale(int i) const {
    return shared.control.added_scale[warp][row_of(i) < kRows ? row_of(i) : 0];
  }

  // The sum over the math warps of element `at` of [column][16].
  __device__ float reduce_partials(int at) const {
    constexpr int kOfWarp = kBlockRows * input_columns(kVariant, kRows);
    const float* from = shared.partials + partials.stage * kMathWarps * kOfWarp + at;
    float sum = 0;
#pragma unroll
    for (int w = 0; w < kMathWarps; ++w) sum += from[w * kOfWarp];
    return sum;
  }

  // Writes the new residual, the input of GEMM `next`, and the block's sum of squares.
  __device__ void store_residual(int i, int column, float value, float weight, OpKind next) {
    const int row = row_of(i);
    float square = 0;
    if (is_result(i)) {
      store_input<kFormat, kRows, kVariant>(
          args, next, activations_of(args, next) + activation_at(column, row, kRows),
          bf16_bits(value * weight * kActivationScale));
      __stcg(args.residual + size_t(row) * args.hidden + column, value);
      square = value * value;
    }
    for (int across = 8; across; across /= 2) {
      square += __shfl_xor_sync(0xffffffffu, square, across);
    }
    constexpr int kCopies = sum_copies(kFormat, kVariant, kRows);
    if (kCopies > 1 ? lane < kCopies : is_result(i) && lane % 16 == 0) {
      sums_of_squares_of(args, next, kCopies > 1 ? lane : row)[column / kBlockRows] = square;
    }
  }

  // gemma: writes the residual before this block's output, and what the output adds to it, both as
  // columns of the input of `next` too, and the block's sums.
  __device__ void store_block_output(int i, int column, float h, float added, float y, float weight,
                                     OpKind next) {
    const int row = row_of(i), from = row * args.hidden + column;
    if (is_result(i)) {
      constexpr int kColumns = input_columns(kVariant, kRows);
      uint16_t* const to = activations_of(args, next);
      to[activation_at(column, row, kColumns)] = bf16_bits(h * weight * kActivationScale);
      to[activation_at(column, kRows + row, kColumns)] =
          bf16_bits(added * weight * kActivationScale);
      __stcg(args.residual + from, h);
      __stcg(args.block_output + from, added);
    } else {
      h = added = y = 0;
    }
    publish_block_sums(block_sums_of(args, next, row) + column / kBlockRows, is_result(i), h, added,
                       y, lane);
  }

  __device__ void embed(const DecodeOp& op) {
    for (int block = op.first; block < op.items; block += gridDim.x) {
#pragma unroll
      for (int i = 0; i < kPerLane; ++i) {
        const int column = block * kBlockRows + lane % 16;
        float value = 0;
        if (is_result(i)) {
          const size_t token = shared.control.token[row_of(i)];
          value = bf16_value(args.embed[token * args.hidden + column]) * args.embed_scale;
        }
        if constexpr (kGemma) {
          store_block_output(i, column, value, 0, 0, args.attn_norm[column], OpKind::qkv);
        } else {
          store_residual(i, column, value, args.attn_norm[column], OpKind::qkv);
        }
      }
    }
  }

  // fp8, int8: the scale of this lane's output in a block.
  __device__ float weight_scale(const DecodeOp& op, int block) const {
    const Tiles& tiles = tiles_of(args, op.kind);
    if (!tiles.row_scale || block >= op.items) return 1;
    int matrix = op.kind == OpKind::head ? 0 : op.layer;
    if (kExperts && op.kind == OpKind::gate_up) {
      matrix = matrix * args.experts + expert_of(block / tiles.blocks);
      block %= tiles.blocks;
    }
    return kActivationScale * row_scale(tiles, matrix, block);
  }
  __device__ float row_scale(const Tiles& tiles, int matrix, int block) const {
    return tiles.row_scale[(size_t(matrix) * tiles.blocks + block) * kBlockRows + lane % 16];
  }
  __device__ int expert_of(int k) const { return __shfl_sync(0xffffffffu, choice.expert, k); }

  __device__ void store_gate_up(int i, int block, float value) {
    const float up = __shfl_down_sync(0xffffffffu, value, 8);
    const float gate = activate(args.activation, value);
    if (is_result(i) && lane % 16 < 8) {
      uint16_t* to = args.mlp_hidden;
      if (kExperts) to += block / args.gate_up.blocks * args.choice_stride;
      if (kExperts) block %= args.gate_up.blocks;
      to += activation_at(block * 8 + lane % 8, row_of(i), kRows);
      store_input<kFormat, kRows, kVariant>(args, OpKind::down, to,
                                            bf16_bits(gate * up * kActivationScale));
    }
  }

  __device__ void store_logit(int i, int token, float logit) {
    if (args.logit_softcap > 0) {
      logit = args.logit_softcap * tanhf(logit / args.logit_softcap);
    }
    args.logits[size_t(row_of(i)) * args.vocab + token] = logit;
    best[i] = max(best[i], logit_key(logit, token));
  }

  __device__ const float* post_norm(OpKind kind) const {
    return kind == OpKind::out ? args.post_attn_norm : args.post_mlp_norm;
  }

  // Reduces the partial sums of a block and stores what the operator makes of them.
  __device__ void finish_block(const DecodeOp& op, int block, float scale) {
    const Tiles& tiles = tiles_of(args, op.kind);
    const bool adds_residual = !follows_norm(op.kind);
    const OpKind next = op.kind == OpKind::out       ? OpKind::gate_up
                        : op.layer + 1 < args.layers ? OpKind::qkv
                                                     : OpKind::head;
    const int column = block * kBlockRows + lane % 16;
    // Loads that do not depend on the partial sums come before the wait for them.
    float bias = 0, weight = 0, post_weight = 0, residual[kPerLane];
    const bool norms_output = kGemma && adds_residual && post_norm(op.kind);
    if (norms_output) post_weight = post_norm(op.kind)[op.layer * args.hidden + column];
    if (adds_residual) {
      const float* norm = next == OpKind::gate_up ? args.mlp_norm + op.layer * args.hidden
                          : next == OpKind::qkv   ? args.attn_norm + (op.layer + 1) * args.hidden
                                                  : args.final_norm;
      weight = norm[column];
#pragma unroll
      for (int i = 0; i < kPerLane; ++i) {
        const size_t from = size_t(row_of(i)) * args.hidden + column;
        residual[i] = is_result(i) ? __ldcg(args.residual + from) : 0.0f;
        if (kGemma && is_result(i)) {
          residual[i] += added_scale(i) * __ldcg(args.block_output + from);
        }
      }
    } else if (op.kind == OpKind::qkv && args.qkv_bias) {
      bias = args.qkv_bias[op.layer * tiles.blocks * kBlockRows + column];
    }
    float norm_scale[kPerLane];
    const auto load_norm_scales = [&] {
#pragma unroll
      for (int i = 0; i < kPerLane; ++i) {
        norm_scale[i] = shared.control.norm_scale[warp][row_of(i) < kRows ? row_of(i) : 0];
      }
    };
    if (kStoresFirst) load_norm_scales();
    wait_partials(shared, partials);
    float sum[kPerLane];
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      const int at = i * 32 + lane;
      sum[i] = at < kResults ? reduce_partials(at) * scale : 0.0f;
      if (kGemma && !adds_residual && at < kResults) {
        sum[i] += added_scale(i) * reduce_partials(kResults + at) * scale;
      }
    }
    if (!kStoresFirst) {
      release_partials(shared, partials, lane);
      load_norm_scales();
    }

#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      const int row = row_of(i);
      if (kGemma && adds_residual) {
        const float y = norms_output ? sum[i] : 0.0f;
        store_block_output(i, column, residual[i] + (norms_output ? 0.0f : sum[i]), post_weight * y,
                           y, weight, next);
      } else if (adds_residual) {
        store_residual(i, column, residual[i] + sum[i], weight, next);
      } else if (op.kind == OpKind::gate_up) {
        store_gate_up(i, block, sum[i] * norm_scale[i]);
      } else if (op.kind == OpKind::qkv) {
        const int columns = tiles.blocks * kBlockRows;
        if (is_result(i)) {
          __stcg(args.qkv_out + size_t(row) * columns + column, sum[i] * norm_scale[i] + bias);
        }
      } else if (is_result(i) && column < args.vocab) {
        store_logit(i, column, sum[i] * norm_scale[i]);
      }
    }
    if (kStoresFirst) release_partials(shared, partials, lane);
  }

  // The row's choice, as every SM computes it.
  __device__ void choose(const DecodeOp& op) {
    const unsigned tag = route_tag(args, op);
    if (op.first >= op.items || tag == choice_tag) return;
    compute_norm_scales(OpKind::gate_up);
    const float scale = shared.control.norm_scale[warp][0] / kActivationScale;
    choice = choose_experts(args, tag, scale, lane);
    choice_tag = tag;
  }

  __device__ void prefetch_router_rows(const DecodeOp& op) {
    // The deal of experts follows that of out's blocks.
    int expert = op.first - args.block_remainder[int(OpKind::out)];
    if (expert < 0) expert += gridDim.x;
    for (; expert < args.experts; expert += gridDim.x) {
      prefetch_router(args, op.layer, expert, lane);
    }
  }

  // The router's sums of this SM's experts, one warp each.
  __device__ void route(const DecodeOp& op) {
    int turn = 0;
    for (int expert = op.first; expert < op.items; expert += gridDim.x, ++turn) {
      if (turn % kEpilogueWarps != warp) continue;
      const float sum = router_sum(args, op.layer, expert, lane);
      if (lane == 0) store_tagged(args.router_sums + expert, {sum, route_tag(args, op)});
    }
  }

  // down of experts: each warp takes the choices whose partial sums are in its buffer. The warp
  // that takes a block's last choice adds them up, in the order of the choices.
  __device__ void run_down_of_choices(const DecodeOp& op) {
    const Tiles& tiles = args.down;
    const bool last_layer = op.layer + 1 == args.layers;
    const float* norm =
        last_layer ? args.final_norm : args.attn_norm + (op.layer + 1) * args.hidden;
    choose(op);
    for (int block = op.first; block < op.items; block += gridDim.x, ++blocks_summed) {
      const int column = block * kBlockRows + lane % 16;
      float(&sums)[kMaxChoices][kBlockRows] = shared.control.choice_sums[blocks_summed % 2];
      const float weight = norm[column], residual = __ldcg(args.residual + column);
      bool takes_last = false;
      for (int k = 0; k < args.top_k; ++k) {
        takes_last = partials.stage == warp;
        const int expert = expert_of(k);
        float scale = kActivationScale * __shfl_sync(0xffffffffu, choice.weight, k);
        if (!takes_last) {
          partials.advance(kPartialBuffers);
          continue;
        }
        if (tiles.row_scale) scale *= row_scale(tiles, op.layer * args.experts + expert, block);
        wait_partials(shared, partials);
        if (lane < kBlockRows) sums[k][lane] = reduce_partials(lane) * scale;
        release_partials(shared, partials, lane);
      }
      ptx::bar_sync<kEpilogueBarrier>(kEpilogueWarps * 32);
      if (!takes_last) continue;
      float value = residual;
      for (int k = 0; k < args.top_k; ++k) value += sums[k][lane % 16];
      store_residual(0, column, value, weight, last_layer ? OpKind::head : OpKind::qkv);
    }
  }

  __device__ static unsigned long long max_across(unsigned long long key, int lanes) {
    for (int across = lanes / 2; across; across /= 2) {
      key = max(key, __shfl_xor_sync(0xffffffffu, key, across));
    }
    return key;
  }

  // This warp's blocks of a GEMM: those whose partial sums are in its buffer.
  __device__ void run_gemm(const DecodeOp& op) {
    if ((kGemma || op.first < op.items) && follows_norm(op.kind)) {
      compute_norm_scales(op.kind);
    }
    for (int i = 0; i < kPerLane; ++i) best[i] = 0;
    int item = op.first;
    const int stride = gridDim.x * kEpilogueWarps;
    for (; item < op.items && partials.stage != warp; item += gridDim.x) {
      partials.advance(kPartialBuffers);
    }
    float next = weight_scale(op, item);
    for (; item < op.items; item += stride) {
      const float scale = next;
      next = weight_scale(op, item + stride);
      finish_block(op, item, scale);
      for (int other = item + gridDim.x; other < min(op.items, item + stride); other += gridDim.x) {
        partials.advance(kPartialBuffers);
      }
    }
    if (op.kind == OpKind::head) {
#pragma unroll
      for (int i = 0; i < kPerLane; ++i) {
        const unsigned long long key = max_across(best[i], 16);
        if (is_result(i) && lane % 16 == 0) {
          args.argmax_keys[(size_t(row_of(i)) * gridDim.x + blockIdx.x) * kEpilogueWarps + warp] =
              key;
        }
      }
    }
  }

  // The step's tokens: each SM reduces the argmax keys of all epilogue warps of the grid.
  __device__ void argmax(int step) {
    for (int n = 0; n < args.row_count; ++n) {
      unsigned long long key = 0;
      const int count = gridDim.x * kEpilogueWarps;
      for (int i = lane; i < count; i += 32) {
        key = max(key, __ldcg(args.argmax_keys + size_t(n) * count + i));
      }
      key = max_across(key, 32);
      const int token = key_token(key);
      if (lane == 0) {
        shared.control.token[n] = token;
        if (blockIdx.x == 0) args.next_tokens[step * args.row_count + n] = token;
      }
    }
    __syncwarp();
  }

  // kBarrierAhead: the warp that takes part in the grid barrier. It has the SM's third block of the
  // operator, or none where there are fewer.
  __device__ int barrier_warp(const DecodeOp& op) const {
    const int grid = gridDim.x;
    const int at = partials.stage + (op.first < op.items) + (op.first + grid < op.items);
    return at < kEpilogueWarps ? at : at - kEpilogueWarps;
  }
  // Arrives for the operator before `op`, and waits for it, which the next operator demands
  // (invariant 1): so no warp waits for the barrier when it has results to write.
  __device__ void pass_barrier(const DecodeOp& op) {
    if (op.kind != OpKind::embed && lane == 0) {
      grid_barrier_arrive(args.grid_barrier + (op.index - 1) % 2);
    }
    wait_grid(args, shared.control, op.index, lane);
  }

  __device__ void run() {
    for_each_op<kVariant>(args, [&](const DecodeOp& op) {
      const int before = ops_before_epilogue(op);
      if constexpr (kBarrierAhead) {
        if (warp == barrier_warp(op)) pass_barrier(op);
      } else if (warp == 0) {
        wait_grid(args, shared.control, before, lane);
      }
      wait_ops_completed(shared.control, before, lane);
      if (warp == kEpilogueWarps - 1) {
        reset_completed_inputs<kFormat, kRows, kVariant>(args, op, lane);
      }
      if (op.kind == OpKind::embed) {
        if (warp == 0) embed(op);
      } else if (op.kind == OpKind::attention) {
        if (warp == 0 && op.first < op.items) {
          ptx::mbarrier_wait(&shared.control.attention_done, attention_phase);
          attention_phase ^= 1;
        }
      } else if (kExperts && op.kind == OpKind::route) {
        route(op);
      } else if (kExperts && op.kind == OpKind::down) {
        run_down_of_choices(op);
      } else {
        if (kExperts && op.kind == OpKind::gate_up) choose(op);
        if (kExperts && op.kind == OpKind::out && warp == 1) prefetch_router_rows(op);
        run_gemm(op);
      }
      ptx::bar_sync<kEpilogueBarrier>(kEpilogueWarps * 32);
      if (warp > 0) return;
      if (lane == 0) {
        stamp(args, op, 2);
        if (!kBarrierAhead || op.kind == OpKind::head) {
          grid_barrier_arrive(args.grid_barrier + op.index % 2);
        }
      }
      if (op.kind == OpKind::head) {
        wait_grid(args, shared.control, op.index + 1, lane);
        reset_inputs<kFormat, kRows, kVariant>(args, OpKind::down, lane);
        reset_inputs<kFormat, kRows, kVariant>(args, OpKind::head, lane);
        argmax(op.step);
      }
    });
  }
};

}  // namespace ridge::cuda
#endif
