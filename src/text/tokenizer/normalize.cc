#include "text/tokenizer/normalize.h"

#include "base/error.h"
#include "text/tokenizer/regex.h"
#include "text/tokenizer/utf8.h"

namespace ridge {

std::string Normalizer::apply(std::string_view text, const Room& room) const {
  std::string now(text);
  for (const Step& step : steps_) {
    room.work.spend(1 + now.size() / kCopiedPerStep);
    now = step(now, room);
    check_growth(now.size(), room.bytes);
    room.work.spend(now.size() / kCopiedPerStep);
  }
  return now;
}

void check_growth(size_t bytes, size_t most) {
  if (bytes > most) {
    throw Error("the tokenizer makes of this text more than {} bytes", most);
  }
}

std::string replace_all(std::string_view text, std::string_view from, std::string_view to,
                        size_t most) {
  if (from.empty()) return std::string(text);
  std::string out;
  out.reserve(text.size());
  size_t at = 0;
  for (size_t found; (found = text.find(from, at)) != text.npos; at = found + from.size()) {
    out += text.substr(at, found - at);
    out += to;
    check_growth(out.size(), most);
  }
  return out += text.substr(at);
}

Normalizer::Step prepend_step(std::string prefix) {
  return [prefix = std::move(prefix)](std::string_view text, const Normalizer::Room&) {
    return text.empty() ? std::string() : prefix + std::string(text);
  };
}

Normalizer::Step replace_step(std::string from, std::string to) {
  return [from = std::move(from), to = std::move(to)](std::string_view text,
                                                      const Normalizer::Room& room) {
    return replace_all(text, from, to, room.bytes);
  };
}

Normalizer::Step replace_pattern_step(const std::string& pattern, std::string to,
                                      const std::string& where) {
  return [regex = Regex::pattern(pattern, where), to = std::move(to)](
             std::string_view text, const Normalizer::Room& room) {
    std::vector<Match> found;
    regex.matches(text, false, found, room.work);
    std::string out;
    out.reserve(text.size());
    size_t at = 0;
    for (const Match& match : found) {
      out += text.substr(at, match.begin - at);
      out += to;
      check_growth(out.size(), room.bytes);
      at = match.end;
    }
    return out += text.substr(at);
  };
}

Normalizer::Step strip_step(bool left, bool right) {
  const auto spaces = Regex::pattern("\\s+", "strip");
  return [=](std::string_view text, const Normalizer::Room& room) {
    std::vector<Match> found;
    spaces.matches(text, false, found, room.work);
    size_t begin = 0, end = text.size();
    if (right && !found.empty() && found.back().end == end) end = found.back().begin;
    if (left && !found.empty() && found.front().begin == 0) begin = found.front().end;
    return std::string(begin < end ? text.substr(begin, end - begin) : std::string_view());
  };
}

}  // namespace ridge
