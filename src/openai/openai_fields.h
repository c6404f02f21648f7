// Fields of a request's body. Every reader throws OptionError with the field's name.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_members.h"
#include "text/tokenizer/tokenizer.h"

namespace ridge {

enum class OpenAiApi : uint8_t { completion, chat, tokenize, detokenize };

// What Ridge looks at (openai_field_table.cc). Of other fields nothing is kept.
bool is_known_field(std::string_view name, OpenAiApi api);
// Throws OptionError for a field that Ridge does not execute and that would change the answer.
void check_neutral_fields(const Json& body, OpenAiApi api);

// The fields of a body as a tree whose memory is bounded: kBodyTreeBytes, and kBodyTreeFactor bytes
// for each byte of the body; kSmallFieldBytes for a field that is neither prompt nor chat. JSON's
// smallest values take 24 times their text ("{},"), messages of 100 bytes 3.5 times.
inline constexpr size_t kBodyTreeBytes = size_t{12} << 20;
inline constexpr size_t kBodyTreeFactor = 4;
inline constexpr size_t kSmallFieldBytes = size_t{4} << 20;

class RequestFields {
 public:
  // Throws Error where the body is not a JSON object in UTF-8, OptionError where a field comes
  // twice (or a key in one of its objects), takes too much memory, has an object of more than
  // kMaxObjectKeys keys, or is not to be ignored.
  RequestFields(std::string_view body, OpenAiApi api);

  const Json* find(const char* name) const;  // null where missing or null
  std::optional<double> number(const char* name, double low, double high) const;
  std::optional<int64_t> integer(const char* name, int64_t low, int64_t high) const;
  bool boolean(const char* name, bool otherwise) const;
  std::optional<std::string> string(const char* name) const;
  // A string, or a list of at most `most` strings.
  std::vector<std::string> strings(const char* name, size_t most) const;

  Json take(const char* name);  // the field itself; null where missing

  // The JSON object in `text`, whose memory counts as the body's does; `name` is the field in
  // errors.
  Json parse_object(std::string_view text, const char* name);

 private:
  nlohmann::json scalar(const char* name) const;

  OpenAiApi api_;
  size_t bytes_left_;
  Json object_;
};

// Ids below `vocab`; `name` is the field in errors.
std::vector<Token> token_list(const Json& list, const char* name, int vocab);

// messages and how they become a prompt; tools and their choice; response_format and json_schema
// (openai_chat_fields.cc).
struct OpenAiRequest;
void read_messages(RequestFields& fields, OpenAiRequest& to);
void read_tools(RequestFields& fields, OpenAiRequest& to);
void read_response_format(RequestFields& fields, OpenAiRequest& to);

}  // namespace ridge
