#include "base/file.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/units.h"

namespace ridge {
namespace {

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

[[noreturn]] void fail(const std::string& path, int error) {
  switch (error) {
    case ENOENT:
      throw Error("{}: no such file", path);
    case EISDIR:
      throw Error("{}: is a folder", path);
    case EACCES:
      throw Error("{}: permission denied", path);
    default:
      throw Error("{}: {}", path, std::generic_category().message(error));
  }
}

struct stat open_status(const Descriptor& file, const std::string& path) {
  if (file.get() < 0) fail(path, errno);
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) fail(path, errno);
  if (S_ISDIR(status.st_mode)) fail(path, EISDIR);
  return status;
}

// The pipes that a shell makes are in a file system of their own. A FIFO under /dev or /proc is one
// that the shell has opened already, as in `ridge model /dev/stdin < FIFO`.
bool is_named_fifo(const Descriptor& file, const struct stat& status, const std::string& path) {
  if (!S_ISFIFO(status.st_mode) || path.starts_with("/dev/") || path.starts_with("/proc/")) {
    return false;
  }
  struct statfs system {};
  return ::fstatfs(file.get(), &system) != 0 || system.f_type != PIPEFS_MAGIC;
}

void write_all(int fd, std::string_view contents, const std::string& path) {
  while (!contents.empty()) {
    const ssize_t written = ::write(fd, contents.data(), contents.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail(path, errno);
    contents.remove_prefix(static_cast<size_t>(written));
  }
}

// Permissions of the file that is replaced, or those a plain open would have given.
mode_t mode_for(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) == 0) return status.st_mode & 07777;
  const mode_t mask = ::umask(0);  // the only way to read it is to set it
  ::umask(mask);
  return 0666 & ~mask;
}

// A file beside `path`; `temporary` gets its name.
int open_temporary(std::string& temporary, const std::string& path) {
  const int fd = ::mkstemp(temporary.data());
  if (fd < 0 && (errno == ENOENT || errno == ENOTDIR)) {
    throw Error("{}: no such folder to write into", path);
  }
  if (fd < 0) fail(path, errno);
  return fd;
}

void write_through_temporary(const std::string& target, std::string_view contents,
                             const std::string& path) {
  std::string temporary = target + ".XXXXXX";
  const Descriptor file(open_temporary(temporary, path));
  try {
    write_all(file.get(), contents, path);
    // The rename must not reach the disk before the bytes do.
    if (::fchmod(file.get(), mode_for(target)) != 0 || ::fsync(file.get()) != 0 ||
        ::rename(temporary.c_str(), target.c_str()) != 0) {
      fail(path, errno);
    }
  } catch (...) {
    ::unlink(temporary.c_str());
    throw;
  }
}

// A link stays a link: what it points to is replaced.
std::string target_of(const std::string& path) {
  std::error_code missing;
  const std::string real = std::filesystem::canonical(path, missing).string();
  return missing ? path : real;
}

// Renaming over /dev/stdout or a pipe would destroy it.
bool is_device(const std::string& target, const std::string& path) {
  struct stat status {};
  if (::stat(target.c_str(), &status) != 0) return false;
  if (S_ISDIR(status.st_mode)) fail(path, EISDIR);
  return !S_ISREG(status.st_mode);
}

}  // namespace

int open_for_reading(const std::string& path) {
  Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  const struct stat status = open_status(file, path);
  if (S_ISREG(status.st_mode)) return file.release();
  if (is_named_fifo(file, status, path)) throw Error("{}: is a FIFO, not a plain file", path);
  // Reading may wait.
  const int flags = ::fcntl(file.get(), F_GETFL);
  if (flags < 0 || ::fcntl(file.get(), F_SETFL, flags & ~O_NONBLOCK) < 0) fail(path, errno);
  return file.release();
}

uint64_t plain_file_size(const std::string& path) {
  const Descriptor file(open_for_reading(path));
  const struct stat status = open_status(file, path);
  if (!S_ISREG(status.st_mode)) throw Error("{}: not a plain file", path);
  return static_cast<uint64_t>(status.st_size);
}

std::string read_file(const std::string& path, size_t max_bytes) {
  const Descriptor file(open_for_reading(path));
  const struct stat status = open_status(file, path);
  const auto too_large = [&] {
    return Error("{}: larger than {}", path, pretty_binary(static_cast<double>(max_bytes)));
  };
  if (S_ISREG(status.st_mode) && static_cast<uint64_t>(status.st_size) > max_bytes) {
    throw too_large();
  }

  // Pipes and /proc report no size: read to the end, one chunk past what is known.
  constexpr size_t kChunk = 64 << 10;
  std::string contents;
  size_t used = 0;
  while (true) {
    contents.resize(std::max(used + kChunk, static_cast<size_t>(status.st_size) + 1));
    const ssize_t got = ::read(file.get(), contents.data() + used, contents.size() - used);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail(path, errno);
    if (got == 0) break;
    used += static_cast<size_t>(got);
    if (used > max_bytes) throw too_large();
  }
  contents.resize(used);
  return contents;
}

void write_file(const std::string& path, std::string_view contents) {
  const std::string target = target_of(path);
  if (is_device(target, path)) {
    const Descriptor file(::open(target.c_str(), O_WRONLY | O_CLOEXEC));
    if (file.get() < 0) fail(path, errno);
    write_all(file.get(), contents, path);
    return;
  }
  write_through_temporary(target, contents, path);
}

void check_writable(const std::string& path) {
  const std::string target = target_of(path);
  if (is_device(target, path)) {
    if (::access(target.c_str(), W_OK) != 0) fail(path, errno);
    return;
  }
  std::string temporary = target + ".XXXXXX";
  const Descriptor file(open_temporary(temporary, path));
  ::unlink(temporary.c_str());
}

MappedFile::MappedFile(const std::string& path) {
  const Descriptor file(open_for_reading(path));
  const struct stat status = open_status(file, path);
  if (!S_ISREG(status.st_mode)) throw Error("{}: not a plain file", path);
  if (status.st_size == 0) return;  // mmap refuses empty maps
  const auto size = static_cast<size_t>(status.st_size);
  void* data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (data == MAP_FAILED) fail(path, errno);
  data_ = static_cast<const char*>(data);
  size_ = size;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<char*>(data_), size_);
}

}  // namespace ridge
