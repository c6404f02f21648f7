// The fields of one JSON object in a model's config, read with their bounds. Every failure names
// the file and the field.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ridge {

// Bounds no real model comes near; they keep every product of dimensions finite and exact.
inline constexpr int64_t kMaxLayers = 2048;
inline constexpr int64_t kMaxWidth = int64_t{1} << 22;  // hidden, intermediate, heads x head_dim
inline constexpr int64_t kMaxHeads = 65536;
inline constexpr int64_t kMaxVocab = int64_t{1} << 26;
inline constexpr int64_t kMaxExperts = 65536;
inline constexpr int64_t kMaxContext = int64_t{1} << 40;

class Fields {
 public:
  // One field known by different names in different families; the first one present is read.
  using Keys = std::initializer_list<const char*>;

  // Keeps a reference to `object`, which must outlive it.
  Fields(const nlohmann::json& object, std::string where);

  bool has(const char* key) const;  // present and not null
  // The field must be there.
  int64_t integer(Keys keys, int64_t low, int64_t high) const;
  std::optional<int64_t> maybe_integer(Keys keys, int64_t low, int64_t high) const;
  int64_t integer_or(Keys keys, int64_t otherwise, int64_t low, int64_t high) const;
  std::optional<double> number(const char* key, double low, double high) const;
  bool flag(const char* key, bool otherwise) const;
  std::optional<std::string> text(const char* key) const;
  // A list of integers; an absent key gives an empty list.
  std::vector<int64_t> integers(const char* key, int64_t low, int64_t high) const;
  std::vector<std::string> texts(const char* key) const;
  // A nested object, or an empty one when the key is absent.
  Fields object(const char* key) const;

  const nlohmann::json& json() const { return *object_; }
  const std::string& where() const { return where_; }
  // "a, b or c": the names a missing field may have.
  [[noreturn]] void missing(Keys keys) const;

 private:
  const nlohmann::json& list(const char* key) const;

  const nlohmann::json* object_;
  std::string where_;
};

}  // namespace ridge
