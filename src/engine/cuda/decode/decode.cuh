// The decode kernel: one persistent launch computes whole decode steps (embedding, all layers, LM
// head, argmax) for up to 8 rows, and reads every weight once per step. A row is one token. Of
// models with experts it takes one row, and reads the experts that the row chooses.
//
// Hopper and the other cards (KernelSet) differ in the producer warp alone (decode_producer.cuh).
//
// This header is the contract. decode_kernel.cuh describes the kernel: its warps, its shared memory
// and its synchronisation.
#pragma once

#include <cuda_runtime.h>

#include "engine/cuda/device/kernel_set.h"
#include "engine/cuda/device/scalar.cuh"
#include "engine/cuda/layout/tiles.cuh"

namespace ridge::cuda {

constexpr int kMaxRows = 8;       // of a step
constexpr int kMaxGemmaRows = 4;  // of a step of DecodeVariant::gemma
constexpr int kMaxLayers = 256;
constexpr int kMaxChoices = 8;  // experts of a row
constexpr int kMaxRopes = 2;    // RoPE tables

// The code is compiled for each: what one needs costs the others no instruction.
enum class DecodeVariant : uint8_t {
  dense,
  experts,  // one row
  gemma,    // norms after the blocks, heads of 128 or 256, one RoPE table or two; bf16 and fp8
};

// Columns of the inputs of qkv, gate_up and head. gemma has two for each row: the residual, and
// what the block before adds to it (decode_post_norm.cuh).
__host__ __device__ constexpr int input_columns(DecodeVariant variant, int rows) {
  return variant == DecodeVariant::gemma ? 2 * rows : rows;
}

// Whether the kernel shortens the exchange of results between SMs as one row of a dense model needs
// it: copies of what is polled, and results that are stored before partial sums are released. With
// both Llama-3-8B took 0.9 % less time in int8 and 0.4 % in int4; nf4 took 0.5 % more.
__host__ __device__ constexpr bool shortens_exchange(WeightFormat format, DecodeVariant variant,
                                                     int rows) {
  return rows == 1 && variant == DecodeVariant::dense && format != WeightFormat::nf4;
}
// Copies of the inputs of GEMMs and of the sums of squares. An SM polls one copy of each. All SMs
// poll the same few cache lines, which L2 serves one request after the other. The copies lie where
// the buffers have the rows of larger batches.
__host__ __device__ constexpr int input_copies(WeightFormat format, DecodeVariant variant,
                                               int rows) {
  return shortens_exchange(format, variant, rows) ? 2 : 1;
}
__host__ __device__ constexpr int sum_copies(WeightFormat format, DecodeVariant variant, int rows) {
  return shortens_exchange(format, variant, rows) ? 4 : 1;
}
// Columns from one copy to the next: those beyond the matrix are zero in each copy.
__host__ __device__ constexpr int copy_stride(int columns) { return columns + 64; }

// Activations that have not been written yet. As bf16 it is a NaN that no conversion produces.
constexpr uint16_t kNotReady = 0xffff;

// Where a row stands in its sequence. Rows of one sequence are adjacent, lie in one KV page and
// attend to each other, so a token's sums do not depend on how its sequence was cut into steps.
struct RowContext {
  int past;   // tokens of the sequence in the cache before this step
  int first;  // first row of the same sequence; the row's position is past + (row - first)
  int pages;  // index in DecodeArgs::pages of the sequence's first page number
};

// A result that other SMs poll: a sum of the router, or a part of the softmax state of a split. It
// is written and read as one word of 64 bits, and its tag says in which operator of which launch
// (op_tag), so it needs no reset.
struct alignas(8) TaggedFloat {
  float value;
  unsigned tag;
};

struct DecodeArgs {
  KernelSet kernels;
  int layers, hidden, heads, kv_heads, head_dim, ffn, vocab;
  Activation activation;
  float norm_eps, embed_scale, query_scale, attention_softcap, logit_softcap;
  int window[kMaxLayers];  // sliding window in tokens; 0: none

  const uint16_t* embed;          // [vocab][hidden] bf16
  Tiles qkv, out, gate_up, down;  // gate_up: a block has 8 rows of gate, then the same 8 of up
  Tiles head;
  // Experts: matrices of gate_up and down lie [layer][expert], and ffn is an expert's.
  int experts, top_k;  // 0: none
  bool normalize_top_k;
  Tiles router;       // bf16
  int choice_stride;  // columns from one choice's activations to the next's (choice_columns)

  DecodeVariant variant;

  const float* attn_norm;       // [layer][hidden]
  const float* post_attn_norm;  // [layer][hidden], of the block's output; null: none
  const float* mlp_norm;        // [layer][hidden]
  const float* post_mlp_norm;   // [layer][hidden]; null: none
  const float* final_norm;      // [hidden]
  const float* q_norm;          // [layer][head_dim]; null: none
  const float* k_norm;
  const float* qkv_bias;        // [layer][qkv columns]; null: none
  const float* rope_frequency;  // [table][head_dim / 2]
  float rope_magnitude[kMaxRopes];
  int ropes;                 // tables; 1 unless the variant is gemma
  uint8_t rope[kMaxLayers];  // the table of a layer

