#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "base/error.h"
#include "base/units.h"
#include "engine/convert/convert.h"

namespace ridge {

namespace {

[[noreturn]] void fail(const std::string& path, int error) {
  throw Error("{}: {}", path, std::generic_category().message(error));
}

}  // namespace

OutputFile::OutputFile(std::string path, uint64_t bytes) : path_(std::move(path)), bytes_(bytes) {
  temporary_ = path_ + ".XXXXXX";
  file_ = ::mkstemp(temporary_.data());
  if (file_ < 0) {
    if (errno == ENOENT || errno == ENOTDIR) {
      throw Error("{}: no such folder to write into", path_);
    }
    fail(path_, errno);
  }
  // Reserves the space first: on a full disk, a write to the mapping would raise a signal.
  int error = ::posix_fallocate(file_, 0, off_t(bytes_));
  void* map = MAP_FAILED;
  if (error == 0) {
    map = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0);
    if (map == MAP_FAILED) error = errno;
  }
  if (error != 0) {
    ::unlink(temporary_.c_str());
    ::close(file_);
    if (error == ENOSPC || error == EFBIG) {
      throw Error("{}: no room for {}", path_, pretty_bytes(double(bytes_)));
    }
    fail(path_, error);
  }
  data_ = static_cast<std::byte*>(map);
}

OutputFile::~OutputFile() {
  if (data_) ::munmap(data_, bytes_);
  if (file_ >= 0) ::close(file_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void OutputFile::finish() {
  ::munmap(data_, bytes_);
  data_ = nullptr;
  const mode_t mask = ::umask(0);  // umask can only be read by setting it
  ::umask(mask);
  if (::fchmod(file_, 0666 & ~mask) != 0 || ::fsync(file_) != 0 ||
      ::rename(temporary_.c_str(), path_.c_str()) != 0) {
    fail(path_, errno);
  }
  temporary_.clear();
}

}  // namespace ridge
