// Small valid files made in code: seeds for the fuzzers and fixtures for the tests.
#pragma once

#include <cstdint>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace ridge::sample {

// Writes GGUF version 3 (or another, to be refused).
class Gguf {
 public:
  explicit Gguf(uint32_t version = 3) : version_(version) {}

  Gguf& text(const std::string& key, const std::string& value) {
    key_of(key, 8);
    string(keys_, value);
    return *this;
  }
  Gguf& number(const std::string& key, uint32_t value) {
    key_of(key, 4);
    raw(keys_, value);
    return *this;
  }
  Gguf& real(const std::string& key, double value) {
    key_of(key, 12);
    raw(keys_, value);
    return *this;
  }
  Gguf& numbers(const std::string& key, const std::vector<uint32_t>& values) {
    key_of(key, 9);
    raw(keys_, uint32_t{4});
    raw(keys_, uint64_t{values.size()});
    for (uint32_t value : values) raw(keys_, value);
    return *this;
  }
  Gguf& texts(const std::string& key, const std::vector<std::string>& values) {
    key_of(key, 9);
    raw(keys_, uint32_t{8});
    raw(keys_, uint64_t{values.size()});
    for (const std::string& value : values) string(keys_, value);
    return *this;
  }
  // `bytes` of data; the caller knows the type's block size.
  Gguf& tensor(const std::string& name, const std::vector<uint64_t>& shape, uint32_t type,
               uint64_t bytes) {
    string(tensors_, name);
    raw(tensors_, uint32_t(shape.size()));
    for (uint64_t extent : shape) raw(tensors_, extent);
    raw(tensors_, type);
    raw(tensors_, offset_);
    offset_ += (bytes + 31) / 32 * 32;
    ++tensor_count_;
    return *this;
  }

  std::string bytes() const {
    std::string file = "GGUF";
    raw(file, version_);
    raw(file, tensor_count_);
    raw(file, key_count_);
    file += keys_ + tensors_;
    if (tensor_count_ > 0) file.resize((file.size() + 31) / 32 * 32 + offset_);
    return file;
  }

 private:
  template <typename T>
  static void raw(std::string& out, T value) {
    out.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  static void string(std::string& out, const std::string& value) {
    raw(out, uint64_t{value.size()});
    out += value;
  }
  void key_of(const std::string& key, uint32_t type) {
    string(keys_, key);
    raw(keys_, type);
    ++key_count_;
  }

  uint32_t version_;
  uint64_t tensor_count_ = 0, key_count_ = 0, offset_ = 0;
  std::string keys_, tensors_;
};

// A one-layer Llama with hidden 64: q8_0 attention, q4_0 MLP, fp16 embedding, tied.
inline Gguf tiny_llama_gguf() {
  Gguf file;
  file.text("general.architecture", "llama")
      .text("general.name", "Tiny")
      .number("llama.block_count", 1)
      .number("llama.embedding_length", 64)
      .number("llama.feed_forward_length", 96)
      .number("llama.context_length", 128)
      .number("llama.attention.head_count", 4)
      .numbers("llama.attention.head_count_kv", {2})
      .texts("tokenizer.ggml.tokens", {"a", "b", "c"});
  file.tensor("token_embd.weight", {64, 3}, 1, 64 * 3 * 2);
  file.tensor("blk.0.attn_q.weight", {64, 64}, 8, 64 * 64 / 32 * 34);
  file.tensor("blk.0.attn_k.weight", {64, 32}, 8, 64 * 32 / 32 * 34);
  file.tensor("blk.0.attn_v.weight", {64, 32}, 8, 64 * 32 / 32 * 34);
  file.tensor("blk.0.attn_output.weight", {64, 64}, 8, 64 * 64 / 32 * 34);
  file.tensor("blk.0.ffn_gate.weight", {64, 96}, 2, 64 * 96 / 32 * 18);
  file.tensor("blk.0.ffn_up.weight", {64, 96}, 2, 64 * 96 / 32 * 18);
  file.tensor("blk.0.ffn_down.weight", {96, 64}, 2, 96 * 64 / 32 * 18);
  file.tensor("blk.0.attn_norm.weight", {64}, 0, 64 * 4);
  file.tensor("blk.0.ffn_norm.weight", {64}, 0, 64 * 4);
  file.tensor("output_norm.weight", {64}, 0, 64 * 4);
  return file;
}

// `header` as safetensors, followed by `data` zero bytes.
inline std::string safetensors(const std::string& header, size_t data) {
  uint64_t length = header.size();
  std::string file(reinterpret_cast<const char*>(&length), sizeof(length));
  return file + header + std::string(data, '\0');
}

// Two tensors: 4 x 8 in BF16 and 16 in F8.
inline std::string tiny_safetensors() {
  return safetensors(R"({"__metadata__":{"format":"pt"},
    "w":{"dtype":"BF16","shape":[4,8],"data_offsets":[0,64]},
    "s":{"dtype":"F8_E4M3","shape":[16],"data_offsets":[64,80]}})",
                     80);
}

}  // namespace ridge::sample
