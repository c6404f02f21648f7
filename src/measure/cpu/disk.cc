#include "measure/cpu/disk.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/units.h"

namespace ridge {
namespace {

constexpr size_t kBlock = size_t{4} << 20;  // large enough to stripe, small enough to spread
constexpr size_t kAlignment = 4096;
constexpr int kReaders = 8;  // requests in flight

struct Free {
  void operator()(void* memory) const { std::free(memory); }
};
using Block = std::unique_ptr<uint64_t, Free>;

Block make_block() { return Block(static_cast<uint64_t*>(std::aligned_alloc(kAlignment, kBlock))); }

class ScratchFile {
 public:
  ScratchFile(const std::string& folder, size_t blocks)
      : path_(fmt::format("{}/ridge-measure-{}.tmp", folder, getpid())) {
    const int file = open(path_.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
    if (file < 0) throw Error("{}: {}", folder, std::strerror(errno));
    // Random contents: a disk that compresses or drops zeros would look too fast.
    const Block block = make_block();
    std::mt19937_64 random(7);
    bool ok = block != nullptr;
    for (size_t i = 0; ok && i < kBlock / sizeof(uint64_t); ++i) block.get()[i] = random();
    for (size_t i = 0; ok && i < blocks; ++i) {
      block.get()[0] = i;  // no two blocks alike
      ok = write(file, block.get(), kBlock) == static_cast<ssize_t>(kBlock);
    }
    ok = ok && fsync(file) == 0;
    posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
    const int error = errno;
    close(file);
    if (!ok) {
      unlink(path_.c_str());
      throw Error("{}: {}", folder, std::strerror(error));
    }
  }
  ~ScratchFile() { unlink(path_.c_str()); }
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

double read_once(int file, size_t blocks) {
  std::atomic<size_t> next = 0;
  std::atomic<bool> failed = false;
  const auto start = std::chrono::steady_clock::now();
  std::vector<std::thread> readers;
  for (int i = 0; i < kReaders; ++i) {
    readers.emplace_back([&] {
      const Block block = make_block();
      for (size_t at = next++; at < blocks && !failed; at = next++) {
        const ssize_t got =
            block ? pread(file, block.get(), kBlock, static_cast<off_t>(at * kBlock)) : -1;
        if (got != static_cast<ssize_t>(kBlock) || block.get()[0] != at) failed = true;
      }
    });
  }
  for (std::thread& reader : readers) reader.join();
  if (failed) throw Error("reading the scratch file back failed");
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

Reading measure_disk(const std::string& folder, double bytes, int passes) {
  struct statvfs space = {};
  if (statvfs(folder.c_str(), &space) != 0) throw Error("{}: {}", folder, std::strerror(errno));
  if (static_cast<double>(space.f_bavail) * static_cast<double>(space.f_frsize) < 4 * bytes) {
    throw Error("{}: too little free space for a scratch file of {}", folder, pretty_bytes(bytes));
  }
  const size_t blocks = static_cast<size_t>(bytes) / kBlock;
  const ScratchFile scratch(folder, blocks);
  const int file = open(scratch.path().c_str(), O_RDONLY | O_DIRECT | O_CLOEXEC);
  if (file < 0) throw Error("{}: no direct reads here ({})", folder, std::strerror(errno));
  std::vector<double> rates;
  try {
    for (int pass = 0; pass < passes; ++pass) {
      rates.push_back(static_cast<double>(blocks * kBlock) / read_once(file, blocks));
    }
  } catch (...) {
    close(file);
    throw;
  }
  close(file);
  Reading reading = summarize(
      "disk.read", "levels.disk.read_bandwidth", Dimension::bandwidth, rates,
      fmt::format("{} readers, 4 MiB direct reads over a file of {} in {}; a virtual disk may "
                  "answer from its host's memory",
                  kReaders, pretty_bytes(static_cast<double>(blocks * kBlock)), folder));
  return reading;
}

}  // namespace ridge
