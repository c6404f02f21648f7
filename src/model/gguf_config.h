// The one translation of a GGUF's metadata: written as a Hugging Face config, which read_config
// reads.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "model/gguf.h"

namespace ridge {

// Metadata by key. `own` keys belong to the architecture: "block_count" is "llama.block_count".
class GgufMetadata {
 public:
  // Throws Error where general.architecture is missing.
  GgufMetadata(const GgufHeader& header, const std::string& where);

  const std::string& architecture() const { return architecture_; }
  const nlohmann::json* value(std::string_view key) const;  // null where absent
  const nlohmann::json* own(std::string_view key) const;
  // Throws Error where the value is not a number.
  double number(std::string_view key, double otherwise) const;
  bool tensor(std::string_view name) const { return header_.tensors.contains(name); }
  bool has_tensors() const { return !header_.tensors.empty(); }
  const GgufHeader& header() const { return header_; }
  const std::string& where() const { return where_; }

 private:
  const GgufHeader& header_;
  const std::string& where_;
  std::string architecture_;
};

// Where metadata is silent, the config says what llama.cpp assumes in its code. Llama 3's RoPE
// scaling is not part of it: GGUF keeps it as a tensor of divisors (rope_freqs.weight). Throws
// Error for architectures without a translation and for values that differ between layers.
nlohmann::json config_from_gguf(const GgufMetadata& metadata);

}  // namespace ridge
