// The decode kernel's finishing warp: what follows each product, and the meeting of the SMs.
#pragma once

#include "engine/cuda/decode/decode_shared.cuh"
#include "engine/cuda/scalar.cuh"

#ifdef RIDGE_HOPPER
namespace ridge::cuda {

template <WeightFormat kFormat, int kRows>
struct Finisher {
  const DecodeArgs& args;
  Shared& shared;
  int lane, which;  // of the finishers: each takes every kFinishers-th block
  PipelineState sum_place;
  uint32_t done_parity = 0;

  // Results of a block, token after token: lane's i-th is 32 i + lane of 16 x kRows, so that 16
  // lanes share a token.
  static constexpr int kResults = kBlockRows * kRows;
  static constexpr int kEach = (kResults + 31) / 32;
  unsigned long long best[kEach];

  __device__ int token_of(int each) const { return each * 2 + lane / 16; }
  __device__ bool is_result(int each) const {
    return (kRows > 1 || lane < 16) && token_of(each) < args.row_count;
  }

  __device__ void norm_scales(Kind kind) {
    const int blocks = args.hidden / kBlockRows;
#pragma unroll 1
    for (int n = 0; n < kRows; ++n) {
      float sum = 0;
      bool absent = n < args.row_count;
      while (absent) {
        sum = 0, absent = false;
#pragma unroll 8
        for (int i = lane; i < blocks; i += 32) {
          const float square = ptx::ld_relaxed(squares_of(args, kind, n) + i);
          absent |= __float_as_uint(square) == ~0u;
          sum += square;
        }
      }
      for (int across = 16; across; across /= 2) {
        sum += __shfl_xor_sync(0xffffffffu, sum, across);
      }
      if (lane == 0) {
        shared.fixed.scale[which][n] =
            rsqrtf(sum / static_cast<float>(args.hidden) + args.norm_eps);
      }
    }
    __syncwarp();
  }

  __device__ float sum_of(int at) const {
    const float* from = shared.sums + sum_place.stage * kConsumers * kResults + at;
    float sum = 0;
#pragma unroll
    for (int w = 0; w < kConsumers; ++w) sum += from[w * kResults];
    return sum;
  }

  // New residual of this row and token: keeps it, its product with the next norm's weight, and the
  // block's sum of squares.
  __device__ void keep(int each, int row, float value, float weight, Kind next) {
    const int token = token_of(each);
    float square = 0;
    if (is_result(each)) {
      activations_of(args, next)[activation_at(row, token, kRows)] = bf16_bits(value * weight);
      __stcg(args.residual + size_t(token) * args.hidden + row, value);
      square = value * value;
    }
    for (int across = 8; across; across /= 2) {
      square += __shfl_xor_sync(0xffffffffu, square, across);
    }
    if (is_result(each) && lane % 16 == 0) {
      squares_of(args, next, token)[row / kBlockRows] = square;
    }
  }

  __device__ void embed(const Op& op) {
    for (int block = op.first; block < op.items; block += gridDim.x) {
#pragma unroll
      for (int each = 0; each < kEach; ++each) {
        const int row = block * kBlockRows + lane % 16;
        float value = 0;
        if (is_result(each)) {
          const size_t token = shared.fixed.token[token_of(each)];
          value = bf16_value(args.embed[token * args.hidden + row]) * args.embed_scale;
        }
        keep(each, row, value, args.attn_norm[row], Kind::qkv);
      }
    }
  }

  // This lane's row scale in a block.
  __device__ float row_scale(const Op& op, int block) const {
    const Tiles& tiles = tiles_of(args, op.kind);
    const int layer = op.kind == Kind::head ? 0 : op.layer;
    if (!tiles.row_scale || block >= op.items) return 1;
    return tiles.row_scale[(size_t(layer) * tiles.blocks + block) * kBlockRows + lane % 16];
  }

