// The MLPs of routed experts in steps of few tokens, gate_up and down in one kernel:
//   activated[slot] = activation(Wg x) * (Wu x)     Wg, Wu interleaved in the rows of gate_up
//   rows[slot] = Wd activated[slot]
// for tiles of kSkinnyTile slots, each with the matrices of its expert. It reads each active
// expert's weights once per tile and is bound by these bytes.
//
// Between gate_up and down of a tile all SMs exchange activations. The ring of down's weights fills
// meanwhile. expert_mlp_kernel.cuh draws the warps and their barriers.
#pragma once

#include "engine/cuda/device/device.cuh"
#include "engine/cuda/device/scalar.cuh"
#include "engine/cuda/gemm/skinny_gemm.cuh"
#include "engine/cuda/layout/tiles.cuh"
#include "engine/cuda/moe/experts.cuh"

namespace ridge::cuda {

// Logits of a step whose blocks route for themselves fit the ring.
constexpr int kMaxRoutedLogits = 20 * 1024;

struct ExpertMlpArgs {
  Tiles gate_up, down;
  int matrix = 0;               // of the first expert, in both
  const uint16_t* x = nullptr;  // bf16 at wide_at(column, token, x_padded)
  int x_padded = 0;
  bool x_by_slot = false;  // x holds the slots instead of the tokens
  int slots = 0;           // at most
  ExpertRouting routing = {};
  // True: the previous kernel wrote the router's logits alone. Each thread block chooses the
  // experts and assigns the slots for itself; one also writes `slot` and `weight`. Plain rules
  // only.
  bool routes = false;
  Activation activation = Activation::silu;
  float* rows = nullptr;  // [slot][stride]
  int stride = 0;         // hidden
};

// What the kernel derives from the shape of one of its two GEMMs.
struct ExpertGemm {
  Tiles tiles;
  int split;        // warps that share the K of a row block: 1, 2, 4 or 8
  int warp_chunks;  // of a slab
  int slabs;        // K is cut into slabs, which pass through the ring
  int items;        // of a tile: 8 / split adjacent row blocks each
};

struct ExpertMlpLaunch {
  ExpertMlpArgs args;
  ExpertGemm gemm[2];   // gate_up, down
  uint16_t* activated;  // bf16 at wide_at(column, slot, capacity), not ready before the launch
  uint16_t* reset;      // of the launch before: its first reset_tiles tiles become not ready
  int capacity, reset_tiles;
};

class ExpertMlp {
 public:
  // Whether it is used; otherwise gate_up and down are skinny GEMMs. Steps of qwen3-30b-a3b gained
  // 4 to 6 % in fp8 and int8, nothing in bf16, and lost 2 % in int4. Those of mixtral-8x7b in fp8
  // gained 2 %.
  static bool covers(WeightFormat format);
  // `columns`: those of the activations; `slots`: the most of a launch.
  ExpertMlp(WeightFormat format, int sms, int columns, int slots);
  static size_t memory_bytes(int columns, int slots);
  // Queues a dependent launch (device.cuh). Its blocks wait for each other, so each needs an SM,
  // and no other kernel of this kind may run on the device at the same time.
  void launch(cudaStream_t stream, const ExpertMlpArgs& args);

 private:
  WeightFormat format_;
  int sms_, columns_, capacity_;
  // Activations of this launch and of the one before, which this launch resets.
  DeviceBuffer<uint16_t> activated_[2];
  int used_tiles_[2] = {0, 0}, next_ = 0;
};

}  // namespace ridge::cuda
