#include "base/text.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <cctype>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <numeric>
#include <optional>

namespace ridge {
namespace {

std::optional<bool> forced_colour;

std::string_view colour_code(Colour colour) {
  switch (colour) {
    case Colour::none:
      return "";
    case Colour::red:
      return "31";
    case Colour::green:
      return "32";
    case Colour::yellow:
      return "33";
    case Colour::blue:
      return "34";
    case Colour::magenta:
      return "35";
    case Colour::cyan:
      return "36";
    case Colour::dim:
      return "2";
    case Colour::bold:
      return "1";
  }
  return "";
}

// Length of the colour code (ESC [ ... letter) at the start of `text`, 0 when there is none.
size_t escape_length(std::string_view text) {
  if (!text.starts_with("\x1b[")) return 0;
  size_t end = 2;
  while (end < text.size() && (text[end] < '@' || text[end] > '~')) ++end;
  return std::min(end + 1, text.size());
}

std::string without_escapes(std::string_view text) {
  std::string plain;
  while (!text.empty()) {
    const size_t skip = escape_length(text);
    if (skip == 0) plain += text.front();
    text.remove_prefix(std::max<size_t>(skip, 1));
  }
  return plain;
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Letters of any script, and what joins units: "tok/s", "%", "µs".
bool is_unit_char(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return byte >= 0x80 || std::isalpha(byte) || c == '%' || c == '/';
}

// "4.02 ms", "~43 %", "1 m 12 s", "-3", "1.2e+09": numbers, each with at most one unit.
bool is_quantity(std::string_view text) {
  if (!text.empty() && std::string_view("+-<>~").find(text.front()) != text.npos) {
    text.remove_prefix(1);
  }
  const auto skip = [&text](auto accepts) {
    const auto stop = std::find_if_not(text.begin(), text.end(), accepts);
    const auto length = static_cast<size_t>(stop - text.begin());
    text.remove_prefix(length);
    return length;
  };
  const auto blank = [](char c) { return c == ' '; };
  if (text.empty()) return false;
  while (!text.empty()) {
    if (!is_digit(text.front())) return false;
    skip([](char c) { return is_digit(c) || c == '.' || c == ','; });
    if (text.starts_with("e+") || text.starts_with("e-")) {
      text.remove_prefix(2);
      skip(is_digit);
    }
    skip(blank);
    skip(is_unit_char);
    skip(blank);
  }
  return true;
}

// Cells that say "nothing here" fit any column.
bool is_placeholder(std::string_view text) {
  return text.empty() || text == "?" || text == "-" || text == "—" || text == "inf";
}

std::string repeat(std::string_view piece, size_t times) {
  std::string text;
  for (size_t i = 0; i < times; ++i) text += piece;
  return text;
}

// Case and separators are what people get wrong most in names such as "Llama-3.1_70B".
std::string normalised(std::string_view name) {
  std::string result;
  for (const char c : name) {
    if (std::string_view("-_. ").find(c) == std::string_view::npos) {
      result += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    }
  }
  return result;
}

// Levenshtein distance, one row at a time.
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row.back();
}

// Lower is nearer; nullopt when the two have too little in common to be worth suggesting.
std::optional<double> name_distance(const std::string& wanted, const std::string& candidate) {
  if (wanted.empty() || candidate.empty()) return std::nullopt;
  const double longest = static_cast<double>(std::max(wanted.size(), candidate.size()));
  const double edits = static_cast<double>(edit_distance(wanted, candidate));
  const double share = edits / longest;  // 0 the same, 1 nothing in common
  const std::string& shorter = wanted.size() < candidate.size() ? wanted : candidate;
  const std::string& longer = wanted.size() < candidate.size() ? candidate : wanted;
  // Single letters occur in everything.
  if (shorter.size() >= 2 && longer.find(shorter) != std::string::npos) return share / 4;
  if (edits > std::max(1.0, std::floor(longest * 0.4))) return std::nullopt;
  return share;
}

}  // namespace

bool colour_enabled() {
  if (forced_colour) return *forced_colour;
  // https://no-color.org: any non-empty value turns colour off.
  static const bool enabled = [] {
    const char* refused = std::getenv("NO_COLOR");
    return isatty(STDOUT_FILENO) == 1 && (refused == nullptr || *refused == '\0');
  }();
  return enabled;
}

void force_colour(bool on) { forced_colour = on; }

std::string paint(Colour colour, std::string_view text) {
  if (colour == Colour::none || text.empty() || !colour_enabled()) return std::string(text);
  return fmt::format("\x1b[{}m{}\x1b[0m", colour_code(colour), text);
}

Table::Table(std::vector<std::string> header) : header_(std::move(header)) {}

void Table::add(std::vector<std::string> row) {
  assert(row.size() <= header_.size());
  row.resize(header_.size());
  rows_.push_back(std::move(row));
}

void Table::rule() { rows_.emplace_back(); }

std::string Table::text() const {
  const size_t columns = header_.size();
  std::vector<size_t> width(columns);
  std::vector<bool> numeric(columns);
  for (size_t c = 0; c < columns; ++c) {
    width[c] = display_width(header_[c]);
    bool any = false, all = true;
    for (const auto& row : rows_) {
      if (row.empty()) continue;
      width[c] = std::max(width[c], display_width(row[c]));
      const std::string cell = without_escapes(row[c]);
      any |= is_quantity(cell);
      all &= is_quantity(cell) || is_placeholder(cell);
    }
    numeric[c] = any && all;
  }

  std::string out;
  const auto put_row = [&](const std::vector<std::string>& row, Colour colour) {
    std::string line;
    for (size_t c = 0; c < columns; ++c) {
      const std::string pad(width[c] - display_width(row[c]), ' ');
      if (c > 0) line += "  ";
      const std::string cell = paint(colour, row[c]);
      line += numeric[c] ? pad + cell : cell + pad;
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  };
  const size_t total =
      std::accumulate(width.begin(), width.end(), size_t{0}) + 2 * (columns > 0 ? columns - 1 : 0);
  const std::string rule = paint(Colour::dim, repeat("─", total)) + "\n";

  put_row(header_, Colour::bold);
  out += rule;
  for (const auto& row : rows_) {
    if (row.empty()) {
      out += rule;
    } else {
      put_row(row, Colour::none);
    }
  }
  return out;
}

std::string Table::csv() const {
  std::string out;
  const auto put_row = [&out](const std::vector<std::string>& row) {
    for (size_t c = 0; c < row.size(); ++c) {
      if (c > 0) out += ',';
      out += escape_csv(without_escapes(row[c]));
    }
    out += '\n';
  };
  put_row(header_);
  for (const auto& row : rows_) {
    if (!row.empty()) put_row(row);
  }
  return out;
}

size_t display_width(std::string_view text) {
  size_t width = 0;
  while (!text.empty()) {
    if (const size_t skip = escape_length(text)) {
      text.remove_prefix(skip);
      continue;
    }
    const auto byte = static_cast<unsigned char>(text[0]);
    const auto next = text.size() > 1 ? static_cast<unsigned char>(text[1]) : 0;
    // Every byte but a UTF-8 continuation starts a code point; U+0300..U+036F (CC 80 .. CD AF)
    // are accents drawn onto the letter before.
    const bool continuation = (byte & 0xC0) == 0x80;
    const bool accent = byte == 0xCC || (byte == 0xCD && next <= 0xAF);
    if (!continuation && !accent) ++width;
    text.remove_prefix(1);
  }
  return width;
}

std::string bar(double fraction, int width) {
  if (width <= 0) return "";
  constexpr std::string_view kEighths[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  const double filled = std::isnan(fraction) ? 0 : std::clamp(fraction, 0.0, 1.0);
  const auto eighths = static_cast<size_t>(std::lround(filled * width * 8));
  std::string out = repeat("█", eighths / 8);
  out += kEighths[eighths % 8];
  const size_t used = eighths / 8 + (eighths % 8 != 0);
  return out.append(static_cast<size_t>(width) - used, ' ');
}

std::string escape_csv(std::string_view field) {
  if (field.find_first_of(",\"\r\n") == std::string_view::npos) return std::string(field);
  std::string out = "\"";
  for (const char c : field) {
    if (c == '"') out += '"';
    out += c;
  }
  return out + '"';
}

std::vector<std::string> nearest_names(std::string_view name,
                                       const std::vector<std::string>& candidates, size_t most) {
  // Distance costs time in proportion to both lengths, and nothing this long is a misspelt name.
  constexpr size_t kLongestName = 256;
  if (name.size() > kLongestName) return {};
  struct Ranked {
    double distance;
    const std::string* name;
  };
  const std::string wanted = normalised(name);
  std::vector<Ranked> ranked;
  for (const std::string& candidate : candidates) {
    const auto distance = name_distance(wanted, normalised(candidate));
    if (distance) ranked.push_back({*distance, &candidate});
  }
  std::stable_sort(ranked.begin(), ranked.end(),
                   [](const Ranked& a, const Ranked& b) { return a.distance < b.distance; });
  std::vector<std::string> names;
  for (size_t i = 0; i < std::min(most, ranked.size()); ++i) names.push_back(*ranked[i].name);
  return names;
}

}  // namespace ridge
