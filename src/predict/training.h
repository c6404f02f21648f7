// Memory of training with Adam in mixed precision, whole and sharded over data-parallel devices.
#pragma once

#include <array>
#include <optional>
#include <string_view>

#include "base/json.h"
#include "machine/machine.h"
#include "model/model.h"

namespace ridge {

// Bytes. Per parameter: 2 of weights, 2 of gradients, 4 of fp32 master weights and 8 of fp32
// moments (ZeRO, Rajbhandari et al. 2020, section 3.1). Activations: 34 s b h per layer, for
// sequence length s, batch b and hidden size h (Korthikanti et al. 2022, eq. 2; the quadratic term
// is left out because flash attention recomputes it).
struct TrainingMemory {
  double weights = 0, gradients = 0, master_weights = 0, moments = 0, activations = 0;

  double optimizer() const { return master_weights + moments; }
  double total() const { return weights + gradients + optimizer() + activations; }
};
TrainingMemory training_memory(const Model& model, double batch, double sequence);

// What data-parallel ranks split between them. `none` is plain data parallelism; zero3 is what
// PyTorch calls FSDP.
enum class Sharding : uint8_t { none, zero1, zero2, zero3, kCount };
inline constexpr int kShardingCount = static_cast<int>(Sharding::kCount);
std::string_view sharding_name(Sharding sharding);  // "zero1"

// One device's bytes where `devices` ranks share `whole` (ZeRO, section 5).
TrainingMemory shard(const TrainingMemory& whole, Sharding sharding, double devices);

struct ShardingFit {
  TrainingMemory device;  // on the machine's devices
  bool fits = true;       // true also where the capacity is unknown
  // The fewest devices of this kind that hold it. Empty: no number does, or the capacity is
  // unknown.
  std::optional<double> fewest_devices;
};

struct TrainingFit {
  double batch = 1, sequence = 2048;  // sequences per device and their tokens
  TrainingMemory whole;               // on a single device
  double overhead = 0;                // the software's own bytes on each device
  std::optional<double> capacity;     // of one device
  std::array<ShardingFit, kShardingCount> shardings;
};
TrainingFit fit_training(const Model& model, const System& system, double batch, double sequence);

// docs/json.md has the fields.
Json training_json(const Model& model, const System& system, const TrainingFit& fit);

}  // namespace ridge
