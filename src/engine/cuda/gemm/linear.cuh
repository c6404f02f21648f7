// y = W x for any number of tokens, on the tiles that the decode kernel reads: wgmma with the
// weights as A in registers (unpacked there) and the tokens as B in shared memory. A launch takes
// one product, or a chain of them for at most 128 tokens.
//
// A block of the grid takes tiles of 128 rows x 32 to 256 tokens. Two producing threads keep two
// rings of stages full (64 columns of K or more: weights by one, tokens by the other), two
// warpgroups multiply, 64 rows each. Where tiles do not fill the SMs evenly, K is split too: every
// block gets an equal run of (tile, K), and who has a tile's beginning adds what the following
// blocks have of it, in their order; or each tile is cut into equal parts, whose blocks finish a
// slice of the tokens each. Between the products of a chain all blocks meet; the weights of the
// next arrive meanwhile.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include <vector>

#include "engine/cuda/decode/decode.cuh"
#include "engine/cuda/device.cuh"
#include "engine/cuda/layout/tiles.cuh"

namespace ridge::cuda {

enum class Epilogue : uint8_t {
  store,  // rows[token][row] = y + bias
  add,    // rows[token][row] += y
  gate,   // rows in pairs of gate and up: out = activation(gate) up, bf16 at wide_at
};

struct LinearArgs {
  CUtensorMap weights;  // set by launch(): [matrix][block][bytes of its row of chunks]
  Tiles tiles;
  int matrix = 0;               // of the tiles' layers
  int matrices = 1;             // experts: so many from `matrix` on
  int row_count = 0;            // rows beyond are padding
  const uint16_t* x = nullptr;  // bf16 at wide_at(column, token, padded)
  int tokens = 0, padded = 0;

  // Experts: each tile of tokens has its own matrix. Null: one for all, tokens as above.
  const int* tile_count = nullptr;   // on the device
  const int* tile_matrix = nullptr;  // [tile], counted from `matrix`

  // x is not normed yet: y is scaled by 1 / sqrt(mean square + eps), the squares of x's source
  // given by its tiles of 128 columns. Null: no scale.
  const float* squares = nullptr;  // [square_tiles][tile's tokens]
  int square_tiles = 0, square_columns = 0;
  float eps = 0;

  Epilogue epilogue = Epilogue::store;
  Gate gate = Gate::silu;
  const float* bias = nullptr;  // [row]
  float softcap = 0;            // c tanh(y / c); 0: none
  float* rows = nullptr;        // [token][stride]
  int stride = 0;
  uint16_t* out = nullptr;  // gate: wide_at(row, token, padded)
  // add: out = sum times the next norm's weight, and its squares. Null: neither.
  const float* next_norm = nullptr;
  float* next_squares = nullptr;  // [row tile][tile's tokens]

  // Set by launch().
  int row_tiles = 0, steps_of_k = 0;
  bool split = false;        // into even runs of all tiles and K, or
  int ways = 0;              // each tile into so many parts; 0: not
  float* partial = nullptr;  // [block][tile]
  unsigned* done = nullptr;  // [block][warp]: the last product whose part it has written
  unsigned serial = 0;
};

constexpr int kMaxChain = 4;
struct Chain {
  LinearArgs ops[kMaxChain];
  int count;
  unsigned* meeting;  // the grid's counter, and its value before the launch
  unsigned met;
};

class Linear {
 public:
  Linear(WeightFormat format, int sms);
  // The tokens of a tile for a step of so many; activations are padded to a multiple of it.
  static int tile_tokens(int tokens);
  static int padded(int tokens);
  static constexpr int kMaxChainedTokens = 128;  // tokens
  // Queues a dependent launch (device.cuh) of one product, or of several after each other.
  // `tile_tokens`: as their activations are padded.
  void launch(cudaStream_t stream, const std::vector<LinearArgs>& ops, int tile_tokens);

 private:
  WeightFormat format_;
  int sms_;
  unsigned serial_ = 0, met_ = 0;
  DeviceBuffer<float> partial_;
  DeviceBuffer<unsigned> done_, meeting_;
};

}  // namespace ridge::cuda