  // Sums a block's partial results and does what follows.
  __device__ void finish(const Op& op, int block, float scale) {
    const Tiles& tiles = tiles_of(args, op.kind);
    const bool adds = op.kind == Kind::out || op.kind == Kind::down;
    const Kind next = op.kind == Kind::out         ? Kind::gate_up
                      : op.layer + 1 < args.layers ? Kind::qkv
                                                   : Kind::head;
    const int row = block * kBlockRows + lane % 16;
    // Before the wait, what can be read before it.
    float other = 0, weight = 0, old[kEach];
    if (adds) {
      const float* norm = next == Kind::gate_up ? args.mlp_norm + op.layer * args.hidden
                          : next == Kind::qkv   ? args.attn_norm + (op.layer + 1) * args.hidden
                                                : args.final_norm;
      weight = norm[row];
#pragma unroll
      for (int each = 0; each < kEach; ++each) {
        old[each] = is_result(each)
                        ? __ldcg(args.residual + size_t(token_of(each)) * args.hidden + row)
                        : 0.0f;
      }
    } else if (op.kind == Kind::qkv && args.qkv_bias) {
      other = args.qkv_bias[op.layer * tiles.blocks * kBlockRows + row];
    }
    ptx::mbarrier_wait(&shared.fixed.sum_full[sum_place.stage], sum_place.phase);
    float sum[kEach];
#pragma unroll
    for (int each = 0; each < kEach; ++each) {
      const int at = each * 32 + lane;
      sum[each] = at < kResults ? sum_of(at) * scale : 0.0f;
    }
    __syncwarp();
    if (lane == 0) ptx::mbarrier_arrive(&shared.fixed.sum_free[sum_place.stage]);
    sum_place.advance(kSums);

#pragma unroll
    for (int each = 0; each < kEach; ++each) {
      const int token = token_of(each);
      const float normed = shared.fixed.scale[which][token < kRows ? token : 0];
      if (adds) {
        keep(each, row, old[each] + sum[each], weight, next);
      } else if (op.kind == Kind::gate_up) {
        const float value = sum[each] * normed;
        const float up = __shfl_down_sync(0xffffffffu, value, 8);
        const float gate = activate(args.activation, value);
        if (is_result(each) && lane % 16 < 8) {
          args.mlp_hidden[activation_at(block * 8 + lane % 8, token, kRows)] = bf16_bits(gate * up);
        }
      } else if (op.kind == Kind::qkv) {
        const int columns = tiles.blocks * kBlockRows;
        if (is_result(each)) {
          __stcg(args.qkv_out + size_t(token) * columns + row, sum[each] * normed + other);
        }
      } else if (is_result(each) && row < args.vocab) {
        float logit = sum[each] * normed;
        if (args.logit_softcap > 0) {
          logit = args.logit_softcap * tanhf(logit / args.logit_softcap);
        }
        args.logits[size_t(token) * args.vocab + row] = logit;
        best[each] = max(best[each], logit_key(logit, row));
      }
    }
  }

  __device__ static unsigned long long best_across(unsigned long long key, int lanes) {
    for (int across = lanes / 2; across; across /= 2) {
      key = max(key, __shfl_xor_sync(0xffffffffu, key, across));
    }
    return key;
  }

  __device__ void matrix(const Op& op) {
    if (op.first < op.items && op.kind != Kind::out && op.kind != Kind::down) {
      norm_scales(op.kind);
    }
    for (int each = 0; each < kEach; ++each) best[each] = 0;
    // The buffer of partial results says whose turn it is.
    int item = op.first;
    const int stride = gridDim.x * kFinishers;
    for (; item < op.items && sum_place.stage != which; item += gridDim.x) sum_place.advance(kSums);
    float next = row_scale(op, item);
    for (; item < op.items; item += stride) {
      const float scale = next;
      next = row_scale(op, item + stride);
      finish(op, item, scale);
      for (int other = item + gridDim.x; other < min(op.items, item + stride); other += gridDim.x) {
        sum_place.advance(kSums);
      }
    }
    if (op.kind == Kind::head) {
#pragma unroll
      for (int each = 0; each < kEach; ++each) {
        const unsigned long long key = best_across(best[each], 16);
        if (is_result(each) && lane % 16 == 0) {
          args.argmax_keys[(size_t(token_of(each)) * gridDim.x + blockIdx.x) * kFinishers + which] =
              key;
        }
      }
    }
  }

