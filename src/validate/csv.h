// Comma-separated files, plain or gzip, read line by line.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ridge {

// Streams a file; memory does not grow with it. Fields are not quoted in the silicon layout; a
// quote is an ordinary character. Throws Error when the file cannot be opened or read.
class CsvReader {
 public:
  explicit CsvReader(const std::string& path);
  ~CsvReader();
  CsvReader(const CsvReader&) = delete;
  CsvReader& operator=(const CsvReader&) = delete;

  const std::vector<std::string>& header() const { return header_; }
  // Column index by name, or -1.
  int column(std::string_view name) const;
  // Advances to the next non-empty line; false at the end. Views stay valid until the next call.
  bool next();
  size_t fields() const { return fields_.size(); }
  std::string_view field(size_t index) const { return fields_[index]; }
  size_t line() const { return line_; }  // 1 is the header

 private:
  bool next_line(std::string_view& line);
  bool refill();

  std::string path_;
  void* file_ = nullptr;  // gzFile
  std::string buffer_;
  size_t begin_ = 0, end_ = 0;
  bool ended_ = false;
  size_t line_ = 0;
  std::vector<std::string> header_;
  std::vector<std::string_view> fields_;
};

}  // namespace ridge
