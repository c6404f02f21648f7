#include "load/trace.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/random.h"
#include "load/trace_fields.h"

namespace ridge {
namespace {

constexpr size_t kMaxTraceBytes = size_t{1} << 30;
constexpr size_t kMaxTraceRows = 20'000'000;
constexpr double kMaxTraceTokens = 10'000'000;
constexpr double kMaxTraceBlock = 1 << 20;
constexpr double kMaxArrival = 1e11;  // seconds
constexpr double kEpoch = 1e8;  // seconds: later times count from 1970, not from the trace's start

// One line's values before they are checked.
struct RawRow {
  std::optional<double> arrival_s, prompt, output, block_size;
  std::vector<int64_t> blocks;

  // `unit`: seconds that a timestamp counts in.
  void set(TraceField field, double value, double unit) {
    switch (field) {
      case TraceField::arrival_s:
        arrival_s = value;
        break;
      case TraceField::arrival_ms:
        arrival_s = value * 1e-3;
        break;
      case TraceField::timestamp:
        arrival_s = value * unit;
        break;
      case TraceField::prompt:
        prompt = value;
        break;
      case TraceField::output:
        output = value;
        break;
      case TraceField::block_size:
        block_size = value;
        break;
      case TraceField::blocks:
      case TraceField::other:
        break;
    }
  }
};

// Where a line is. The name is put together only for an error.
struct Place {
  std::string_view where;
  int64_t line = 0;

  template <typename... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) const {
    throw Error("{}:{}: {}", where, line, fmt::format(format, std::forward<Args>(args)...));
  }
};

class TraceBuilder {
 public:
  explicit TraceBuilder(std::string format) { trace_.format = std::move(format); }

  void add(RawRow& raw, const Place& place) {
    const auto whole = [&](const std::optional<double>& value, const char* name, double low) {
      if (!value) place.fail("{} is missing", name);
      if (!(*value >= low && *value <= kMaxTraceTokens) || *value != std::floor(*value)) {
        place.fail("{} must be a whole number from {} to {}, not {}", name, low, kMaxTraceTokens,
                   *value);
      }
      return static_cast<int>(*value);
    };
    TraceRow row;
    row.index = index_++;
    row.output_tokens = whole(raw.output, "output_tokens", 0);
    row.prompt_tokens = whole(raw.prompt, "prompt_tokens", row.output_tokens == 0 ? 0 : 1);
    const double arrival = raw.arrival_s.value_or(0);
    if (!(arrival >= 0 && arrival <= kMaxArrival)) {
      place.fail("the arrival must be from 0 to {} s, not {}", kMaxArrival, arrival);
    }
    row.arrival_s = arrival;
    if (raw.block_size) set_block_size(*raw.block_size, place);
    if (row.output_tokens == 0) {
      ++trace_.failed;
      return;
    }
    if (trace_.rows.size() == kMaxTraceRows) place.fail("more than {} requests", kMaxTraceRows);
    arrivals_ += raw.arrival_s ? 1 : 0;
    row.blocks = std::move(raw.blocks);
    trace_.rows.push_back(std::move(row));
  }

  Trace finish(std::string_view where) {
    if (trace_.rows.empty()) throw Error("{}: no requests", where);
    trace_.has_arrivals = arrivals_ > 0;
    std::vector<TraceRow>& rows = trace_.rows;
    const auto earlier = [](const TraceRow& a, const TraceRow& b) {
      return a.arrival_s < b.arrival_s;
    };
    if (!std::is_sorted(rows.begin(), rows.end(), earlier)) {
      std::stable_sort(rows.begin(), rows.end(), earlier);
    }
    if (const double first = rows.front().arrival_s; first > kEpoch) {
      for (TraceRow& row : rows) row.arrival_s -= first;
    }
    const bool any_blocks = std::any_of(rows.begin(), rows.end(),
                                        [](const TraceRow& row) { return !row.blocks.empty(); });
    if (!any_blocks) {
      trace_.block_tokens = 0;
    } else if (trace_.block_tokens == 0) {
      trace_.block_tokens = infer_block_tokens();
    }
    return std::move(trace_);
  }

 private:
  void set_block_size(double size, const Place& place) {
    if (!(size >= 1 && size <= kMaxTraceBlock) || size != std::floor(size)) {
      place.fail("block_size must be a whole number from 1 to {}, not {}", kMaxTraceBlock, size);
    }
    if (trace_.block_tokens != 0 && trace_.block_tokens != int(size)) {
      place.fail("block_size is {}, but {} before", size, trace_.block_tokens);
    }
    trace_.block_tokens = int(size);
  }

