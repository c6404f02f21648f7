// GEMM y = W x for any number of tokens, on the weight tiles that the decode kernel reads. wgmma
// takes the weights as A from registers, where they are dequantized, and the tokens as B from
// shared memory. One launch runs one GEMM, or a chain of dependent GEMMs for at most 128 tokens.
//
// Output tiles are 128 rows x 32 to 256 tokens. Where whole tiles do not fill the SMs, K is split:
//   stream-K   every block gets an equal run of (tile, K range); the block that owns the beginning
//              of a tile adds the partial sums of the blocks after it, in their order
//   split-K    every tile is cut into the same number of K ranges; its blocks exchange partial sums
//              and the first four finish a quarter of the tokens each
//   pairs      gate and up of chains with narrow weights, K not split: every thread block has two
//              smaller tiles that share the tokens (choose_pairs() in linear.cu)
// No float atomics: repeated launches give the same bits.
//
// With weights in fp8, a chain may multiply activations in E4M3, at twice the rate and with half of
// their bytes. Each 64 or 128 columns of a token have a scale: what a tile of the GEMM before gives
// (of gate and up 64), or attention for a head. The sums of these columns are scaled and added up
// in f32. A scale for the whole token would save that, but a block knows the columns of its tile
// only.
//
// Between the GEMMs of a chain stands a grid barrier. The weights of the next GEMM are loaded
// meanwhile. linear_kernel.cuh draws the warps and their barriers.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include <vector>

#include "engine/cuda/device/device.cuh"
#include "engine/cuda/device/scalar.cuh"
#include "engine/cuda/layout/tiles.cuh"

namespace ridge::cuda {

enum class Epilogue : uint8_t {
  store,  // rows[token][row] = y + bias
  add,    // rows[token][row] += y + bias
  gate,   // rows in pairs of gate and up: out = activation(gate) * up, bf16 at wide_at; biases as
          // the rows lie in the tiles, for grouped GEMMs only
};

struct LinearArgs {
  CUtensorMap weights;  // set by launch(): [matrix][block][bytes of its row of chunks]
  Tiles tiles;
  int matrix = 0;               // index of the matrix in `tiles`, or of the first expert's
  int matrices = 1;             // experts: number of matrices from `matrix` on
  int row_count = 0;            // rows of W; the tiles beyond are padding
  const uint16_t* x = nullptr;  // bf16 at wide_at(column, token, padded)
  // Activations in E4M3 (all GEMMs of a launch alike): x is at fp8_group_at() instead. In the first
  // GEMM of a launch it may be bf16 nevertheless; the launch then begins by quantizing it to
  // quantized_x, in groups of 64 columns.
  bool fp8_tokens = false;
  int fp8_group = 128;  // columns of x with a common scale: 64 or 128
  uint8_t* quantized_x = nullptr;
  int tokens = 0, padded = 0;  // padded: a multiple of the token tile

  // Grouped GEMM of experts: each token tile has a matrix of its own. Null: one matrix for all.
  const int* tile_count = nullptr;   // number of token tiles, in device memory
  const int* tile_matrix = nullptr;  // [token tile], counted from `matrix`

  // Folded RMSNorm: x is not normed yet, and y is scaled by 1 / sqrt(mean square + eps). The sums
  // of squares come per tile of 128 columns of x. Null: no scale.
  const float* squares = nullptr;  // [square_tiles][tokens of a tile]
  int square_tiles = 0, square_columns = 0;
  float eps = 0;

  Epilogue epilogue = Epilogue::store;
  Activation activation = Activation::silu;
  const float* bias = nullptr;  // [row]
  int bias_stride = 0;          // grouped GEMM: from one matrix's bias to the next one's
  float softcap = 0;            // c tanh(y / c); 0: none
  float* rows = nullptr;        // [token][stride]
  int stride = 0;
  uint16_t* out = nullptr;  // Epilogue::gate: wide_at(row, token, padded)
  bool fp8_out = false;     // or at fp8_group_at(); only with fp8_tokens
  // Epilogue::add, for the RMSNorm that follows: out = sum * next_norm, and its sums of squares.
  // Null: neither.
  const float* next_norm = nullptr;
  float* next_squares = nullptr;  // [row tile][tokens of a tile]

  // Set by launch().
  int row_tiles = 0, k_steps = 0;
  int tile_blocks = 0;        // blocks of 16 rows in a row tile, at most 8
  bool paired = false;        // each block computes two adjacent row tiles over all of K
  bool stream_k = false;      // equal runs of (tile, K) per block
  int split_k = 0;            // K ranges of each tile; 0: no split-K
  float* partials = nullptr;  // [block][tile]: partial sums (partial_sums.cuh)
  unsigned* ready = nullptr;  // [block][warp]: epoch of the last partial sums published
  unsigned epoch = 0;         // of this GEMM
};

constexpr int kMaxChain = 4;
struct GemmChain {
  LinearArgs ops[kMaxChain];
  int count;
  unsigned* grid_barrier;  // counts arrivals, never reset
  unsigned barrier_base;   // its value before the launch
  int quantizes;  // 1 if a grid barrier precedes the first GEMM, whose x is quantized; or 0
};

// One file for each format, made by cmake/instances.cmake, instantiates it. `kFp8Tokens`: with
// activations in E4M3.
template <WeightFormat kFormat, bool kFp8Tokens>
void launch_linear_format(cudaStream_t stream, int grid, int tile_tokens, const GemmChain& chain);

class Linear {
 public:
  Linear(WeightFormat format, int sms);
  static size_t memory_bytes(int sms);
  // Tokens of a tile in a step of `tokens`; activations are padded to a multiple of it.
  static int tile_tokens(int tokens);
  static int padded(int tokens);
  static constexpr int kMaxChainedTokens = 128;
  // Queues a dependent launch (device.cuh) of one GEMM, or of a chain in order. `tile_tokens`: the
  // token tile that their activations are padded to.
  void launch(cudaStream_t stream, const LinearArgs* ops, int count, int tile_tokens);
  void launch(cudaStream_t stream, const std::vector<LinearArgs>& ops, int tile_tokens) {
    launch(stream, ops.data(), int(ops.size()), tile_tokens);
  }

 private:
  WeightFormat format_;
  int sms_;
  unsigned epoch_ = 0, barrier_base_ = 0;
  DeviceBuffer<float> partials_;
  DeviceBuffer<unsigned> ready_, grid_barrier_;
};

}  // namespace ridge::cuda
