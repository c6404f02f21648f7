// Numbers: JSON's grammar with bounded digits, and integers in a range.
#include <fmt/format.h>

#include <algorithm>

#include "text/grammar/builder.h"

namespace ridge::grammar {

namespace {

constexpr int kNumberDigits = 18, kExponentDigits = 2;

ByteEdge digit_edge(char low, char high, StateId next) {
  return {static_cast<uint8_t>(low), static_cast<uint8_t>(high), next};
}

}  // namespace

StateId Builder::digits(int required, int optional, StateId next) {
  StateId state = next;
  for (int i = 0; i < optional; ++i) state = split({next, bytes({digit_edge('0', '9', state)})});
  for (int i = 0; i < required; ++i) state = bytes({digit_edge('0', '9', state)});
  return state;
}

StateId Builder::number(bool negative, StateId next) {
  const StateId power = digits(1, kExponentDigits - 1, next);
  const StateId sign = split({power, bytes({{'+', '+', power}, {'-', '-', power}})});
  const StateId exponent = bytes({{'e', 'e', sign}, {'E', 'E', sign}});
  const StateId after_fraction = split({next, exponent});
  const StateId fraction = byte('.', digits(1, kNumberDigits - 1, after_fraction));
  const StateId after_whole = split({next, fraction, exponent});
  const StateId whole =
      bytes({{'0', '0', after_whole}, {'1', '9', digits(0, kNumberDigits - 1, after_whole)}});
  return negative ? split({whole, byte('-', whole)}) : whole;
}

StateId Builder::digits_between(std::string_view low, std::string_view high, StateId next) {
  // From the last digit: what follows a prefix that equals low's, high's or both's.
  StateId above_low = next, below_high = next, between = next, any = next;
  for (size_t at = low.size(); at-- > 0;) {
    const char l = low[at], h = high[at];
    std::vector<ByteEdge> above = {digit_edge(l, l, above_low)};
    if (l < '9') above.push_back(digit_edge(static_cast<char>(l + 1), '9', any));
    std::vector<ByteEdge> below = {digit_edge(h, h, below_high)};
    if (h > '0') below.push_back(digit_edge('0', static_cast<char>(h - 1), any));
    std::vector<ByteEdge> both;
    if (l == h) {
      both = {digit_edge(l, l, between)};
    } else if (l < h) {
      both = {digit_edge(l, l, above_low), digit_edge(h, h, below_high)};
      if (l + 1 < h) {
        both.push_back(digit_edge(static_cast<char>(l + 1), static_cast<char>(h - 1), any));
      }
    }
    above_low = bytes(above);
    below_high = bytes(below);
    between = bytes(both);  // no edges where low > high: never reached
    if (at > 0) any = digits(1, 0, any);
  }
  return between;
}

StateId Builder::magnitude(uint64_t low, uint64_t high, StateId next) {
  const auto largest = [](size_t count) { return std::string(count, '9'); };
  const auto smallest = [](size_t count) { return "1" + std::string(count - 1, '0'); };
  const std::string l = fmt::to_string(low), h = fmt::to_string(high);
  if (l.size() == h.size()) return digits_between(l, h, next);
  std::vector<StateId> ways;
  // Lengths of which every number is in the range are read as one.
  size_t shortest = l.size(), longest = h.size();
  if (l != smallest(l.size())) ways.push_back(digits_between(l, largest(shortest++), next));
  if (h != largest(h.size())) ways.push_back(digits_between(smallest(longest--), h, next));
  if (shortest <= longest) {
    const int required = static_cast<int>(shortest) - 1;
    const StateId rest = digits(required, static_cast<int>(longest - shortest), next);
    ways.push_back(bytes({digit_edge('1', '9', rest)}));
  }
  return split(ways);
}

StateId Builder::integer(int64_t min, int64_t max, StateId next) {
  const auto absolute = [](int64_t value) {
    return value < 0 ? ~static_cast<uint64_t>(value) + 1 : static_cast<uint64_t>(value);
  };
  std::vector<StateId> ways;
  if (max > 0) ways.push_back(magnitude(absolute(std::max<int64_t>(min, 1)), absolute(max), next));
  if (min <= 0 && max >= 0) ways.push_back(byte('0', next));
  if (min < 0) {
    const uint64_t least = max < 0 ? absolute(max) : 1;
    ways.push_back(byte('-', magnitude(least, absolute(min), next)));
  }
  return split(ways);
}

}  // namespace ridge::grammar
