#include "hub/download.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <system_error>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "base/error.h"
#include "base/units.h"
#include "hub/hash.h"
#include "hub/hub_request.h"

namespace ridge {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail_at(const fs::path& path) {
  throw Error("{}: {}", path.string(), std::generic_category().message(errno));
}

// An advisory lock, released when the process ends in whatever way.
class BlobLock {
 public:
  explicit BlobLock(const fs::path& path)
      : fd_(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666)) {
    if (fd_ < 0) fail_at(path);
  }
  ~BlobLock() { ::close(fd_); }
  BlobLock(const BlobLock&) = delete;
  BlobLock& operator=(const BlobLock&) = delete;

  // False: cancelled while another process holds it. A file system without locks grants it: the
  // hash still finds what two writers mixed up.
  bool acquire(const std::function<bool()>& cancelled) {
    while (::flock(fd_, LOCK_EX | LOCK_NB) != 0) {
      if (errno != EWOULDBLOCK && errno != EINTR) return true;
      if (cancelled()) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    return true;
  }

 private:
  int fd_;
};

class ContentHash {
 public:
  explicit ContentHash(const HubFile& file) {
    constexpr size_t kSha1Digits = 40;
    if (file.hash.size() != kSha1Digits) return;
    // git's name of a file's content: the SHA-1 of this header and the bytes.
    hash_.emplace<Sha1>().update(fmt::format("blob {}", file.size) + '\0');
  }
  void update(std::string_view bytes) {
    std::visit([&](auto& hash) { hash.update(bytes); }, hash_);
  }
  std::string hex() {
    return std::visit([](auto& hash) { return hash.hex(); }, hash_);
  }

 private:
  std::variant<Sha256, Sha1> hash_;
};

// blobs/HASH.incomplete with the running hash of what it holds.
class PartialFile {
 public:
  PartialFile(const HubFile& file, const DownloadSource& source)
      : file_(file),
        source_(source),
        path_(source.blobs / (file.hash + ".incomplete")),
        fd_(::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666)),
        hash_(file) {
    if (fd_ < 0) fail_at(path_);
  }
  ~PartialFile() { ::close(fd_); }
  PartialFile(const PartialFile&) = delete;
  PartialFile& operator=(const PartialFile&) = delete;

  // Hashes what an earlier download left. False: cancelled.
  bool read_existing() {
    struct stat status {};
    if (::fstat(fd_, &status) != 0) fail_at(path_);
    if (static_cast<uint64_t>(status.st_size) > file_.size) restart();
    std::vector<char> buffer(1 << 20);
    while (true) {
      const ssize_t got = ::read(fd_, buffer.data(), buffer.size());
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) fail_at(path_);
      if (got == 0) return true;
      count({buffer.data(), static_cast<size_t>(got)});
      if (source_.cancelled()) return false;
    }
  }
  void append(std::string_view bytes) {
    for (std::string_view rest = bytes; !rest.empty();) {
      const ssize_t written = ::write(fd_, rest.data(), rest.size());
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) fail_at(path_);
      rest.remove_prefix(static_cast<size_t>(written));
    }
    count(bytes);
  }
  void restart() {
    if (::ftruncate(fd_, 0) != 0 || ::lseek(fd_, 0, SEEK_SET) != 0) fail_at(path_);
    *source_.done_bytes -= static_cast<int64_t>(size_);
    size_ = 0;
    hash_ = ContentHash(file_);
  }
  void remove() {
    restart();
    ::unlink(path_.c_str());
  }
  uint64_t size() const { return size_; }
  bool matches() { return hash_.hex() == file_.hash; }  // once, when whole
  void publish() {
    // The rename must not reach the disk before the bytes do.
    const fs::path blob = source_.blobs / file_.hash;
    if (::fsync(fd_) != 0 || ::rename(path_.c_str(), blob.c_str()) != 0) fail_at(blob);
  }

 private:
  void count(std::string_view bytes) {
    hash_.update(bytes);
    size_ += bytes.size();
    *source_.done_bytes += static_cast<int64_t>(bytes.size());
  }

  const HubFile& file_;
  const DownloadSource& source_;
  fs::path path_;
  int fd_;
  ContentHash hash_;
  uint64_t size_ = 0;
};

