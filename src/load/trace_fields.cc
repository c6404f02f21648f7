#include "load/trace_fields.h"

#include <array>
#include <cctype>
#include <charconv>
#include <string>
#include <utility>

namespace ridge {
namespace {

using Name = std::pair<std::string_view, TraceField>;

constexpr Name kNames[] = {
    {"timestamp", TraceField::timestamp},
    {"contexttokens", TraceField::prompt},
    {"generatedtokens", TraceField::output},
    {"inputlength", TraceField::prompt},
    {"outputlength", TraceField::output},
    {"hashids", TraceField::blocks},
    {"arrivalms", TraceField::arrival_ms},
    {"arrivaltimems", TraceField::arrival_ms},
    {"timestampms", TraceField::arrival_ms},
    {"arrivals", TraceField::arrival_s},
    {"arrivaltime", TraceField::arrival_s},
    {"arrivaltimes", TraceField::arrival_s},
    {"arrivedat", TraceField::arrival_s},
    {"arrival", TraceField::arrival_s},
    {"starttime", TraceField::arrival_s},
    {"prompttokens", TraceField::prompt},
    {"promptlength", TraceField::prompt},
    {"promptlen", TraceField::prompt},
    {"prompt", TraceField::prompt},
    {"requesttokens", TraceField::prompt},
    {"numprefilltokens", TraceField::prompt},
    {"inputtokens", TraceField::prompt},
    {"inputtoks", TraceField::prompt},
    {"inputlen", TraceField::prompt},
    {"input", TraceField::prompt},
    {"outputtokens", TraceField::output},
    {"outputtoks", TraceField::output},
    {"outputlen", TraceField::output},
    {"output", TraceField::output},
    {"responsetokens", TraceField::output},
    {"numdecodetokens", TraceField::output},
    {"blocks", TraceField::blocks},
    {"blockids", TraceField::blocks},
    {"blockhashes", TraceField::blocks},
    {"prefixblocks", TraceField::blocks},
    {"prefixblockids", TraceField::blocks},
    {"blocksize", TraceField::block_size},
    {"blocktokens", TraceField::block_size},
};

// Days from 1970-01-01 in the Gregorian calendar; years begin in March, so that the leap day is
// the last.
int64_t days_since_1970(int64_t year, int month, int day) {
  if (month <= 2) --year;
  const int64_t era = (year >= 0 ? year : year - 399) / 400;
  const int64_t of_era = year - era * 400;
  const int64_t of_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
  return era * 146097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719468;
}

// Takes `digits` digits from the front of the text.
std::optional<int> take_number(std::string_view& text, size_t digits) {
  int value = 0;
  if (text.size() < digits) return std::nullopt;
  const auto [end, error] = std::from_chars(text.data(), text.data() + digits, value);
  if (error != std::errc() || end != text.data() + digits || value < 0) return std::nullopt;
  text.remove_prefix(digits);
  return value;
}

bool take_one_of(std::string_view& text, std::string_view characters) {
  if (text.empty() || characters.find(text.front()) == std::string_view::npos) return false;
  text.remove_prefix(1);
  return true;
}

}  // namespace

TraceField trace_field(std::string_view name) {
  std::array<char, 24> folded;
  size_t size = 0;
  for (const char c : name) {
    if (c == ' ' || c == '_' || c == '-') continue;
    if (size == folded.size()) return TraceField::other;
    folded[size++] = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  const std::string_view key(folded.data(), size);
  for (const auto& [known, field] : kNames) {
    if (key == known) return field;
  }
  return TraceField::other;
}

std::optional<double> parse_date(std::string_view text) {
  const auto year = take_number(text, 4);
  if (!year || !take_one_of(text, "-")) return std::nullopt;
  const auto month = take_number(text, 2);
  if (!month || *month < 1 || *month > 12 || !take_one_of(text, "-")) return std::nullopt;
  const auto day = take_number(text, 2);
  if (!day || *day < 1 || *day > 31 || !take_one_of(text, " T")) return std::nullopt;
  double seconds = 86400. * double(days_since_1970(*year, *month, *day));
  for (const double unit : {3600., 60., 1.}) {
    const auto value = take_number(text, 2);
    if (!value || *value > 60 || (unit > 1 && !take_one_of(text, ":"))) return std::nullopt;
    seconds += unit * *value;
  }
  if (!text.empty() && text.front() == '.') {
    double fraction = 0;
    const auto [end, error] =
        std::from_chars(text.data(), text.data() + text.size(), fraction, std::chars_format::fixed);
    if (error != std::errc()) return std::nullopt;
    seconds += fraction;
    text.remove_prefix(static_cast<size_t>(end - text.data()));
  }
  if (text.empty() || text == "Z") return seconds;
  const double sign = text.front() == '-' ? 1 : -1;  // ahead of UTC: earlier there
  if (!take_one_of(text, "+-")) return std::nullopt;
  const auto hours = take_number(text, 2);
  take_one_of(text, ":");
  const auto minutes = text.empty() ? std::optional(0) : take_number(text, 2);
  if (!hours || !minutes || !text.empty()) return std::nullopt;
  return seconds + sign * (3600. * *hours + 60. * *minutes);
}

}  // namespace ridge