  // The size for which most prompts have as many ids as blocks, with or without the last one, which
  // is not full. Ids that cover less than the prompts are taken for vLLM's blocks.
  int infer_block_tokens() const {
    int best = 16;
    int64_t most = 0, with_blocks = 0;
    for (const TraceRow& row : trace_.rows) with_blocks += row.blocks.empty() ? 0 : 1;
    for (int size = 8; size <= 4096; size *= 2) {
      int64_t matches = 0;
      for (const TraceRow& row : trace_.rows) {
        const int ids = int(row.blocks.size());
        const int full = row.prompt_tokens / size;
        matches += ids > 0 && (ids == full || (ids == full + 1 && row.prompt_tokens % size > 0));
      }
      if (matches > most) {
        most = matches;
        best = size;
      }
    }
    return 2 * most > with_blocks ? best : 16;
  }

  Trace trace_;
  int64_t index_ = 0, arrivals_ = 0;
};

// The next line without its end; false where no text is left.
bool take_line(std::string_view& text, std::string_view& line) {
  if (text.empty()) return false;
  const size_t end = std::min(text.find('\n'), text.size());
  line = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  if (line.ends_with('\r')) line.remove_suffix(1);
  return true;
}

bool blank(std::string_view line) { return line.find_first_not_of(" \t\r") == line.npos; }

// One JSON object a line, without building a tree: traces have millions of lines. Unknown keys and
// whatever they hold are skipped.
class RowReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  RawRow row;

  bool null() override { return true; }
  bool boolean(bool) override { return depth_ > 0; }
  bool number_integer(number_integer_t value) override { return number(double(value), value); }
  bool number_unsigned(number_unsigned_t value) override {
    return number(double(value), int64_t(value));
  }
  bool number_float(number_float_t value, const string_t&) override {
    return number(value, int64_t(mix64(std::hash<double>()(value))));
  }
  bool string(string_t& value) override {
    if (in_blocks_) row.blocks.push_back(int64_t(mix64(std::hash<std::string>()(value))));
    if (depth_ != 1 || field_ == TraceField::other) return depth_ > 0;
    if (field_ != TraceField::timestamp && field_ != TraceField::arrival_s) return false;
    row.arrival_s = parse_date(value);
    return row.arrival_s.has_value();
  }
  bool binary(binary_t&) override { return false; }
  bool start_object(size_t) override { return ++depth_ <= kMaxJsonDepth; }
  bool key(string_t& value) override {
    if (depth_ == 1) field_ = trace_field(value);
    return true;
  }
  bool end_object() override { return --depth_ >= 0; }
  bool start_array(size_t) override {
    if (depth_ == 0) return false;
    in_blocks_ = depth_ == 1 && field_ == TraceField::blocks;
    return ++depth_ <= kMaxJsonDepth;
  }
  bool end_array() override {
    in_blocks_ = false;
    return --depth_ >= 0;
  }
  bool parse_error(size_t, const std::string&, const nlohmann::detail::exception&) override {
    return false;
  }

 private:
  bool number(double value, int64_t id) {
    if (in_blocks_) row.blocks.push_back(id);
    if (depth_ != 1) return depth_ > 0;
    if (field_ == TraceField::blocks) return false;
    row.set(field_, value, 1e-3);  // a timestamp is in milliseconds
    return true;
  }

  int depth_ = 0;
  bool in_blocks_ = false;
  TraceField field_ = TraceField::other;
};

Trace parse_lines(std::string_view text, std::string_view where) {
  TraceBuilder builder("JSON lines");
  Place place{where};
  for (std::string_view line; take_line(text, line);) {
    ++place.line;
    if (blank(line)) continue;
    RowReader reader;
    if (!nlohmann::json::sax_parse(line, &reader)) {
      const nlohmann::json row = parse_json(line, fmt::format("{}:{}", where, place.line));
      if (!row.is_object()) place.fail("a line must be a JSON object");
      place.fail("lengths and arrivals must be numbers, ids of blocks a list of them");
    }
    builder.add(reader.row, place);
  }
  return builder.finish(where);
}

Trace parse_bench(std::string_view text, std::string_view where) {
  const nlohmann::json file = parse_json(text, where);
  const auto list = [&](const char* key) -> const nlohmann::json* {
    const auto found = file.find(key);
    if (found == file.end() || found->is_null()) return nullptr;
    if (!found->is_array()) throw Error("{}: {} must be a list", where, key);
    return &*found;
  };
  const nlohmann::json *inputs = list("input_lens"), *outputs = list("output_lens"),
                       *starts = list("start_times");
  if (!inputs || !outputs) {
    throw Error("{}: input_lens or output_lens is missing: save with --save-detailed", where);
  }
  if (inputs->size() != outputs->size() || (starts && starts->size() != inputs->size())) {
    throw Error("{}: input_lens, output_lens and start_times differ in length", where);
  }
  TraceBuilder builder("vllm bench");
  double first = 0;
  const auto number = [&](const nlohmann::json& value, const char* key) {
    if (!value.is_number()) throw Error("{}: {} must hold numbers", where, key);
    return value.get<double>();
  };
  for (size_t i = 0; starts && i < starts->size(); ++i) {
    const double start = number((*starts)[i], "start_times");
    first = i == 0 ? start : std::min(first, start);
  }
  for (size_t i = 0; i < inputs->size(); ++i) {
    RawRow row;
    row.prompt = number((*inputs)[i], "input_lens");
    row.output = number((*outputs)[i], "output_lens");
    if (starts) row.arrival_s = (*starts)[i].get<double>() - first;
    builder.add(row, {where, int64_t(i) + 1});
  }
  return builder.finish(where);
}

