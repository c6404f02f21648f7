#include "serve/openai_fields.h"

#include "base/error.h"
#include "serve/openai_request.h"

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

// Objects that keep their order look keys up one by one: quadratic in their number.
void check_key_counts(const nlohmann::json& value, const char* name) {
  if (value.is_object() && value.size() > size_t{kMaxObjectKeys}) {
    throw OptionError(name,
                      fmt::format("{}: an object with more than {} keys", name, kMaxObjectKeys));
  }
  if (!value.is_structured()) return;
  for (const nlohmann::json& part : value) check_key_counts(part, name);
}

}  // namespace

RequestFields::RequestFields(std::string_view body)
    : body_(body), object_(parse_json(body, "the body")) {
  if (!object_.is_object()) throw Error("the body must be a JSON object");
}

const nlohmann::json* RequestFields::find(const char* name) const {
  const auto found = object_.find(name);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

std::optional<double> RequestFields::number(const char* name, double low, double high) const {
  return named(name, [&] { return number_field(object_, name, kWhere, low, high); });
}

std::optional<int64_t> RequestFields::integer(const char* name, int64_t low, int64_t high) const {
  return named(name, [&] { return integer_field(object_, name, kWhere, low, high); });
}

bool RequestFields::boolean(const char* name, bool otherwise) const {
  return named(name, [&] { return bool_field(object_, name, kWhere); }).value_or(otherwise);
}

std::optional<std::string> RequestFields::string(const char* name) const {
  return named(name, [&] { return string_field(object_, name, kWhere); });
}

std::vector<std::string> RequestFields::strings(const char* name, size_t most) const {
  const nlohmann::json* value = find(name);
  if (value == nullptr) return {};
  if (value->is_string()) return {value->get<std::string>()};
  const auto fail = [&] {
    throw OptionError(name, fmt::format("{} must be a string or a list of at most {}", name, most));
  };
  if (!value->is_array() || value->size() > most) fail();
  std::vector<std::string> list;
  for (const nlohmann::json& part : *value) {
    if (!part.is_string()) fail();
    list.push_back(part.get<std::string>());
  }
  return list;
}

Json RequestFields::ordered(const char* name) const {
  const nlohmann::json* value = find(name);
  if (value == nullptr) return {};
  if (!ordered_) {
    check_key_counts(object_, name);
    ordered_ = Json::parse(body_.begin(), body_.end());
  }
  return (*ordered_)[name];
}

Json ordered_object(std::string_view text, const char* name) {
  return named(name, [&] {
    const nlohmann::json object = parse_json(text, name);
    if (!object.is_object()) throw Error("{}: must be a JSON object", name);
    check_key_counts(object, name);
    return Json::parse(text.begin(), text.end());
  });
}

std::vector<Token> token_list(const nlohmann::json& list, const char* name, int vocab) {
  if (!list.is_array())
    throw OptionError(name, fmt::format("{} must be a list of token ids", name));
  std::vector<Token> tokens;
  tokens.reserve(list.size());
  for (const nlohmann::json& id : list) {
    const bool whole = id.is_number_integer() && id >= 0 && id < vocab;
    if (!whole) {
      throw OptionError(name, fmt::format("{} must hold token ids from 0 to {}, not {}", name,
                                          vocab - 1, id.is_number() ? id.dump() : id.type_name()));
    }
    tokens.push_back(id.get<Token>());
  }
  return tokens;
}

}  // namespace ridge
