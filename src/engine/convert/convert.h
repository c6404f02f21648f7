// The parts of `convert_weights`: the layout of the output, and its metadata.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "engine/weights/load_parts.h"

namespace ridge {

// One tensor of the output file: a vector, a matrix, or the experts of a layer one after another.
struct OutTensor {
  std::string name;
  std::vector<int64_t> shape;  // slowest dimension first
  Storage storage = Storage::f32;
  std::vector<ConstSlot> slots;  // empty: the data is in `own`
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
  void raw(std::string_view pair);  // key and value in the encoding of another file
  void append(const GgufPairs& other);

  uint64_t count() const { return count_; }
  const std::string& bytes() const { return bytes_; }

 private:
  void begin(std::string_view key, uint32_t type);
  void begin_list(std::string_view key, uint32_t type, uint64_t count);
  std::string bytes_;
  uint64_t count_ = 0;
};

// A complete GGUF of `pairs` without tensors, or the header of one with tensors. Sets their
// offsets.
std::string gguf_head(const GgufPairs& pairs, std::vector<OutTensor>& tensors);

// Metadata of the source, for a file in `storage`; adds the tensors that the metadata implies
// (rope_freqs.weight). Throws Error when GGUF cannot express the source.
GgufPairs gguf_metadata(const Weights& weights, Storage storage, std::vector<OutTensor>& tensors);
// Writes tokenizer.ggml.* from a folder's tokenizer.json. Throws Error when a GGUF cannot express
// it: the written metadata is read back and must tokenize a sample identically.
void add_gguf_vocabulary(GgufPairs& pairs, const Weights& weights, const std::string& folder);

// A file that appears under its name only when it is complete. It is memory-mapped, so that threads
// can write anywhere in it; its disk space is reserved first.
class OutputFile {
 public:
  OutputFile(std::string path, uint64_t bytes);  // throws Error
  ~OutputFile();                                 // an unfinished file is removed
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  std::byte* data() const { return data_; }
  void finish();  // flushes to disk, then renames; throws Error

 private:
  std::string path_, temporary_;
  int file_ = -1;
  std::byte* data_ = nullptr;
  uint64_t bytes_;
};

}  // namespace ridge
