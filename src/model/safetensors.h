// The header of a safetensors file: names, types and sizes, no tensor data.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ridge {

struct SafeTensor {
  std::string name;
  std::string dtype;           // "BF16", "F8_E4M3", ...
  std::vector<int64_t> shape;  // slowest dimension first
  double elements = 0;
  uint64_t bytes = 0;
  uint64_t offset = 0;  // of its data from the start of the file
};

// `file` is the whole file (a memory map: only the header is touched). Throws Error on anything
// that does not hold: a header past the end, unknown types, sizes that disagree with the shapes,
// data that overlaps or lies outside the file.
std::vector<SafeTensor> parse_safetensors(std::string_view file, const std::string& where);

// The files of a sharded model in `folder`: those its index names, or every one there.
std::vector<std::string> safetensors_files(const std::string& folder);

}  // namespace ridge
