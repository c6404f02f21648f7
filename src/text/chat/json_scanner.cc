#include "text/chat/json_scanner.h"

#include <nlohmann/json.hpp>
#include <string_view>

namespace ridge {
namespace {

constexpr size_t kMaxOpen = 64;       // brackets inside each other
constexpr size_t kMaxNumber = 1'000;  // characters

bool is_json_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

}  // namespace

JsonScanner::Result JsonScanner::end_value() {
  state_ = State::after_value;
  return open_.empty() ? Result::done : Result::more;
}

JsonScanner::Result JsonScanner::begin_value(char c) {
  if (c == '{' || c == '[') {
    if (open_.size() == kMaxOpen) return Result::bad;
    open_ += c;
    state_ = c == '{' ? State::first_key : State::first_item;
  } else if (c == '"') {
    in_key_ = false;
    state_ = State::string;
  } else if (c == '-' || (c >= '0' && c <= '9')) {
    token_ = c;
    state_ = State::number;
  } else if (c == 't' || c == 'f' || c == 'n') {
    rest_ = c == 't' ? "rue" : c == 'f' ? "alse" : "ull";
    state_ = State::literal;
  } else {
    return Result::bad;
  }
  return Result::more;
}

JsonScanner::Result JsonScanner::close(char bracket) {
  if (open_.empty() || open_.back() != (bracket == '}' ? '{' : '[')) return Result::bad;
  open_.pop_back();
  return end_value();
}

JsonScanner::Result JsonScanner::read_string(char c) {
  if (state_ == State::escape) {
    if (std::string_view("\"\\/bfnrtu").find(c) == std::string_view::npos) return Result::bad;
    digits_ = 4;
    state_ = c == 'u' ? State::unicode : State::string;
  } else if (state_ == State::unicode) {
    if (std::string_view("0123456789abcdefABCDEF").find(c) == std::string_view::npos) {
      return Result::bad;
    }
    if (--digits_ == 0) state_ = State::string;
  } else if (c == '\\') {
    state_ = State::escape;
  } else if (c == '"') {
    if (!in_key_) return end_value();
    state_ = State::colon;
  } else if (static_cast<unsigned char>(c) < 0x20) {
    return Result::bad;
  }
  return Result::more;
}

JsonScanner::Result JsonScanner::read_number(char c) {
  if (std::string_view("0123456789+-.eE").find(c) != std::string_view::npos) {
    token_ += c;
    return token_.size() > kMaxNumber ? Result::bad : Result::more;
  }
  if (!nlohmann::json::accept(token_)) return Result::bad;
  state_ = State::after_value;
  return open_.empty() ? Result::after : read(c);
}

JsonScanner::Result JsonScanner::read(char c) {
  if (state_ == State::string || state_ == State::escape || state_ == State::unicode) {
    return read_string(c);
  }
  if (state_ == State::number) return read_number(c);
  if (state_ == State::literal) {
    if (c != *rest_) return Result::bad;
    return *++rest_ == 0 ? end_value() : Result::more;
  }
  if (is_json_space(c)) return Result::more;
  switch (state_) {
    case State::value:
      return begin_value(c);
    case State::first_item:
      return c == ']' ? close(c) : begin_value(c);
    case State::first_key:
    case State::key:
      if (c == '}' && state_ == State::first_key) return close(c);
      if (c != '"') return Result::bad;
      in_key_ = true;
      state_ = State::string;
      return Result::more;
    case State::colon:
      state_ = State::value;
      return c == ':' ? Result::more : Result::bad;
    default:  // after_value
      if (c == '}' || c == ']') return close(c);
      if (c != ',' || open_.empty()) return Result::bad;
      state_ = open_.back() == '{' ? State::key : State::value;
      return Result::more;
  }
}

}  // namespace ridge
