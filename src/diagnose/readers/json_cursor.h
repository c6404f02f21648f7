// The fields of a JSON object as they are written, in one pass and without a tree: a trace has
// millions of events, of which few fields are read.
#pragma once

#include <cstring>
#include <string_view>

#include "base/json.h"

namespace ridge {

// Steps through a text whose brackets, quotes, colons and commas must be where JSON has them. Words
// and numbers are not looked into (Python writes NaN), nor what strings hold.
class JsonCursor {
 public:
  explicit JsonCursor(std::string_view text) : at_(text.data()), end_(at_ + text.size()) {}

  // Calls field(key, value) for each field of the object that begins here, both as they are
  // written. False: there is no valid object of at most kMaxJsonDepth levels; the fields before the
  // fault have been seen.
  template <typename Field>
  bool read_object(Field&& field, int depth = 0) {
    return read_list('{', '}', depth, [&] {
      std::string_view key, value;
      if (!read_string(key) || !take(':') || !read_value(value, depth + 1)) return false;
      field(key, value);
      return true;
    });
  }

 private:
  void skip_space() {
    while (at_ < end_ && (*at_ == ' ' || *at_ == '\n' || *at_ == '\r' || *at_ == '\t')) ++at_;
  }
  bool take(char wanted) {
    skip_space();
    if (at_ == end_ || *at_ != wanted) return false;
    ++at_;
    return true;
  }
  template <typename Item>
  bool read_list(char open, char close, int depth, Item&& item) {
    if (depth >= kMaxJsonDepth || !take(open)) return false;
    if (take(close)) return true;
    do {
      if (!item()) return false;
    } while (take(','));
    return take(close);
  }
  bool read_string(std::string_view& token) {
    if (!take('"')) return false;
    const char* const begin = at_ - 1;
    for (;;) {
      const void* const quote = std::memchr(at_, '"', size_t(end_ - at_));
      if (quote == nullptr) return false;
      const char* slash = static_cast<const char*>(quote);
      at_ = slash + 1;
      while (slash[-1] == '\\') --slash;  // ends at the opening quote
      if ((at_ - 1 - slash) % 2 == 0) break;
    }
    token = {begin, size_t(at_ - begin)};
    return true;
  }
  bool read_value(std::string_view& token, int depth) {
    skip_space();
    if (at_ == end_) return false;
    if (*at_ == '"') return read_string(token);
    const char* const begin = at_;
    bool valid = true;
    if (*at_ == '{') {
      valid = read_object([](std::string_view, std::string_view) {}, depth);
    } else if (*at_ == '[') {
      std::string_view item;
      valid = read_list('[', ']', depth, [&] { return read_value(item, depth + 1); });
    } else {
      while (at_ < end_ && is_word(*at_)) ++at_;
      valid = at_ > begin;
    }
    token = {begin, size_t(at_ - begin)};
    return valid;
  }
  static bool is_word(char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '.' ||
           c == '-' || c == '+';
  }

  const char* at_;
  const char* end_;
};

}  // namespace ridge
