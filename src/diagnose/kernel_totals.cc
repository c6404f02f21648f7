#include "diagnose/kernel_totals.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/seeded_hash.h"
#include "diagnose/kernel_names.h"

namespace ridge {

uint32_t KernelTotals::intern(std::string_view name) {
  const auto known = ids_.find(seeded_hash(name));
  return known != ids_.end() ? known->second : intern(name, kernel_family(name));
}

uint32_t KernelTotals::intern(std::string_view name, KernelFamily family) {
  constexpr size_t kMostNames = 65536;
  const auto known = ids_.find(seeded_hash(name));
  if (known != ids_.end()) return known->second;
  if (names_.size() >= kMostNames) {
    name = "(further names)";
    family = KernelFamily::other;
  }
  const auto [place, added] = ids_.try_emplace(seeded_hash(name), uint32_t(names_.size()));
  if (added) names_.push_back({short_kernel_name(name), family, is_torch_topk(name)});
  return place->second;
}

void KernelTotals::add(uint32_t name, double seconds, double launches) {
  names_[name].seconds += seconds;
  names_[name].launches += launches;
}

// torch.topk runs once per layer where it routes, once per step where it samples. Attention runs
// once per layer, that of another encoder included: hence the factor, below the layers of any
// model.
void KernelTotals::settle_topk() {
  double layers = 0;
  for (KernelFamily family : {KernelFamily::attention, KernelFamily::norm}) {
    for (const Name& name : names_)
      if (name.family == family) layers = std::max(layers, name.launches);
    if (layers > 0) break;
  }
  for (Name& name : names_) {
    if (!name.torch_topk) continue;
    const bool per_layer = layers > 0 && 4 * name.launches >= layers;
    name.family = per_layer ? KernelFamily::routing : KernelFamily::sampling;
  }
}

void KernelTotals::fill(KernelProfile& profile) {
  settle_topk();
  std::map<std::pair<std::string_view, KernelFamily>, FamilyTime> merged;
  for (const Name& name : names_) {
    if (name.launches == 0) continue;
    for (FamilyTime* sum :
         {&profile.families[size_t(name.family)], &merged[{name.text, name.family}]}) {
      sum->seconds += name.seconds / profile.devices;
      sum->launches += name.launches / profile.devices;
    }
    profile.kernel_s += name.seconds / profile.devices;
  }
  for (const auto& [key, sum] : merged) {
    KernelTime kernel;
    kernel.name = key.first;
    kernel.family = key.second;
    kernel.seconds = sum.seconds;
    kernel.launches = sum.launches;
    profile.kernels.push_back(std::move(kernel));
  }
  keep_longest_kernels(profile.kernels);
}

void keep_longest_kernels(std::vector<KernelTime>& kernels) {
  constexpr size_t kMost = 40;
  std::stable_sort(kernels.begin(), kernels.end(),
                   [](const KernelTime& a, const KernelTime& b) { return a.seconds > b.seconds; });
  if (kernels.size() > kMost) kernels.resize(kMost);
}

}  // namespace ridge