// A field without spaces and quotes around it.
std::string_view bare(std::string_view field) {
  constexpr std::string_view kAround = " \t\"";
  const size_t first = field.find_first_not_of(kAround);
  if (first == field.npos) return {};
  return field.substr(first, field.find_last_not_of(kAround) - first + 1);
}

// Calls visit(column, field) for the fields of a line.
template <typename Visit>
void for_fields(std::string_view line, Visit visit) {
  for (size_t column = 0;; ++column) {
    const size_t comma = line.find(',');
    visit(column, bare(line.substr(0, comma)));
    if (comma == line.npos) return;
    line.remove_prefix(comma + 1);
  }
}

void read_csv_field(RawRow& row, TraceField field, std::string_view text, const Place& place) {
  if (field == TraceField::other || field == TraceField::blocks || text.empty()) return;
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) {
    const std::optional<double> date =
        field == TraceField::timestamp || field == TraceField::arrival_s ? parse_date(text)
                                                                         : std::nullopt;
    if (!date) place.fail("\"{}\" is not a number", text.substr(0, 40));
    value = *date;
  }
  row.set(field, value, 1);  // a timestamp is in seconds
}

Trace parse_table(std::string_view text, std::string_view where) {
  Place place{where};
  std::string_view line;
  while (take_line(text, line)) {
    ++place.line;
    if (!blank(line)) break;
  }
  std::vector<TraceField> columns;
  if (line.starts_with("\xef\xbb\xbf")) line.remove_prefix(3);  // the byte order mark
  for_fields(line, [&](size_t, std::string_view name) { columns.push_back(trace_field(name)); });
  const auto has = [&](TraceField field) {
    return std::find(columns.begin(), columns.end(), field) != columns.end();
  };
  if (!has(TraceField::prompt) || !has(TraceField::output)) {
    throw Error(
        "{}: neither JSON lines nor a table with prompt and output lengths "
        "(TIMESTAMP,ContextTokens,GeneratedTokens ..)",
        where);
  }
  TraceBuilder builder("CSV");
  while (take_line(text, line)) {
    ++place.line;
    if (blank(line)) continue;
    RawRow row;
    for_fields(line, [&](size_t column, std::string_view field) {
      if (column < columns.size()) read_csv_field(row, columns[column], field, place);
    });
    builder.add(row, place);
  }
  return builder.finish(where);
}

std::string gunzip(std::string_view packed, const std::string& where) {
  z_stream stream{};
  if (inflateInit2(&stream, 16 + MAX_WBITS) != Z_OK) throw Error("{}: zlib failed", where);
  std::string text;
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data()));
  stream.avail_in = static_cast<uInt>(packed.size());
  int state = Z_OK;
  while (state == Z_OK && text.size() < kMaxTraceBytes) {
    const size_t done = text.size(), chunk = std::max<size_t>(1 << 16, done);
    text.resize(done + chunk);
    stream.next_out = reinterpret_cast<Bytef*>(text.data() + done);
    stream.avail_out = static_cast<uInt>(chunk);
    state = inflate(&stream, Z_NO_FLUSH);
    text.resize(done + chunk - stream.avail_out);
  }
  inflateEnd(&stream);
  if (state == Z_OK) throw Error("{}: unpacks to more than {} bytes", where, kMaxTraceBytes);
  if (state != Z_STREAM_END) throw Error("{}: damaged gzip data", where);
  return text;
}

}  // namespace

double Trace::requests_per_s() const {
  return duration_s() > 0 ? double(rows.size()) / duration_s() : 0;
}

Trace parse_trace(std::string_view text, std::string_view where) {
  const size_t first = text.find_first_not_of(" \t\r\n");
  if (first == text.npos) throw Error("{}: no requests", where);
  if (text[first] != '{' && text[first] != '[') return parse_table(text, where);
  return text.find("\"input_lens\"") == text.npos ? parse_lines(text, where)
                                                  : parse_bench(text, where);
}

Trace read_trace(const std::string& path) {
  std::string text = read_file(path, kMaxTraceBytes);
  if (text.starts_with("\x1f\x8b")) text = gunzip(text, path);
  return parse_trace(text, path);
}

}  // namespace ridge
