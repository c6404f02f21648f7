// A JSON text of any length, cut into its values in bounded memory. The cutter looks only at
// strings and brackets; whoever takes a value parses it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace ridge {

class JsonStream {
 public:
  // Fills up to `size` bytes and returns how many; 0: the end.
  using Source = std::function<size_t(char* into, size_t size)>;
  explicit JsonStream(Source source, size_t longest_value = size_t{4} << 20);

  // The next character that is no white space; 0 at the end.
  char peek();
  void skip() { ++begin_; }  // the peeked character

  enum class Taken { value, too_long, ended };
  // The value that begins at the peeked character, without its neighbours. The view is valid until
  // the next call. A value that is too long is passed over. `ended`: the text ends inside it.
  Taken take(std::string_view& value);

  uint64_t position() const { return dropped_ + begin_; }  // bytes before the next character

 private:
  bool refill();
  // Advances `at_` behind the value that began; false where the buffer ends first.
  bool scan_value();

  Source source_;
  std::vector<char> buffer_;
  size_t begin_ = 0, end_ = 0;  // what is not taken yet
  uint64_t dropped_ = 0;        // bytes of the text before the buffer
  bool ended_ = false;
  // Of the value that is being scanned.
  size_t at_ = 0;
  uint64_t depth_ = 0;
  bool in_string_ = false, escaped_ = false;
};

}  // namespace ridge
