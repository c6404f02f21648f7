// Shared by the model tests: a small Llama to change field by field, and what an Error says.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "base/error.h"
#include "model/read.h"

namespace ridge::test {

inline nlohmann::json small_llama() {
  return {{"model_type", "llama"},    {"hidden_size", 64},
          {"num_hidden_layers", 4},   {"num_attention_heads", 8},
          {"num_key_value_heads", 2}, {"intermediate_size", 128},
          {"vocab_size", 1000},       {"max_position_embeddings", 2048}};
}

inline nlohmann::json with(nlohmann::json config, const nlohmann::json& changes) {
  config.update(changes);
  return config;
}

inline Model read(const nlohmann::json& config) { return read_config(config, "c.json"); }

// The message with which reading fails; empty when it succeeds.
template <typename Call>
std::string failure(Call call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

inline std::string refusal(const nlohmann::json& config) {
  return failure([&] { read(config); });
}

// A folder that goes away with the test.
class Folder {
 public:
  Folder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "ridge-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("mkdtemp");
    path_ = pattern;
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::string operator/(const std::string& name) const { return (path_ / name).string(); }
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

}  // namespace ridge::test
