#include "load/completion_stream.h"

#include <nlohmann/json.hpp>

namespace ridge {
namespace {

using Parsed = nlohmann::json;

// A member of an object, or null.
const Parsed& member(const Parsed& object, const char* key) {
  static const Parsed null;
  if (!object.is_object()) return null;
  const auto found = object.find(key);
  return found == object.end() ? null : *found;
}

int count_of(const Parsed& value) {
  return value.is_number() && value.get<double>() >= 0 && value.get<double>() < 1e9
             ? value.get<int>()
             : 0;
}

// The text that a choice adds: of a completion, of a chat, or of its reasoning or tool calls.
std::string text_of(const Parsed& choice) {
  if (const Parsed& text = member(choice, "text"); text.is_string()) return text.get<std::string>();
  const Parsed& delta = member(choice, "delta");
  std::string text;
  for (const char* key : {"content", "reasoning_content", "reasoning"}) {
    if (const Parsed& part = member(delta, key); part.is_string()) text += part.get<std::string>();
  }
  if (const Parsed& calls = member(delta, "tool_calls"); calls.is_array() && !calls.empty()) {
    text += calls.dump(-1, ' ', true, Parsed::error_handler_t::replace);
  }
  return text;
}

// OpenAI's {"error": {"message"}}, or what else servers put there.
std::string error_of(const Parsed& body) {
  const Parsed& error = member(body, "error");
  if (error.is_string()) return error.get<std::string>();
  if (const Parsed& message = member(error, "message"); message.is_string()) {
    return message.get<std::string>();
  }
  if (!error.is_null()) return error.dump(-1, ' ', true, Parsed::error_handler_t::replace);
  const Parsed& detail = member(body, "detail");
  return detail.is_string() ? detail.get<std::string>() : "";
}

}  // namespace

void CompletionStream::start(double time) {
  const bool keep = keep_text;
  *this = {};
  keep_text = keep;
  start_s_ = time;
}

void CompletionStream::push(std::string_view bytes, double time) {
  const bool read = events_.push(bytes, [&](std::string_view data) { take_event(data, time); });
  if (!read) malformed_ = true;
}

void CompletionStream::push_error(std::string_view bytes) {
  if (error_body_.size() + bytes.size() > 64 << 10) return;
  error_body_ += bytes;
  if (const Parsed body = Parsed::parse(error_body_, nullptr, false); !body.is_discarded()) {
    error_ = error_of(body);
  }
}

void CompletionStream::take_event(std::string_view data, double time) {
  if (data == "[DONE]") {
    done_ = true;
    return;
  }
  const Parsed chunk = Parsed::parse(data, nullptr, false);
  if (!chunk.is_object()) {
    malformed_ = true;
    return;
  }
  if (!member(chunk, "error").is_null()) {
    error_ = error_of(chunk);
    if (error_.empty()) error_ = "without a message";
    return;
  }
  if (const Parsed& usage = member(chunk, "usage"); usage.is_object()) {
    has_usage_ = true;
    prompt_tokens_ = count_of(member(usage, "prompt_tokens"));
    output_tokens_ = count_of(member(usage, "completion_tokens"));
    cached_tokens_ = count_of(member(member(usage, "prompt_tokens_details"), "cached_tokens"));
  }
  const Parsed& choices = member(chunk, "choices");
  if (!choices.is_array() || choices.empty()) return;
  if (first_s_ < 0) first_s_ = time;
  last_s_ = time;
  const Parsed& choice = choices[0];
  if (!member(choice, "finish_reason").is_null()) finished_ = true;
  const std::string text = text_of(choice);
  if (text.empty()) return;
  ++chunks_;
  if (last_text_s_ >= 0) gaps_.push_back(static_cast<float>(time - last_text_s_));
  last_text_s_ = time;
  if (keep_text) text_ += text;
}

}  // namespace ridge