  // The step's tokens, from what every SM found likeliest.
  __device__ void choose(int step) {
    for (int n = 0; n < args.row_count; ++n) {
      unsigned long long key = 0;
      const int count = gridDim.x * kFinishers;
      for (int i = lane; i < count; i += 32) {
        key = max(key, __ldcg(args.argmax_keys + size_t(n) * count + i));
      }
      key = best_across(key, 32);
      const int token = key_token(key);
      if (lane == 0) {
        shared.fixed.token[n] = token;
        if (blockIdx.x == 0) args.next_tokens[step * args.row_count + n] = token;
      }
    }
    __syncwarp();
  }

  // Makes what `kind` has read absent again, this SM's share. When all SMs have finished it, and
  // two operators before the one that writes there next.
  __device__ void forget(Kind kind) {
    const int columns = kind == Kind::out    ? args.heads * args.head_dim
                        : kind == Kind::down ? args.ffn
                                             : args.hidden;
    static_assert(kNotReady == 0xffff);
    uint4* at = reinterpret_cast<uint4*>(activations_of(args, kind));
    for (int i = blockIdx.x * 32 + lane; i < columns * kRows / 8; i += gridDim.x * 32) {
      __stcg(at + i, uint4{~0u, ~0u, ~0u, ~0u});
    }
    if (kind == Kind::out || kind == Kind::down) return;
    for (int n = 0; n < args.row_count; ++n) {
      for (int i = blockIdx.x * 32 + lane; i < args.hidden / kBlockRows; i += gridDim.x * 32) {
        __stcg(squares_of(args, kind, n) + i, __uint_as_float(~0u));
      }
    }
  }

  // Until all SMs have finished so many operators; the first finishing warp. An SM without a part
  // in an operator arrives there while others have not finished the one before: so those are
  // counted apart, and nobody arrives at the one after before all have at this one.
  __device__ void meet_all(int operators) {
    if (lane == 0 && shared.fixed.met < operators) {
      const unsigned last = operators - 1;
      grid_barrier_wait(args.grid_barrier + last % 2,
                        args.grid_barrier_base[last % 2] + (last / 2 + 1) * gridDim.x);
      *const_cast<volatile unsigned*>(&shared.fixed.met) = operators;
    }
    __syncwarp();
  }

  // Activations and squares are waited for as data; all else is old. So results of an operator are
  // written when all SMs have finished the last but one, and attention and the end alone wait for
  // the one before.
  __device__ void run() {
    for_each_op(args, [&](const Op& op) {
      const bool needs_last = op.kind == Kind::attention || op.kind == Kind::embed;
      const int before = max(0, needs_last ? op.index : op.index - 1);
      if (which == 0) meet_all(before);
      wait_met(shared.fixed, before, lane);
      if (which == kFinishers - 1) {
        if (op.kind == Kind::out) forget(Kind::qkv);
        if (op.kind == Kind::down) forget(Kind::out);
        if (op.kind == Kind::qkv || op.kind == Kind::head) forget(Kind::gate_up);
        if (op.kind == Kind::attention) forget(Kind::down);
      }
      if (op.kind == Kind::embed) {
        if (which == 0) embed(op);
      } else if (op.kind == Kind::attention) {
        if (which == 0 && op.first < op.items) {
          ptx::mbarrier_wait(&shared.fixed.attention_done, done_parity);
          done_parity ^= 1;
        }
      } else {
        matrix(op);
      }
      ptx::bar_sync<3>(kFinishers * 32);
      if (which > 0) return;
      if (lane == 0) {
        stamp(args, op, 2);
        grid_barrier_arrive(args.grid_barrier + op.index % 2);
      }
      if (op.kind == Kind::head) {
        meet_all(op.index + 1);
        forget(Kind::down);
        forget(Kind::head);
        choose(op.step);
      }
    });
  }
};

}  // namespace ridge::cuda
#endif