  KvFormat kv_format;
  uint8_t* kv;             // [layer][page][kv head][page_bytes]
  int cache_pages;         // per layer
  const RowContext* rows;  // [row_count]
  const int* pages;        // page numbers of all sequences
  const int* tokens;       // [row_count], of the first step
  int row_count;
  int max_position;  // largest position of the rows in the first step
  int steps;         // > 1: each row continues with its argmax; rows are of different sequences

  float* residual;  // [row][hidden]
  // gemma: what the last block adds to the residual, before the scale of the norm that follows it.
  float* block_output;  // [row][hidden]
  // Activations in the order of the MMA's B operand (activation_at). Until their epilogue writes
  // them they hold kNotReady, and the math warps poll them (decode_sync.cuh).
  uint16_t* normed;   // [3][hidden]: residual times norm weight; the norm's scale comes later
  int normed_stride;  // elements between the three: inputs of qkv, gate_up and head
  // [3][kMaxRows][hidden / 16], of the residual; not ready: all ones. One row: [3][copy] instead of
  // rows (sum_copies). gemma: BlockSums.
  float* sums_of_squares;
  float* qkv_out;                   // [row][qkv columns]; not ready: all ones
  uint16_t* attention_out;          // [heads * head_dim]
  uint16_t* mlp_hidden;             // [ffn]; experts: [choice][choice_stride]
  TaggedFloat* router_sums;         // [expert]
  TaggedFloat* split_states;        // [row][kv head][split][group * (head_dim + 2)]
  float* logits;                    // [row][vocab]
  unsigned long long* argmax_keys;  // [row][SM][3], logit_key of each epilogue warp's best token
  int* next_tokens;                 // [step][row], the argmax
  unsigned* grid_barrier;           // [2], arrival counters of even and of odd operators
  unsigned grid_barrier_base[2];    // their values before this launch
  long long* timestamps;            // [operator][3] clocks of SM 0 (stamp()); null: none

  // Set by launch_decode.
  int group;  // query heads of a KV head
  int stages, copies_in_flight, activation_bytes, max_splits, max_run_splits;
  int stages_prefetched;      // into L2 while the ring is full, at most
  unsigned clocks_per_stage;  // the memory's rate: clocks until each SM could have a stage
  int block_remainder[8];     // 16-row blocks of an operator modulo SMs, by OpKind
};

// Operators of a step, each of which all SMs pass through one grid barrier: embed, 5 per layer (6
// with experts), head. A launch of n operators in all adds (n + 1) / 2 x SMs to grid_barrier[0] and
// n / 2 x SMs to grid_barrier[1].
__host__ __device__ constexpr int ops_per_layer(bool experts) { return experts ? 6 : 5; }
__host__ __device__ constexpr int ops_per_step(int layers, bool experts) {
  return 2 + ops_per_layer(experts) * layers;
}

// Columns from one choice's activations to the next's: a warp has the same columns of every choice
// (decode_math.cuh).
constexpr int choice_columns(int ffn) { return (ffn + 511) / 512 * 512; }

// Rows that a launch computes: the next power of two; portable: 1 or 8, which halves the kernels to
// compile. Activations are laid out for this many.
constexpr int padded_rows(int rows, KernelSet kernels) {
  if (kernels == KernelSet::portable) return rows <= 1 ? 1 : 8;
  return rows <= 1 ? 1 : rows <= 2 ? 2 : rows <= 4 ? 4 : 8;
}

// Whether the variant is compiled for the format. All matrices of a launch have one format.
constexpr bool has_variant(DecodeVariant variant, WeightFormat format) {
  if (format == WeightFormat::mxfp4) return false;
  return variant != DecodeVariant::gemma || format == WeightFormat::bf16 ||
         format == WeightFormat::fp8;
}

// Queues the launch. `attention_out` and `mlp_hidden` hold padded_rows(row_count) rows, `normed`
// the input_columns of as many.
void launch_decode(cudaStream_t stream, int sms, WeightFormat format, DecodeArgs args);

// What it calls. One file for each format, made by cmake/instances.cmake, instantiates them.
template <WeightFormat kFormat, KernelSet kKernels>
void launch_decode_format(cudaStream_t stream, int sms, const DecodeArgs& args);
template <WeightFormat kFormat>
void launch_decode_gemma(cudaStream_t stream, int sms, const DecodeArgs& args);

// The most rows for which shared memory has room: 8, 1 or 0. Hopper: always 8.
int decode_rows(WeightFormat format, const DecodeArgs& args);

// Whether this build has Hopper's kernel for the current device.
bool decode_available();

}  // namespace ridge::cuda
