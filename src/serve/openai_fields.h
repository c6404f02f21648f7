// Fields of a request's body. Every reader throws OptionError with the field's name.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "engine/tokenizer/tokenizer.h"

namespace ridge {

class RequestFields {
 public:
  // Throws Error where the body is not a JSON object in UTF-8. `body` must outlive this.
  explicit RequestFields(std::string_view body);

  const nlohmann::json& object() const { return object_; }
  const nlohmann::json* find(const char* name) const;  // null where missing or null
  std::optional<double> number(const char* name, double low, double high) const;
  std::optional<int64_t> integer(const char* name, int64_t low, int64_t high) const;
  bool boolean(const char* name, bool otherwise) const;
  std::optional<std::string> string(const char* name) const;
  // A string, or a list of at most `most` strings.
  std::vector<std::string> strings(const char* name, size_t most) const;

  // The same field with the keys of its objects in the client's order. Objects have at most
  // kMaxObjectKeys keys.
  Json ordered(const char* name) const;

 private:
  std::string_view body_;
  nlohmann::json object_;
  mutable std::optional<Json> ordered_;
};

// The JSON object in `text`, with its keys in their order; `name` is the field in errors.
Json ordered_object(std::string_view text, const char* name);

// Ids below `vocab`; `name` is the field in errors.
std::vector<Token> token_list(const nlohmann::json& list, const char* name, int vocab);

// messages, tools, tool_choice, response_format, chat_template_kwargs (openai_chat_fields.cc).
struct OpenAiRequest;
void read_messages(const RequestFields& fields, OpenAiRequest& to);
void read_tools(const RequestFields& fields, OpenAiRequest& to);
void read_response_format(const RequestFields& fields, OpenAiRequest& to);

}  // namespace ridge
