#include "diagnose/readers/json_stream.h"

#include <array>
#include <cstring>
#include <utility>

namespace ridge {
namespace {

enum JsonByte : uint8_t { kPlain, kQuote, kOpen, kClose, kEnd };

// What a byte means outside strings. kEnd ends a number or a word.
constexpr std::array<uint8_t, 256> make_json_bytes() {
  std::array<uint8_t, 256> kinds{};
  kinds['"'] = kQuote;
  kinds['{'] = kinds['['] = kOpen;
  kinds['}'] = kinds[']'] = kClose;
  for (unsigned char c : {',', ':', ' ', '\t', '\n', '\r'}) kinds[c] = kEnd;
  return kinds;
}
constexpr std::array<uint8_t, 256> kJsonBytes = make_json_bytes();

bool is_json_space(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

}  // namespace

JsonStream::JsonStream(Source source, size_t longest_value)
    : source_(std::move(source)), buffer_(longest_value) {}

bool JsonStream::refill() {
  if (ended_) return false;
  if (begin_ > 0) {
    std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
    at_ -= begin_;
    end_ -= begin_;
    dropped_ += begin_;
    begin_ = 0;
  }
  const size_t got = source_(buffer_.data() + end_, buffer_.size() - end_);
  end_ += got;
  ended_ = got == 0;
  return got > 0;
}

char JsonStream::peek() {
  for (;;) {
    while (begin_ < end_ && is_json_space(buffer_[begin_])) ++begin_;
    if (begin_ < end_) return buffer_[begin_];
    at_ = begin_;
    if (!refill()) return 0;
  }
}

bool JsonStream::scan_value() {
  const char* text = buffer_.data();
  const size_t end = end_;
  size_t at = at_;
  while (at < end) {
    if (in_string_) {
      if (escaped_) {
        escaped_ = false;
        ++at;
        continue;
      }
      while (at < end && text[at] != '"' && text[at] != '\\') ++at;
      if (at == end) break;
      escaped_ = text[at] == '\\';
      in_string_ = escaped_;
      ++at;
      if (!in_string_ && depth_ == 0) return at_ = at, true;
      continue;
    }
    uint8_t kind = kPlain;
    if (depth_ > 0)
      while (at < end && ((kind = kJsonBytes[uint8_t(text[at])]) == kPlain || kind == kEnd)) ++at;
    else
      while (at < end && (kind = kJsonBytes[uint8_t(text[at])]) == kPlain) ++at;
    if (at == end) break;
    if (depth_ == 0 && at > begin_ && kind != kPlain) return at_ = at, true;  // after a number
    ++at;
    if (kind == kQuote) in_string_ = true;
    if (kind == kOpen) ++depth_;
    if (kind == kClose && (depth_ == 0 || --depth_ == 0)) return at_ = at, true;
    if (kind == kEnd && depth_ == 0) return at_ = at, true;  // a stray separator
  }
  at_ = at;
  return false;
}

JsonStream::Taken JsonStream::take(std::string_view& value) {
  peek();
  at_ = begin_;
  depth_ = 0;
  in_string_ = escaped_ = false;
  bool too_long = false;
  while (!scan_value()) {
    if (begin_ == 0 && end_ == buffer_.size()) {
      // No room for the rest of the value: forget its beginning.
      too_long = true;
      dropped_ += end_ - 1;
      buffer_[0] = buffer_[end_ - 1];
      at_ = end_ = 1;
    }
    if (refill()) continue;
    if (depth_ == 0 && !in_string_ && at_ > begin_) break;  // a number at the very end
    begin_ = end_;
    return Taken::ended;
  }
  value = {buffer_.data() + begin_, at_ - begin_};
  begin_ = at_;
  return too_long ? Taken::too_long : Taken::value;
}

}  // namespace ridge
