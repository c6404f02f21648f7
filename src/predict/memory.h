// What a device must hold: weights, KV cache, activations and the software's own bytes.
#pragma once

#include <optional>

#include "machine/machine.h"
#include "roofline/stack.h"
#include "step/rank.h"

namespace ridge {

// Bytes per device, a draft model counted with the model.
struct MemoryFit {
  double weights = 0, kv = 0, activations = 0, overhead = 0;
  double reserved = 0;             // left unused by the engine's default share of the memory
  std::optional<double> capacity;  // that software can allocate; unknown for CPUs without a size
  bool fits = true;
  double max_batch = 0;    // sequences over all replicas, at this context; 0: not even one
  double max_context = 0;  // tokens, at this batch; 0: none

  double used() const { return weights + kv + activations + overhead; }
  double left() const { return capacity ? *capacity - reserved - used() : 0; }
};

// `batch` sequences of `context` tokens over all replicas, and one prompt being prefilled. `draft`
// is held beside the model.
MemoryFit fit_memory(const Rank& rank, const std::optional<Rank>& draft, const System& system,
                     const EngineMemory& engine, double batch, double context, double prompt);

// Bytes the software itself holds on a device: CUDA context, graphs, workspaces (`engine_bytes`;
// 2-4 GB with inference stacks on data-centre GPUs) and, where several devices work together,
// collective buffers. A CPU process needs little.
double overhead_bytes(const Machine& machine, double devices,
                      double engine_bytes = EngineMemory().overhead);

}  // namespace ridge
