// Server-sent events: the bytes of a stream in, the data of its events out.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>

namespace ridge {

class EventStream {
 public:
  static constexpr size_t kMaxEventBytes = 16 << 20;

  // Calls `on_data(std::string_view)` for each event that is complete. Comments and other fields
  // are skipped. False where an event is longer than kMaxEventBytes.
  template <typename OnData>
  bool push(std::string_view bytes, OnData&& on_data) {
    while (!bytes.empty()) {
      const size_t end = bytes.find('\n');
      if (line_.size() + data_.size() + std::min(end, bytes.size()) > kMaxEventBytes) return false;
      if (end == std::string_view::npos) {
        line_ += bytes;
        return true;
      }
      std::string_view line = bytes.substr(0, end);
      if (!line_.empty()) line = line_ += line;
      bytes.remove_prefix(end + 1);
      if (line.ends_with('\r')) line.remove_suffix(1);
      take_line(line, on_data);
      line_.clear();
    }
    return true;
  }

 private:
  template <typename OnData>
  void take_line(std::string_view line, OnData&& on_data) {
    if (line.empty()) {  // the end of an event
      if (has_data_) on_data(std::string_view(data_));
      data_.clear();
      has_data_ = false;
    } else if (line.starts_with("data:")) {
      line.remove_prefix(5);
      if (line.starts_with(' ')) line.remove_prefix(1);
      if (has_data_) data_ += '\n';
      data_ += line;
      has_data_ = true;
    }
  }

  std::string line_;  // without its end yet
  std::string data_;
  bool has_data_ = false;
};

}  // namespace ridge
