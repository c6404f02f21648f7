// Strings of a chat template: UTF-8, and for every byte whether the template or the request wrote
// it. Operations keep that mark, so that special tokens are parsed only in what the template wrote.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

namespace ridge::jinja {

enum class Origin : char { of_template, of_request };

inline constexpr size_t kMaxText = size_t{32} << 20;  // bytes; a template that writes more fails
// Of a list, and of the parts of a text. Each takes up to 200 bytes of memory.
inline constexpr size_t kMaxItems = size_t{1} << 18;
void check_items(size_t count);  // throws Error beyond

class Text {
 public:
  Text() = default;
  Text(std::string_view bytes, Origin origin) { append(bytes, origin); }

  const std::string& bytes() const { return bytes_; }
  size_t size() const { return bytes_.size(); }  // in bytes
  bool empty() const { return bytes_.empty(); }
  Origin origin(size_t at) const { return static_cast<Origin>(origins_[at]); }

  // All of these throw Error beyond kMaxText.
  void append(std::string_view bytes, Origin origin) {
    check_room(bytes.size());
    bytes_.append(bytes);
    origins_.append(bytes.size(), static_cast<char>(origin));
  }
  void append(const Text& other) {
    check_room(other.size());
    bytes_.append(other.bytes_);
    origins_.append(other.origins_);
  }
  void append(const Text& other, size_t begin, size_t end) {
    check_room(end - begin);
    bytes_.append(other.bytes_, begin, end - begin);
    origins_.append(other.origins_, begin, end - begin);
  }
  Text slice(size_t begin, size_t end) const {
    Text part;
    part.append(*this, begin, end);
    return part;
  }

 private:
  void check_room(size_t more) const {
    if (bytes_.size() + more > kMaxText) refuse_growth();
  }
  [[noreturn]] static void refuse_growth();
  std::string bytes_;
  std::string origins_;  // an Origin for each byte
};

// The character that starts at `at`. A byte that starts none is a character of its own, U+FFFD.
struct Character {
  char32_t code = 0;
  size_t size = 0;  // in bytes
};
Character character_at(std::string_view text, size_t at);
std::string to_utf8(char32_t code);
bool is_space(char32_t code);  // what Python's str.strip() removes

// Where each character starts, and the end of the text.
std::vector<size_t> character_starts(const Text& text);
size_t character_count(std::string_view text);

inline constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();

// Python's methods of str. `characters` are those to strip; null: white space.
Text strip(const Text& text, bool left, bool right, const Text* characters);
Text replace(const Text& text, std::string_view from, const Text& to, int64_t most);
// At most `most` cuts; without a separator at runs of white space, which then give no empty parts.
std::vector<Text> split(const Text& text, std::string_view separator, int64_t most);
std::vector<Text> split_spaces(const Text& text, int64_t most);
std::vector<Text> split_from_right(const Text& text, std::string_view separator, int64_t most);
std::vector<Text> split_lines(const Text& text);
// Letters by Unicode's simple case mapping: one character becomes one.
Text upper(const Text& text);
Text lower(const Text& text);
Text capitalize(const Text& text);    // the first letter upper, all others lower
Text title_words(const Text& text);   // str.title(): every run of letters capitalized
Text title_spaced(const Text& text);  // Jinja's filter: words begin after spaces and open brackets

}  // namespace ridge::jinja
