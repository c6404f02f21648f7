#include "validate/csv.h"

#include <zlib.h>

#include <cstring>

#include "base/error.h"
#include "base/file.h"

namespace ridge {
namespace {

constexpr size_t kChunk = 1u << 18;
constexpr size_t kMaxLine = 1u << 20;  // a longer line is not a table

void split(std::string_view line, std::vector<std::string_view>& out) {
  out.clear();
  size_t start = 0;
  while (true) {
    const size_t comma = line.find(',', start);
    if (comma == std::string_view::npos) break;
    out.push_back(line.substr(start, comma - start));
    start = comma + 1;
  }
  out.push_back(line.substr(start));
}

}  // namespace

CsvReader::CsvReader(const std::string& path) : path_(path) {
  file_ = gzdopen(open_for_reading(path), "rb");
  if (!file_) throw Error("{}: cannot be opened", path);
  gzbuffer(static_cast<gzFile>(file_), kChunk);
  buffer_.resize(2 * kChunk);
  std::string_view line;
  try {
    if (!next_line(line)) throw Error("{}: empty file", path);
    split(line, fields_);
    for (std::string_view name : fields_) header_.emplace_back(name);
  } catch (...) {
    gzclose(static_cast<gzFile>(file_));
    throw;
  }
}

CsvReader::~CsvReader() { gzclose(static_cast<gzFile>(file_)); }

int CsvReader::column(std::string_view name) const {
  for (size_t i = 0; i < header_.size(); ++i)
    if (header_[i] == name) return static_cast<int>(i);
  return -1;
}

bool CsvReader::refill() {
  if (ended_) return false;
  if (begin_ > 0) {
    std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  if (end_ > kMaxLine) throw Error("{}: line {}: longer than {} bytes", path_, line_ + 1, kMaxLine);
  if (buffer_.size() < end_ + kChunk) buffer_.resize(end_ + kChunk);
  const int got = gzread(static_cast<gzFile>(file_), buffer_.data() + end_, kChunk);
  if (got < 0) throw Error("{}: damaged gzip data after line {}", path_, line_);
  if (got == 0) ended_ = true;
  end_ += static_cast<size_t>(got);
  return got > 0;
}

bool CsvReader::next_line(std::string_view& line) {
  while (true) {
    const char* start = buffer_.data() + begin_;
    const void* newline = std::memchr(start, '\n', end_ - begin_);
    if (newline) {
      const size_t length = static_cast<size_t>(static_cast<const char*>(newline) - start);
      line = {start, length};
      begin_ += length + 1;
      break;
    }
    if (refill()) continue;
    if (begin_ == end_) return false;
    line = {buffer_.data() + begin_, end_ - begin_};
    begin_ = end_;
    break;
  }
  ++line_;
  if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
  return true;
}

bool CsvReader::next() {
  std::string_view line;
  do {
    if (!next_line(line)) return false;
  } while (line.empty());
  split(line, fields_);
  return true;
}

}  // namespace ridge