bool holds_blob(const fs::path& path, uint64_t size) {
  std::error_code error;
  return fs::file_size(path, error) == size && !error;
}

std::string shown_name(const HubFile& file, const DownloadSource& source) {
  return fmt::format("{}: {}", source.repo, file.name);
}

// Appends what is missing. Returns false where it was cancelled.
bool fetch_rest(CurlClient& client, const HubFile& file, const DownloadSource& source,
                PartialFile& partial, uint64_t& received) {
  HubRequest request;
  request.get.url = fmt::format("{}/{}/resolve/{}/{}", source.endpoint, source.repo, source.commit,
                                percent_encode(file.name, "/"));
  request.get.token = source.token;
  request.get.slowest_bytes_per_s = source.slowest_bytes_per_s;
  request.get.stall_s = source.stall_s;
  request.get.cancelled = source.cancelled;
  request.backoff_s = source.backoff_s;
  request.connected = true;
  bool first = true;  // piece of a reply
  request.from = [&] {
    first = true;
    return partial.size();
  };
  const auto wrong_size = [&](uint64_t size) {
    partial.remove();
    return Error("{}: the server sends {} bytes, its listing says {}", shown_name(file, source),
                 size, file.size);
  };
  const auto receive = [&](const CurlReply& reply, std::string_view bytes) {
    if (std::exchange(first, false)) {
      const uint64_t start = reply.status == 206 ? reply.range_start.value_or(0) : 0;
      if (start != partial.size()) partial.restart();  // a server without ranges starts at 0
      if (start != partial.size())
        throw Error("{}: the server sends another range", shown_name(file, source));
      if (reply.length && start + *reply.length != file.size)
        throw wrong_size(start + *reply.length);
    }
    if (partial.size() + bytes.size() > file.size) throw wrong_size(partial.size() + bytes.size());
    partial.append(bytes);
    received += bytes.size();
    return true;
  };
  const CurlReply reply = get_with_retries(client, request, receive);
  if (reply.failure == HttpFailure::cancelled) return false;
  if (reply.failure != HttpFailure::none || (reply.status != 200 && reply.status != 206)) {
    throw Error(failure_line(reply, request.get, source.repo, shown_name(file, source)));
  }
  if (partial.size() != file.size) throw wrong_size(partial.size());
  return true;
}

}  // namespace

Downloaded download_file(CurlClient& client, const HubFile& file, const DownloadSource& source) {
  const fs::path blob = source.blobs / file.hash;
  const auto present = [&] {
    if (!holds_blob(blob, file.size)) return false;
    *source.done_bytes += static_cast<int64_t>(file.size);
    return true;
  };
  if (present()) return {.complete = true};
  BlobLock lock(source.locks / (file.hash + ".lock"));
  if (!lock.acquire(source.cancelled)) return {};
  if (present()) return {.complete = true};  // another process was faster

  Downloaded result;
  PartialFile partial(file, source);
  if (!partial.read_existing()) return result;
  bool resumed = partial.size() > 0;
  while (true) {
    if (partial.size() < file.size && !fetch_rest(client, file, source, partial, result.bytes)) {
      return result;
    }
    if (partial.matches()) break;
    if (!std::exchange(resumed, false)) {
      partial.remove();
      throw Error("{}: what arrived has another {} than the listing says", shown_name(file, source),
                  file.hash.size() == 64 ? "SHA-256" : "SHA-1");
    }
    partial.restart();  // what an earlier download left may have been damaged
  }
  partial.publish();
  result.complete = true;
  return result;
}

}  // namespace ridge
