// GEMM y = W x for every NVIDIA card since Ampere: mma.sync and cp.async, on the weight tiles and
// with the arguments of the Hopper kernels (gemm/linear.cuh). Two kernels, by the number of tokens:
//   skinny  up to 16 tokens, or experts with few slots each: the warps of a block split K and
//   stream
//           the weights from memory into registers
//   tiled   tiles of 128 rows x 32, 64 or 128 tokens through shared memory; where the tiles do not
//           fill the SMs, blocks split K and the last to finish adds the partial sums in order
// No float atomics: repeated launches give the same bits, and up to 16 tokens of a dense GEMM the
// bits of a token do not depend on the other tokens.
#pragma once

#include "engine/cuda/gemm/linear.cuh"

namespace ridge::cuda {

class PortableGemm {
 public:
  explicit PortableGemm(int sms);
  static size_t memory_bytes(int sms);
  // Tokens of a tile in a GEMM of `tokens`: 8 or 16 (skinny), 32, 64 or 128. Never more than
  // Linear::tile_tokens(), so that activations are padded alike.
  static int tile_tokens(int tokens);
  // Queues a dependent launch (device.cuh). `squares` and `next_norm` of LinearArgs are not
  // supported.
  void launch(cudaStream_t stream, WeightFormat format, LinearArgs args, int tile_tokens);

 private:
  int sms_;
  DeviceBuffer<float> partials_;    // [tile and K range][tile]
  DeviceBuffer<unsigned> arrived_;  // [tile], zero between launches
};

}  // namespace ridge::cuda
