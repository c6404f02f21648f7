// One kernel that decodes: a step for up to 8 rows (tokens), all layers, weights read once.
//
// One block an SM stays for the whole launch. Its warps have roles:
//   8 multiply   take weights from the ring, split K among them; also do attention
//   1 fetches    keeps the ring full with this SM's weights and KV pages of the whole step, in the
//                order of use, across operators and layers: it never waits for another SM
//   3 finish     sum the 8 partial results of a block of 16 rows and do what follows the product;
//                the first meets the other SMs between operators
// Blocks of 16 rows are dealt to the SMs round robin, going on across operators.
#pragma once

#include <cuda_runtime.h>

#include "engine/cuda/layout/tiles.cuh"
#include "engine/cuda/scalar.cuh"

namespace ridge::cuda {

constexpr int kMaxRows = 8;  // tokens of a step
constexpr int kMaxLayers = 256;
constexpr uint16_t kAbsent = 0xffff;  // as bf16 a NaN that no conversion makes

// One token of a step. Several of one sequence follow each other, lie in one page, and see each
// other: a token's sums are then the same however its sequence was cut into steps.
struct Row {
  int past;   // tokens of its sequence in the cache before this step
  int first;  // the step's first row of its sequence; its position: past + (this - first)
  int pages;  // where its page numbers begin
};

struct DecodeArgs {
  int layers, hidden, heads, kv_heads, head_dim, ffn, vocab;
  Activation activation;
  float norm_eps, embed_scale, query_scale, attention_softcap, logit_softcap;
  int window[kMaxLayers];  // 0: all

  const uint16_t* embed;          // [vocab][hidden] bf16
  Tiles qkv, out, gate_up, down;  // gate_up: 8 rows of gate, then the same 8 of up, in a block
  Tiles head;
  const float* attn_norm;   // [layer][hidden]
  const float* mlp_norm;    // [layer][hidden]
  const float* final_norm;  // [hidden]
  const float* q_norm;      // [layer][head_dim]; null: none
  const float* k_norm;
  const float* qkv_bias;        // [layer][qkv rows]; null: none
  const float* rope_frequency;  // [head_dim / 2]
  float rope_magnitude;

  KvFormat kv_format;
  uint8_t* kv;      // [layer][page][kv head][page_bytes]
  int cache_pages;  // of a layer
  const Row* rows;  // [row_count]
  const int* pages;
  const int* tokens;  // [row_count], of the first step
  int row_count;
  int most_position;  // over the rows
  int steps;          // > 1: each row goes on with the likeliest token; rows of different sequences

  float* residual;  // [row][hidden]
  // Activations as B. What has not been written yet is kAbsent, for every operator that reads them
  // anew: readers wait for the data itself.
  uint16_t* normed;     // [3][hidden]: residual times the next norm's weight, not yet its scale
  int normed_stride;    // the three: for qkv, gate_up, head
  float* squares;       // [3][kMaxRows][hidden / 16]: of the residual, by block; absent: all ones
  float* qkv_rows;      // [row][qkv rows]
  uint16_t* attended;   // [heads * head_dim] as B
  uint16_t* activated;  // [ffn] as B
  float* partial;       // [row][kv head][split][group * (head_dim + 2)]
  unsigned* arrived;    // [row][kv head], zero between launches
  float* logits;        // [row][vocab]
  unsigned long long* best;  // [row][SM][3]
  int* chosen;               // [step][row], the likeliest tokens
  unsigned* meeting;         // [2], the grid's counters: of even and of odd operators
  unsigned met[2];           // their values before this launch
  long long* stamps;         // [op][3] clocks of SM 0, null: none; see stamp() in decode_shared.cuh

  // Set by launch_decode.
  int ring_slots, in_flight, x_bytes, most_splits;
  int remainder[7];  // blocks of an operator modulo SMs, by Kind
};

// How many times a launch meets for each step: `met[0]` must grow by half of all, rounded up, times
// the number of SMs, `met[1]` by the other half.
__host__ __device__ constexpr int ops_of_step(int layers) { return 2 + 5 * layers; }

// The rows a launch computes with: the next power of two, which activations' layout depends on.
constexpr int padded_rows(int rows) { return rows <= 1 ? 1 : rows <= 2 ? 2 : rows <= 4 ? 4 : 8; }

// Queues it. `args.normed`, `attended` and `activated` are laid out for padded_rows(row_count).
void launch_decode(cudaStream_t stream, int sms, WeightFormat format, DecodeArgs args);
// Whether this build holds code for it that the current device runs.
bool decode_available();

}  // namespace ridge::cuda
