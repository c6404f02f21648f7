// Inputs and outputs of attention in one layer, for prefill and for decode.
#pragma once

#include <cuda_runtime.h>

#include "engine/cuda/elementwise/rope.cuh"
#include "engine/cuda/layout/tiles.cuh"

namespace ridge::cuda {

// The tokens of one sequence in a step: rows [row, row + rows) at positions past, past + 1, ...
struct AttentionSequence {
  int row, rows, past;
  int pages;      // index of its first page number in AttentionArgs::pages
  int first = 0;  // added to positions for RoPE: of a chunk, the position of its first token
};

struct AttentionArgs {
  int heads, kv_heads, head_dim;  // head_dim: 64, 128 or 256
  float scale;                    // of q . k
  float softcap;                  // c tanh(s / c); 0: none
  int window;                     // keys a token attends to, itself included; 0: all
  const float* qkv;               // [token][(heads + 2 kv_heads) head_dim]
  const float* q_norm;            // [head_dim]; null: none
  const float* k_norm;            // [head_dim]; null: none
  float eps;
  const float* frequency;  // [head_dim / 2]
  float magnitude;
  const KvSlot* kv_slots;  // [token]
  uint16_t* q;             // [token][heads * head_dim] bf16: scratch for prefill queries
  // This layer's cache: [page][kv head][page_bytes]. Slots without a token must hold finite
  // numbers.
  uint8_t* kv;
  const int* pages;  // read before the previous kernel has ended: no kernel may write them
  uint16_t* out;     // bf16 at wide_at(head * head_dim + d, token, out_tokens)
  int out_tokens;    // a multiple of 8
  const float* sinks = nullptr;  // [heads]: a logit that joins the softmax without a value
  // `out` is E4M3 at fp8_group_at() instead, with a scale for min(128, head_dim) columns. Only
  // where the plan can_write_fp8().
  bool fp8_out = false;
};

// Division by a constant of the launch: n / by for n < 2^32 / by, by one multiplication.
struct Divisor {
  int by;
  unsigned reciprocal;  // 2^32 / by, rounded up; 0 for by = 1
  Divisor(int number) : by(number), reciprocal(number > 1 ? 0xffffffffu / number + 1 : 0) {}
  __device__ int quotient(int n) const {
    return by == 1 ? n : int(__umulhi(unsigned(n), reciprocal));
  }
  __device__ int remainder(int n) const { return n - quotient(n) * by; }
};

}  // namespace ridge::cuda
