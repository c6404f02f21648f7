// The memory of the KV cache: pages of every layer, untouched until they are written.
#pragma once

#include <cstdint>
#include <vector>

#include "base/mapped_buffer.h"
#include "base/thread_team.h"
#include "engine/cpu/attention.h"
#include "engine/runner.h"
#include "engine/weights/architecture.h"

namespace ridge::cpu {

class Cache {
 public:
  // Throws Error where there is no room for `pages` pages.
  Cache(const Architecture& shape, const RunnerOptions& options, int pages);
  const LayerCache& layer(int index) const { return layers_[size_t(index)]; }
  void copy(std::span<const PageCopy> copies);
  // Random numbers in (-2, 2): what attention reads in earnest, for benchmarks.
  void fill(ThreadTeam& team, uint64_t seed);

 private:
  size_t side_bytes_;  // keys or values of a layer
  size_t scales_;      // of them; 0 but for int8
  MappedBuffer memory_, scale_memory_;
  std::vector<LayerCache> layers_;
};

}  // namespace ridge::cpu
