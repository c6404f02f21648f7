// Time and launches of every kernel, summed by name and by family.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "diagnose/kernel_profile.h"

namespace ridge {

class KernelTotals {
 public:
  // The number of a name; its family is found once. At most 65536 names: further ones share one.
  uint32_t intern(std::string_view name);
  uint32_t intern(std::string_view name, KernelFamily family);
  void add(uint32_t name, double seconds, double launches);
  bool is_collective(uint32_t name) const {
    return names_[name].family == KernelFamily::collective;
  }
  bool is_copy(uint32_t name) const { return names_[name].family == KernelFamily::copy; }

  // Writes the families, the longest kernels and kernel_s: means over profile.devices. Instances of
  // one template are one kernel.
  void fill(KernelProfile& profile);

 private:
  struct Name {
    std::string text;
    KernelFamily family;
    bool torch_topk = false;
    double seconds = 0, launches = 0;
  };
  void settle_topk();

  std::unordered_map<uint64_t, uint32_t> ids_;  // hash of the full name -> index into names_
  std::vector<Name> names_;
};

// Longest first, at most 40.
void keep_longest_kernels(std::vector<KernelTime>& kernels);

}  // namespace ridge
