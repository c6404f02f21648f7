// What happens to tokens between the products of a step of many: embedding, norms, rotation and the
// cache, the choice of experts, the likeliest token. One small kernel each, as dependent launches.
#pragma once

#include <cuda_runtime.h>

#include "engine/cuda/layout/tiles.cuh"

namespace ridge::cuda {

// residual[token] = scale * table[tokens[token]], a table of bf16.
void embed(cudaStream_t stream, const int* tokens, int count, const uint16_t* table, int hidden,
           float scale, float* residual);

// What experts gave the tokens: a weighted sum of rows, in the order of the choices.
struct Chosen {
  const float* rows;    // [slot][hidden]; null: none
  const int* slot;      // [token][top_k]
  const float* weight;  // [token][top_k]
  int top_k;
};

// RMS norms of residual rows, to bf16 at wide_at(column, i, padded). What is still to be added to
// them, `added` or `chosen`, comes before that, normed by itself first where added_norm is given.
struct NormArgs {
  float* residual;     // [token][hidden]
  const int* rows;     // which of them; null: i
  const float* added;  // [token][hidden]; null: none
  Chosen chosen;
  const float* added_norm;  // null: none
  const float* norm;
  uint16_t* out;
  int hidden, count, padded;
  float eps;
};
void normalize(cudaStream_t stream, const NormArgs& args);

// Where the keys and values of this step go, one a token.
struct TokenAt {
  int position;
  int page, slot;  // its page and place there
};

// Tokens of a sequence that follow each other in one half of a page.
struct TurnRun {
  int row, count;
};

// Norms (optional) and turns q and k of some tokens; q to bf16 rows, k and v into the cache.
struct TurnArgs {
  const float* qkv;  // [token][(heads + 2 kv_heads) head_dim]
  int heads, kv_heads, head_dim;
  const TurnRun* runs;
  int count;
  const float* q_norm;  // [head_dim]; null: none
  const float* k_norm;
  float eps;
  const float* frequency;  // [head_dim / 2]
  float magnitude;
  const TokenAt* at;
  uint16_t* q;  // [token][heads * head_dim]
  uint8_t* kv;  // this layer's pages
};
void turn_and_cache(cudaStream_t stream, KvFormat format, const TurnArgs& args);

// Pages as bf16, one after the other.
struct UnpackArgs {
  const uint8_t* kv;  // this layer's pages
  const int* pages;
  const int* from;  // [i]: where in `pages` its number is
  int count, kv_heads, head_dim;
  uint16_t* to;  // [i][kv head][page_elements]
};
void unpack_pages(cudaStream_t stream, KvFormat format, const UnpackArgs& args);

// chosen[row] = the likeliest of logits[row][vocab], the lower of equals.
void choose_likeliest(cudaStream_t stream, const float* logits, int rows, int vocab,
                      unsigned long long* best, int* chosen);

}  // namespace ridge::cuda
