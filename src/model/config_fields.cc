#include "model/config_fields.h"

#include "base/error.h"
#include "base/json.h"

namespace ridge {

namespace {

// Longer than any list of modules; lists of numbers are per layer and never this long.
constexpr size_t kMaxListLength = 20'000;

const nlohmann::json kEmptyObject = nlohmann::json::object();

}  // namespace

Fields::Fields(const nlohmann::json& object, std::string where)
    : object_(&object), where_(std::move(where)) {
  if (!object.is_object()) throw Error("{}: must be a JSON object", where_);
}

bool Fields::has(const char* key) const {
  auto it = object_->find(key);
  return it != object_->end() && !it->is_null();
}

std::optional<int64_t> Fields::maybe_integer(Keys keys, int64_t low, int64_t high) const {
  for (const char* key : keys) {
    if (has(key)) return integer_field(*object_, key, where_, low, high);
  }
  return std::nullopt;
}

int64_t Fields::integer(Keys keys, int64_t low, int64_t high) const {
  auto value = maybe_integer(keys, low, high);
  if (!value) missing(keys);
  return *value;
}

int64_t Fields::integer_or(Keys keys, int64_t otherwise, int64_t low, int64_t high) const {
  return maybe_integer(keys, low, high).value_or(otherwise);
}

std::optional<double> Fields::number(const char* key, double low, double high) const {
  return number_field(*object_, key, where_, low, high);
}

bool Fields::flag(const char* key, bool otherwise) const {
  return bool_field(*object_, key, where_).value_or(otherwise);
}

std::optional<std::string> Fields::text(const char* key) const {
  return string_field(*object_, key, where_);
}

const nlohmann::json& Fields::list(const char* key) const {
  const nlohmann::json& value = object_->at(key);
  if (!value.is_array()) throw Error("{}: {} must be a list", where_, key);
  if (value.size() > kMaxListLength) {
    throw Error("{}: {} has {} entries, at most {} are read", where_, key, value.size(),
                kMaxListLength);
  }
  return value;
}

std::vector<int64_t> Fields::integers(const char* key, int64_t low, int64_t high) const {
  std::vector<int64_t> values;
  if (!has(key)) return values;
  const nlohmann::json& items = list(key);
  // Lists are read again for every layer, so a hostile length must not multiply.
  if (items.size() > size_t(kMaxLayers)) {
    throw Error("{}: {} has {} entries, more than {} layers", where_, key, items.size(),
                kMaxLayers);
  }
  for (const auto& item : items) {
    // JSON integers above 2^63 are unsigned in the parser; the bound rejects them as it should.
    bool valid = item.is_number_integer() &&
                 !(item.is_number_unsigned() && item.get<uint64_t>() > uint64_t(INT64_MAX));
    if (!valid || item.get<int64_t>() < low || item.get<int64_t>() > high) {
      throw Error("{}: {} must hold whole numbers from {} to {}", where_, key, low, high);
    }
    values.push_back(item.get<int64_t>());
  }
  return values;
}

std::vector<std::string> Fields::texts(const char* key) const {
  std::vector<std::string> values;
  if (!has(key)) return values;
  for (const auto& item : list(key)) {
    if (!item.is_string()) throw Error("{}: {} must hold strings", where_, key);
    values.push_back(item.get<std::string>());
  }
  return values;
}

Fields Fields::object(const char* key) const {
  if (!has(key)) return Fields(kEmptyObject, where_);
  const nlohmann::json& value = object_->at(key);
  if (!value.is_object()) throw Error("{}: {} must be an object", where_, key);
  return Fields(value, where_ + ": " + key);
}

void Fields::missing(Keys keys) const {
  std::string names;
  size_t at = 0;
  for (const char* key : keys) {
    if (at > 0) names += at + 1 == keys.size() ? " or " : ", ";
    names += key;
    ++at;
  }
  throw Error("{}: {} is missing", where_, names);
}

}  // namespace ridge
