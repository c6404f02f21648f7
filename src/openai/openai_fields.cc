#include "openai/openai_fields.h"

#include <cassert>

#include "base/error.h"
#include "openai/openai_request.h"

namespace ridge {
namespace {

constexpr const char* kWhere = "request";

// The readers of base/json.h with the field's name in their error.
template <typename Read>
auto named(const char* name, Read read) {
  try {
    return read();
  } catch (const Error& error) {
    throw OptionError(name, error.what());
  }
}

}  // namespace

RequestFields::RequestFields(std::string_view body, OpenAiApi api)
    : api_(api), bytes_left_(kBodyTreeBytes + kBodyTreeFactor * body.size()) {
  const auto is_known = [api](std::string_view key) { return is_known_field(key, api); };
  const auto has_tokens = [](std::string_view key) {
    return key == "prompt" || key == "tokens" || key == "stop_token_ids";
  };
  const auto most_bytes = [](std::string_view key) {
    const bool large = key == "prompt" || key == "tokens" || key == "messages" || key == "tools";
    return large ? SIZE_MAX : kSmallFieldBytes;
  };
  object_ = parse_members(
      body, "the body",
      {.keep = is_known, .pack = has_tokens, .most_bytes = most_bytes, .most_keys = kMaxObjectKeys},
      bytes_left_);
  check_neutral_fields(object_, api);
}

const Json* RequestFields::find(const char* name) const {
  assert(is_known_field(name, api_));
  const auto found = object_.find(name);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

Json RequestFields::take(const char* name) {
  assert(is_known_field(name, api_));
  const auto found = object_.find(name);
  return found == object_.end() ? Json() : std::move(*found);
}

Json RequestFields::parse_object(std::string_view text, const char* name) {
  return named(name, [&] {
    return parse_members(
        text, name, {.keep = [](std::string_view) { return true; }, .most_keys = kMaxObjectKeys},
        bytes_left_);
  });
}

// An object with this field alone, for the readers of base/json.h. What a list or an object holds
// is left out: these readers only refuse it.
nlohmann::json RequestFields::scalar(const char* name) const {
  using Scalar = nlohmann::json;
  const Json* value = find(name);
  if (value == nullptr) return Scalar::object();
  if (value->is_object()) return {{name, Scalar::object()}};
  if (value->is_array() || value->is_binary()) return {{name, Scalar::array()}};
  return {{name, Scalar(*value)}};
}

std::optional<double> RequestFields::number(const char* name, double low, double high) const {
  return named(name, [&] { return number_field(scalar(name), name, kWhere, low, high); });
}

std::optional<int64_t> RequestFields::integer(const char* name, int64_t low, int64_t high) const {
  return named(name, [&] { return integer_field(scalar(name), name, kWhere, low, high); });
}

bool RequestFields::boolean(const char* name, bool otherwise) const {
  return named(name, [&] { return bool_field(scalar(name), name, kWhere); }).value_or(otherwise);
}

std::optional<std::string> RequestFields::string(const char* name) const {
  return named(name, [&] { return string_field(scalar(name), name, kWhere); });
}

std::vector<std::string> RequestFields::strings(const char* name, size_t most) const {
  const Json* value = find(name);
  if (value == nullptr) return {};
  if (value->is_string()) return {value->get<std::string>()};
  const auto fail = [&] {
    throw OptionError(name, fmt::format("{} must be a string or a list of at most {}", name, most));
  };
  if (!value->is_array() || value->size() > most) fail();
  std::vector<std::string> list;
  for (const Json& part : *value) {
    if (!part.is_string()) fail();
    list.push_back(part.get<std::string>());
  }
  return list;
}

std::vector<Token> token_list(const Json& list, const char* name, int vocab) {
  const auto fail = [&](const std::string& found) {
    throw OptionError(
        name, fmt::format("{} must hold token ids from 0 to {}, not {}", name, vocab - 1, found));
  };
  if (auto tokens = packed_integers(list)) {
    for (const Token token : *tokens) {
      if (token < 0 || token >= vocab) fail(std::to_string(token));
    }
    return *std::move(tokens);
  }
  if (!list.is_array()) {
    throw OptionError(name, fmt::format("{} must be a list of token ids", name));
  }
  // A list of integers alone is packed.
  for (const Json& id : list) {
    if (!id.is_number_integer() || id < 0 || id >= vocab) {
      fail(id.is_number() ? id.dump() : id.type_name());
    }
  }
  return {};
}

}  // namespace ridge
