#include "predict/memory.h"

#include <algorithm>
#include <cmath>

namespace ridge {
namespace {

MemoryFit fill(const Rank& rank, const std::optional<Rank>& draft, const System& system,
               double batch, double context, double prompt) {
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
  fit.activations =
      activation_bytes(rank, sequences * (1 + plan.speculate) + prompt_tokens, sequences);
  fit.overhead = overhead_bytes(system.device, plan.devices());
  fit.capacity = system.device.memory().total_capacity();
  fit.fits = !fit.capacity || fit.used() <= *fit.capacity;
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

double overhead_bytes(const Machine& machine, double devices) {
  if (machine.kind == MachineKind::cpu) return 0.25e9;
  return 2e9 + (devices > 1 ? 1e9 : 0);
}

MemoryFit fit_memory(const Rank& rank, const std::optional<Rank>& draft, const System& system,
                     double batch, double context, double prompt) {
  const auto with = [&](double b, double c) { return fill(rank, draft, system, b, c, prompt); };
  MemoryFit fit = with(batch, context);
  if (!fit.capacity) return fit;
  const double longest = std::max(context, double(rank.model->max_context));
  fit.max_batch = largest(1 << 24, [&](double b) { return with(b, context).fits; });
  fit.max_context = largest(longest, [&](double c) { return with(batch, c).fits; });
  return fit;
}

}  // namespace ridge
