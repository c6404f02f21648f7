// A message of plain values, written and read in the same order.
#pragma once

#include <cstddef>
#include <cstring>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "base/error.h"

namespace ridge {

class Packet {
 public:
  template <typename T>
  void put(const T& value) {
    put_all(std::span(&value, 1));
  }
  // The count, then the values.
  template <typename T>
  void put_list(std::span<const T> values) {
    put(values.size());
    put_all(values);
  }

  template <typename T>
  T get() {
    T value;
    get_all(std::span(&value, 1));
    return value;
  }
  template <typename T>
  void get_list(std::vector<T>& to) {
    const auto count = get<size_t>();
    if (count > bytes_.size() / sizeof(T)) throw Error("a message of a rank is cut short");
    to.resize(count);
    get_all(std::span(to));
  }

  std::span<std::byte> bytes() { return std::as_writable_bytes(std::span(bytes_)); }
  // Empty, or with room for a message of so many bytes.
  void reset(size_t bytes = 0) {
    bytes_.assign(bytes, '\0');
    read_ = 0;
  }

 private:
  template <typename T>
  void put_all(std::span<const T> values) {
    static_assert(std::is_trivially_copyable_v<T>);
    const std::span<const std::byte> raw = std::as_bytes(values);
    bytes_.append(reinterpret_cast<const char*>(raw.data()), raw.size());
  }
  template <typename T>
  void get_all(std::span<T> values) {
    static_assert(std::is_trivially_copyable_v<T>);
    const std::span<std::byte> raw = std::as_writable_bytes(values);
    if (raw.size() > bytes_.size() - read_) throw Error("a message of a rank is cut short");
    if (!raw.empty()) std::memcpy(raw.data(), bytes_.data() + read_, raw.size());
    read_ += raw.size();
  }

  std::string bytes_;
  size_t read_ = 0;
};

}  // namespace ridge
