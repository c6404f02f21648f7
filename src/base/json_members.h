// An object that a stranger wrote, in bounded memory: the members that are read, and no others.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace ridge {

// What is kept of an object that a stranger wrote.
struct JsonMembers {
  // Called with the keys of the outermost object. What is not kept is checked and costs no memory.
  std::function<bool(std::string_view key)> keep = {};
  // Members whose lists of 32-bit integers are packed: each list is one value, of 4 bytes an
  // integer. A list that begins with such an integer must hold no other value.
  std::function<bool(std::string_view key)> pack = {};
  // What one member may take of the tree's bytes.
  std::function<size_t(std::string_view key)> most_bytes = {};
  size_t most_keys = SIZE_MAX;  // of one object: finding a key takes time in proportion
};

// The same JSON as an object with these members, in their order. Takes the bytes that the tree
// allocates (capacities, with the allocator's headers) from `bytes_left`; while lists grow and when
// the tree is destroyed, its longest list is there twice. Throws OptionError with the outermost key
// where that or most_bytes is not enough, where an object has more than most_keys, or a key twice.
Json parse_members(std::string_view text, std::string_view where, const JsonMembers& members,
                   size_t& bytes_left);

// A packed list; nullopt for any other value.
std::optional<std::vector<int32_t>> packed_integers(const Json& value);

}  // namespace ridge
