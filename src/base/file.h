// Files: whole reads with a limit, atomic writes, read-only mappings.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace ridge {

// A descriptor, which the caller closes. Opening never waits: a FIFO, which would wait for its
// writer, throws Error. The pipes of a shell, /dev/stdin among them, have a writer and are opened.
int open_for_reading(const std::string& path);
// Bytes. Throws Error where the path is not a plain file.
uint64_t plain_file_size(const std::string& path);
// Throws Error: "PATH: no such file", "PATH: is a folder", "PATH: larger than ...".
std::string read_file(const std::string& path, size_t max_bytes);
// Writes whole or not at all (temporary file beside it, then rename). Throws Error.
void write_file(const std::string& path, std::string_view contents);
// Throws the Error that write_file would, before the work whose result is to be written.
void check_writable(const std::string& path);

// A read-only memory map of a file; empty files map to nothing.
class MappedFile {
 public:
  explicit MappedFile(const std::string& path);  // throws Error
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  std::string_view bytes() const { return {data_, size_}; }

 private:
  const char* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace ridge
