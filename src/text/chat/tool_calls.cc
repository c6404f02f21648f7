#include "text/chat/tool_calls.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <utility>

namespace ridge {
namespace {

using nlohmann::json;

// A further key means that the object is an answer in JSON, not a call.
constexpr std::array<std::string_view, 5> kCallKeys = {"name", "arguments", "parameters", "type",
                                                       "id"};

bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

}  // namespace

ToolCallStyle find_tool_call_style(std::string_view chat_template) {
  const auto has = [&](std::string_view mark) {
    return chat_template.find(mark) != chat_template.npos;
  };
  if (has("<function=")) return ToolCallStyle::none;  // calls that are not JSON
  if (has("<tool_call>")) return ToolCallStyle::tagged;
  if (has("<|python_tag|>") || has("\"parameters\"")) return ToolCallStyle::bare;
  return ToolCallStyle::none;
}

ToolCallParser::ToolCallParser(ToolCallStyle style)
    : style_(style),
      open_mark_(style == ToolCallStyle::tagged ? "<tool_call>" : "<|python_tag|>"),
      close_mark_(style == ToolCallStyle::tagged ? "</tool_call>" : "") {}

ToolCallOutput ToolCallParser::push(std::string_view text) {
  ToolCallOutput out;
  if (style_ == ToolCallStyle::none) {
    out.content = text;
  } else {
    for (char c : text) read(c, out);
  }
  return out;
}

ToolCallOutput ToolCallParser::finish() {
  ToolCallOutput out;
  if (state_ == State::content) add_content(std::exchange(held_, {}), out);
  if (state_ != State::content && !announced_) add_content(std::exchange(raw_, {}), out);
  if (!after_call_) out.content += spaces_;
  spaces_.clear();
  state_ = State::content;
  return out;
}

void ToolCallParser::read(char c, ToolCallOutput& out) {
  if (state_ == State::content) return read_content(c, out);
  if (state_ == State::closing) return read_closing(c, out);
  raw_ += c;
  if (state_ == State::value) return read_value(c, out);
  read_object(c, out);
}

void ToolCallParser::read_content(char c, ToolCallOutput& out) {
  if (style_ == ToolCallStyle::bare && at_start_ && held_.empty()) {
    if (c == '{') {
      begin_call("");
      return read(c, out);
    }
    if (c == ';' && after_call_) return;  // between two calls
  }
  held_ += c;
  size_t content = 0;  // of `held_`, what cannot begin a mark
  while (!open_mark_.starts_with(std::string_view(held_).substr(content))) ++content;
  add_content(std::string_view(held_).substr(0, content), out);
  held_.erase(0, content);
  if (held_ == open_mark_) begin_call(std::exchange(held_, {}));
}

void ToolCallParser::add_content(std::string_view text, ToolCallOutput& out) {
  for (char c : text) {
    if (is_blank(c)) {
      spaces_ += c;
      continue;
    }
    if (!after_call_) out.content += spaces_;
    spaces_.clear();
    out.content += c;
    at_start_ = after_call_ = false;
  }
}

void ToolCallParser::begin_call(std::string mark) {
  state_ = State::opening;
  raw_ = spaces_ + mark;
  spaces_.clear();
  name_.clear();
  arguments_.clear();
  announced_ = streams_ = has_comma_ = false;
}

void ToolCallParser::read_object(char c, ToolCallOutput& out) {
  if (is_blank(c) && state_ != State::key_text) return;
  if (state_ == State::opening && c == '{') {
    state_ = State::key;
  } else if (state_ == State::key && c == '"') {
    key_.clear();
    state_ = State::key_text;
  } else if (state_ == State::key && c == '}' && !has_comma_) {
    finish_object(out);
  } else if (state_ == State::key_text && c == '"') {
    state_ = State::colon;
    if (std::find(kCallKeys.begin(), kCallKeys.end(), key_) == kCallKeys.end()) give_up(out);
  } else if (state_ == State::key_text) {
    key_ += c;
  } else if (state_ == State::colon && c == ':') {
    state_ = State::value;
    value_.clear();
    value_began_ = false;
    scanner_ = JsonScanner();
  } else if (state_ == State::after_value && c == ',') {
    has_comma_ = true;
    state_ = State::key;
  } else if (state_ == State::after_value && c == '}') {
    finish_object(out);
  } else {
    give_up(out);
  }
}

void ToolCallParser::read_value(char c, ToolCallOutput& out) {
  if (!value_began_ && is_blank(c)) return;
  const JsonScanner::Result result = scanner_.read(c);
  if (result == JsonScanner::Result::bad) return give_up(out);
  if (result == JsonScanner::Result::after) {
    finish_value(out);
    if (state_ == State::after_value) read_object(c, out);
    return;
  }
  // Arguments go out as they come once the name is known.
  const bool first = !std::exchange(value_began_, true);
  if (first && c == '{' && at_arguments() && !name_.empty() && !announced_) {
    announce(out);
    streams_ = true;
  }
  if (streams_) {
    raw_.clear();
    add_arguments({&c, 1}, out);
  } else {
    value_ += c;
  }
  if (result == JsonScanner::Result::done) finish_value(out);
}

void ToolCallParser::finish_value(ToolCallOutput& out) {
  state_ = State::after_value;
  streams_ = false;
  if (announced_) return;
  const json value = json::parse(value_, nullptr, false);
  if (key_ == "name") {
    if (!value.is_string() || value.empty()) return give_up(out);
    name_ = value.get<std::string>();
    if (name_.empty()) return give_up(out);
  } else if (at_arguments()) {
    // Some models write the arguments as a string that holds JSON, or null for none.
    arguments_ = value.is_object() ? value_ : value.is_null() ? "{}" : "";
    if (value.is_string()) {
      arguments_ = value.get<std::string>();
      if (!json::parse(arguments_, nullptr, false).is_object()) arguments_.clear();
    }
    if (arguments_.empty()) return give_up(out);
  }
}

void ToolCallParser::announce(ToolCallOutput& out) {
  announced_ = true;
  raw_.clear();
  out.calls.push_back({calls_++, name_, ""});
}

void ToolCallParser::add_arguments(std::string_view text, ToolCallOutput& out) const {
  if (out.calls.empty() || out.calls.back().index != calls_ - 1) {
    out.calls.push_back({calls_ - 1, "", ""});
  }
  out.calls.back().arguments += text;
}

void ToolCallParser::finish_object(ToolCallOutput& out) {
  if (!announced_) {
    // Without arguments, only a mark tells a call from an answer in JSON.
    if (arguments_.empty() && style_ == ToolCallStyle::tagged) arguments_ = "{}";
    if (name_.empty() || arguments_.empty()) return give_up(out);
    announce(out);
    add_arguments(arguments_, out);
  }
  after_call_ = true;
  raw_.clear();
  state_ = close_mark_.empty() ? State::content : State::closing;
}

void ToolCallParser::read_closing(char c, ToolCallOutput& out) {
  if (held_.empty() && is_blank(c)) return;
  held_ += c;
  if (held_ == close_mark_) {
    held_.clear();
    state_ = State::content;
  } else if (!close_mark_.starts_with(held_)) {  // the call is whole without its mark
    state_ = State::content;
    for (char again : std::exchange(held_, {})) read(again, out);
  }
}

// The last character broke the call: what came before it is content, and it may begin a mark.
void ToolCallParser::give_up(ToolCallOutput& out) {
  state_ = State::content;
  std::string text = std::exchange(raw_, {});
  const char last = text.back();
  text.pop_back();
  if (announced_) after_call_ = false;
  add_content(text, out);
  at_start_ = false;
  read(last, out);
}

}  // namespace ridge
