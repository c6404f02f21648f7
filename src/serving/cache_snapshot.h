// What the KV cache holds between two steps: copied on the engine's thread, read on another.
#pragma once

#include <cstdint>
#include <vector>

namespace ridge {

struct CacheSnapshot {
  static constexpr int64_t kFree = 0, kCached = -1;  // owners that are no request

  struct Page {
    int64_t owner = kFree;  // kCached: the prefix tree alone; else the oldest request that holds it
    // Running requests that hold it. Of a cached page: locks of steps that copy from it.
    int sharers = 0;
    bool operator==(const Page&) const = default;
  };
  std::vector<Page> pages;  // by page
  int free = 0, cached = 0, held = 0;

  // A page of the prefix tree, by its number there. Entries that are not `used` are roots or empty.
  struct Node {
    int32_t parent = -1;
    int32_t locks = 0;  // running requests whose path it is on
    bool used = false;
  };
  std::vector<Node> nodes;
};

// The cache of a further replica: its pages and nodes behind those of `to`.
inline void append_cache(const CacheSnapshot& from, CacheSnapshot& to) {
  const auto first = static_cast<int32_t>(to.nodes.size());
  to.pages.insert(to.pages.end(), from.pages.begin(), from.pages.end());
  to.free += from.free;
  to.cached += from.cached;
  to.held += from.held;
  for (CacheSnapshot::Node node : from.nodes) {
    if (node.parent >= 0) node.parent += first;
    to.nodes.push_back(node);
  }
}

}  // namespace ridge
