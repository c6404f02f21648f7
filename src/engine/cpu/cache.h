// Memory of the KV cache: the pages of every layer. Pages are not touched before the first write.
#pragma once

#include <cstdint>
#include <vector>

#include "base/mapped_buffer.h"
#include "base/thread_team.h"
#include "engine/cpu/attention.h"
#include "engine/runner/runner.h"
#include "model/architecture.h"

namespace ridge::cpu {

class Cache {
 public:
  // Throws Error when the memory for `pages` pages cannot be allocated.
  Cache(const Architecture& shape, const RunnerOptions& options, int pages);
  const LayerCache& layer(int index) const { return layers_[size_t(index)]; }
  void copy(std::span<const PageCopy> copies);
  // Fills the cache with random numbers in (-2, 2), for benchmarks of attention.
  void fill(ThreadTeam& team, uint64_t seed);

 private:
  size_t side_bytes_;  // bytes of the keys, or of the values, of a layer
  size_t scales_;      // number of their scales; 0 except for int8
  MappedBuffer memory_, scale_memory_;
  std::vector<LayerCache> layers_;
};

}  // namespace ridge::cpu
