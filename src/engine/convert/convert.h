// The parts of `convert_weights`: what is written where, and the metadata that goes before it.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "engine/weights/load_parts.h"

namespace ridge {

// One tensor of the file that is made: a vector, a matrix, or a layer's experts in turn.
struct OutTensor {
  std::string name;
  std::vector<int64_t> shape;  // slowest dimension first
  Storage storage = Storage::f32;
  std::vector<ConstSlot> slots;  // empty: `own` holds it
  Vector own;
  uint64_t bytes = 0;
  uint64_t offset = 0;  // in the file
};

// Key-value pairs in GGUF's encoding.
class GgufPairs {
 public:
  void text(std::string_view key, std::string_view value);
  void integer(std::string_view key, uint32_t value);
  void number(std::string_view key, float value);
  void flag(std::string_view key, bool value);
  void texts(std::string_view key, const std::vector<std::string>& values);
  void integers(std::string_view key, const std::vector<int32_t>& values);
  void numbers(std::string_view key, const std::vector<float>& values);
  void flags(std::string_view key, const std::vector<bool>& values);
  void raw(std::string_view pair);  // key and value as another file has them
  void append(const GgufPairs& other);

  uint64_t count() const { return count_; }
  const std::string& bytes() const { return bytes_; }

 private:
  void begin(std::string_view key, uint32_t type);
  void begin_list(std::string_view key, uint32_t type, uint64_t count);
  std::string bytes_;
  uint64_t count_ = 0;
};

// A whole file in `pairs` without tensors, or the head of one with them: offsets are set.
std::string gguf_head(const GgufPairs& pairs, std::vector<OutTensor>& tensors);

// Metadata of the source, for a file of `storage`; adds tensors that the metadata implies
// (rope_freqs.weight). Throws Error where the source cannot be told in GGUF's terms.
GgufPairs gguf_metadata(const Weights& weights, Storage storage, std::vector<OutTensor>& tensors);
// tokenizer.ggml.* of a folder's tokenizer.json. Throws Error where a GGUF cannot say the same:
// what was written is read back and must cut a sample into the same tokens.
void add_gguf_vocabulary(GgufPairs& pairs, const Weights& weights, const std::string& folder);

// A file that appears under its name when it is complete. Its bytes are written through a map, so
// that threads fill it where they like; its space is reserved first.
class OutputFile {
 public:
  OutputFile(std::string path, uint64_t bytes);  // throws Error
  ~OutputFile();                                 // not finished: nothing stays
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  std::byte* data() const { return data_; }
  void finish();  // to disk, then renamed; throws Error

 private:
  std::string path_, temporary_;
  int file_ = -1;
  std::byte* data_ = nullptr;
  uint64_t bytes_;
};

}  // namespace ridge
