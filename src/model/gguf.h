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
  uint64_t offset = 0;  // of its data from the start of the file
};

// A list that was walked over, not kept.
struct GgufArray {
  uint32_t type = 0;  // of the elements, as the file numbers them
  uint64_t count = 0;
  uint64_t offset = 0;  // of the first element from the start of the file
};

// One key with its value, as bytes of the file.
struct GgufPair {
  std::string key;
  uint64_t begin = 0, end = 0;
};

struct GgufHeader {
  // Scalars, strings and short lists of numbers by key. Long lists and lists of strings (the
  // vocabulary) keep only their place, in `arrays`.
  std::map<std::string, nlohmann::json, std::less<>> values;
  std::map<std::string, GgufArray, std::less<>> arrays;
  std::map<std::string, GgufTensor, std::less<>> tensors;
  uint64_t tensor_bytes = 0;
  std::vector<GgufPair> pairs;  // in the file's order, for those who copy them
};

// `file` is the whole file (a memory map: only the header is touched). Versions 2 and 3. Throws
// Error on anything that does not hold: lengths past the end, unknown types, data outside the file.
GgufHeader parse_gguf(std::string_view file, const std::string& where);

// The elements of an array of the same file: strings (views into it), numbers. Empty where the key
// is absent; throws Error where the elements are of another kind.
std::vector<std::string_view> gguf_strings(std::string_view file, const GgufHeader& header,
                                           std::string_view key, const std::string& where);
std::vector<double> gguf_numbers(std::string_view file, const GgufHeader& header,
                                 std::string_view key, const std::string& where);

// The files of a model that came in pieces ("name-00001-of-00003.gguf"), `path` first; only `path`
// where it is whole.
std::vector<std::string> gguf_pieces(const std::string& path, const GgufHeader& header);

// The model that the metadata and tensors describe. Throws Error for unknown architectures.
Model model_from_gguf_header(const GgufHeader& header, const std::string& where);

}  // namespace ridge
