#include "engine/cuda/host/device_memory.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/error.h"
#include "base/units.h"
#include "engine/cuda/layout/device_format.h"
#include "step/rank.h"

namespace ridge {

DeviceNeed device_need(const Model& model, const Plan& plan, cuda::WeightFormat format,
                       int cache_tokens, double step_bytes) {
  Model kept = model_on_device(model, format);
  kept.embed_format = stored_format(cuda::WeightFormat::bf16);
  kept.tied_embeddings = false;
  Plan on = plan;
  on.weights = planned_weights(format);
  const Rank rank = make_rank(kept, on);
  DeviceNeed need;
  need.weights = rank.weight_bytes;
  const double tokens = std::ceil(double(cache_tokens) / plan.page_tokens) * plan.page_tokens;
  double columns = 0;  // of the layer that caches most
  for (const RankGroup& g : rank.groups) {
    need.cache += rank.layer_share * g.count * g.cache_per_token * tokens;
    columns = std::max(columns, g.kv_columns);
  }
  if (plan.kv && plan.kv->name != "bf16") need.cache += 2 * columns * tokens;
  // Two matrices of bf16 at a time; the head is the widest.
  const double packing = 2 * 2 * kept.embed_parameters() / plan.tp;
  need.working = packing + step_bytes;
  return need;
}

void check_device_memory(const Model& model, const Plan& plan, cuda::WeightFormat format,
                         int cache_tokens, double step_bytes, double available,
                         const std::string& device) {
  Plan on = plan;
  const auto need = [&](cuda::WeightFormat as, int tokens) {
    return device_need(model, on, as, tokens, step_bytes);
  };
  const DeviceNeed wanted = need(format, cache_tokens);
  if (wanted.all() <= available) return;

  std::vector<std::string> fitting;
  const double page = need(format, plan.page_tokens).cache;
  const double pages = std::floor((available - wanted.weights - wanted.working) / page);
  if (pages >= 1)
    fitting.push_back(fmt::format("a cache of {:.0f} tokens", pages * plan.page_tokens));
  std::vector<cuda::WeightFormat> formats = device_formats();
  const cuda::WeightFormat released = released_device_format(model);
  if (released == cuda::WeightFormat::mxfp4) formats.push_back(released);
  for (const cuda::WeightFormat other : formats) {
    const DeviceNeed narrow = need(other, cache_tokens);
    if (narrow.weights < wanted.weights && narrow.all() <= available) {
      fitting.push_back("--format " + stored_format(other).name);
    }
  }
  for (const cuda::KvFormat other : {cuda::KvFormat::fp8, cuda::KvFormat::int8}) {
    on.kv = stored_format(other, model.groups.front().layer.mixer.head_dim);
    const DeviceNeed narrow = need(format, cache_tokens);
    if (narrow.cache < wanted.cache && narrow.all() <= available) {
      fitting.push_back("--kv " + on.kv->name);
    }
  }
  throw Error(
      "{} needs {} of device memory (weights {}, cache of {} tokens {}, working {}) and {} "
      "of {} are free; {}",
      model.name, pretty_bytes(wanted.all()), pretty_bytes(wanted.weights), cache_tokens,
      pretty_bytes(wanted.cache), pretty_bytes(wanted.working), pretty_bytes(available), device,
      fitting.empty() ? "no format fits" : fmt::format("what fits: {}", fmt::join(fitting, ", ")));
}

}  // namespace ridge
