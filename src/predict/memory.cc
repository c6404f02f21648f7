#include "predict/memory.h"

#include <algorithm>
#include <cmath>

namespace ridge {
namespace {

// CUDA's total is what nvidia-smi shows less the driver's own bytes: 79.2 GiB of 81559 MiB on an
// H100, 23.5 GiB of 24564 MiB on an RTX 4090, 31.4 GiB of 32607 MiB on an RTX 5090.
constexpr double kDriverBytes = 0.5e9;

std::optional<double> usable_bytes(const Machine& machine) {
  Maybe total = machine.memory().total_capacity();
  if (total && machine.kind == MachineKind::gpu) *total -= std::min(kDriverBytes, *total / 2);
  return total;
}

// What the engine leaves unused of `total` bytes when `fit` holds all but the KV cache.
double reserved_bytes(const EngineMemory& engine, const MemoryFit& fit, double total) {
  const double outside = fit.activations + fit.overhead;
  const double rest = 1 - engine.share;
  switch (engine.of) {
    case MemoryShare::weights_and_kv:
      return std::max(0.0, rest * total - outside);
    case MemoryShare::kv:
      return rest * std::max(0.0, total - fit.weights - outside);
    default:
      return rest * total;
  }
}

MemoryFit fill(const Rank& rank, const std::optional<Rank>& draft, const System& system,
               const EngineMemory& engine, double batch, double context, double prompt) {
  const Plan& plan = rank.plan;
  const double sequences = std::ceil(batch / plan.dp);
  // One step holds every decoding token and one prompt, or its chunk.
  const double prompt_tokens = plan.chunk > 0 ? std::min(plan.chunk, prompt) : prompt;
  MemoryFit fit;
  fit.weights = rank.weight_bytes * (1 - plan.offload);
  fit.kv = sequences * sequence_bytes(rank, context);
  if (draft) {
    fit.weights += draft->weight_bytes * (1 - plan.offload);
    fit.kv += sequences * sequence_bytes(*draft, context);
  }
  const double decoding = sequences * (1 + plan.speculate);
  fit.activations = activation_bytes(rank, decoding + prompt_tokens, sequences) +
                    score_bytes(rank, prompt_tokens * prompt, decoding * context);
  fit.overhead = overhead_bytes(system.device, plan.devices(), engine.overhead);
  fit.capacity = usable_bytes(system.device);
  if (fit.capacity) fit.reserved = reserved_bytes(engine, fit, *fit.capacity);
  fit.fits = !fit.capacity || fit.left() >= 0;
  return fit;
}

// The largest whole number in [0, most] that still fits; `fits` never turns true again.
template <typename Fits>
double largest(double most, Fits fits) {
  if (fits(most)) return most;
  double low = 0, high = most;
  while (high - low > 1) {
    const double middle = std::floor((low + high) / 2);
    (fits(middle) ? low : high) = middle;
  }
  return low;
}

}  // namespace

double overhead_bytes(const Machine& machine, double devices, double engine_bytes) {
  if (machine.kind == MachineKind::cpu) return 0.25e9;
  return engine_bytes + (devices > 1 ? 1e9 : 0);
}

MemoryFit fit_memory(const Rank& rank, const std::optional<Rank>& draft, const System& system,
                     const EngineMemory& engine, double batch, double context, double prompt) {
  const auto with = [&](double b, double c) {
    return fill(rank, draft, system, engine, b, c, prompt);
  };
  MemoryFit fit = with(batch, context);
  if (!fit.capacity) return fit;
  const double longest = std::max(context, double(rank.model->max_context));
  fit.max_batch = largest(1 << 24, [&](double b) { return with(b, context).fits; });
  fit.max_context = largest(longest, [&](double c) { return with(batch, c).fits; });
  return fit;
}

}  // namespace ridge
