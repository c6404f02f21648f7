// y = W x for any number of tokens, on the tiles that the decode kernel reads: wgmma with the
// weights as A in registers (unpacked there) and the tokens as B in shared memory.
//
// A block of the grid takes tiles of 128 rows x 32 to 256 tokens. Producing warps keep a ring of
// stages full (64 columns of weights and tokens), two warpgroups multiply, 64 rows each. Where
// tiles do not fill the SMs evenly, K is split too: every block gets an equal run of (tile, K), and
// who has a tile's beginning adds what the following blocks have of it, in their order.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include "engine/cuda/decode.cuh"
#include "engine/cuda/device.cuh"
#include "engine/cuda/tiles.cuh"

namespace ridge::cuda {

enum class After : uint8_t {
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

  After after = After::store;
  Gate gate = Gate::silu;
  const float* bias = nullptr;  // [row]
  float softcap = 0;            // c tanh(y / c); 0: none
  float* rows = nullptr;        // [token][stride]
  int stride = 0;
  uint16_t* out = nullptr;  // gate: wide_at(row, token, padded)

  // Set by launch().
  int row_tiles = 0, stages_of_k = 0;
  bool split = false;
  float* partial = nullptr;  // [block][tile]
  unsigned* done = nullptr;  // [block]: the last launch whose part it has written
  unsigned serial = 0;
};

class Linear {
 public:
  Linear(WeightFormat format, int sms);
  // The tokens of a tile for a step of so many; activations are padded to a multiple of it.
  static int tile_tokens(int tokens);
  static int padded(int tokens);
  // Queues a dependent launch (device.cuh). `tile_tokens`: as its activations are padded.
  void launch(cudaStream_t stream, LinearArgs args, int tile_tokens);

 private:
  WeightFormat format_;
  int sms_;
  unsigned serial_ = 0;
  Buffer<float> partial_;
  Buffer<unsigned> done_;
};

}  // namespace ridge::cuda
