// The header of a GGUF file: metadata and tensor descriptions, no tensor data.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "model/model.h"

namespace ridge {

struct GgufTensor {
  std::string name;
  std::vector<int64_t> shape;  // fastest dimension first, as in the file
  Format format;
  double elements = 0;
  uint64_t bytes = 0;
};

struct GgufHeader {
  // Scalars, strings and short lists of numbers by key. Long lists and lists of strings (the
  // vocabulary) keep only their length, in `lengths`.
  std::map<std::string, nlohmann::json, std::less<>> values;
  std::map<std::string, uint64_t, std::less<>> lengths;
  std::map<std::string, GgufTensor, std::less<>> tensors;
  uint64_t tensor_bytes = 0;
};

// `file` is the whole file (a memory map: only the header is touched). Versions 2 and 3. Throws
// Error on anything that does not hold: lengths past the end, unknown types, data outside the file.
GgufHeader parse_gguf(std::string_view file, const std::string& where);

// The model that the metadata and tensors describe. Throws Error for unknown architectures.
Model model_from_gguf_header(const GgufHeader& header, const std::string& where);

}  // namespace ridge
