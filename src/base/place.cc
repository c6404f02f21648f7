#include "base/place.h"

#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>

#include "machine/detect.h"

namespace ridge {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;

// "0-1,64" of /sys: the first processor of a core speaks for it.
int first_sibling(int processor) {
  std::ifstream file("/sys/devices/system/cpu/cpu" + std::to_string(processor) +
                     "/topology/thread_siblings_list");
  int first = processor;
  return file >> first ? first : processor;
}

}  // namespace

std::vector<int> usable_processors() {
  std::vector<int> processors;
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0) {
    for (int i = 0; i < CPU_SETSIZE; ++i) {
      if (CPU_ISSET(i, &set)) processors.push_back(i);
    }
  }
  if (processors.empty()) {
    const int count = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
    for (int i = 0; i < count; ++i) processors.push_back(i);
  }
  return processors;
}

std::vector<int> one_per_core(const std::vector<int>& processors) {
  std::vector<int> chosen, seen;
  for (const int processor : processors) {
    const int core = first_sibling(processor);
    if (std::find(seen.begin(), seen.end(), core) != seen.end()) continue;
    seen.push_back(core);
    chosen.push_back(processor);
  }
  return chosen;
}

double free_bytes() {
  std::ifstream file("/proc/meminfo");
  for (std::string key; file >> key;) {
    double kilobytes = 0;
    if (key == "MemAvailable:" && file >> kilobytes) {
      return std::min(kilobytes * 1024, memory_limit().value_or(kilobytes * 1024));
    }
  }
  return static_cast<double>(sysconf(_SC_AVPHYS_PAGES)) *
         static_cast<double>(sysconf(_SC_PAGESIZE));
}

MappedBuffer::MappedBuffer(size_t bytes, Pages pages)
    : bytes_((bytes + kHugePage - 1) / kHugePage * kHugePage), data_(nullptr) {
  // One huge page more than asked, so that the part in use can start on a boundary of one.
  void* raw =
      mmap(nullptr, bytes_ + kHugePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (raw == MAP_FAILED) return;
  const uintptr_t start = reinterpret_cast<uintptr_t>(raw);
  const uintptr_t aligned = (start + kHugePage - 1) / kHugePage * kHugePage;
  if (aligned > start) munmap(raw, aligned - start);
  const uintptr_t end = start + bytes_ + kHugePage;
  data_ = reinterpret_cast<void*>(aligned);
  if (end > aligned + bytes_) {
    munmap(reinterpret_cast<void*>(aligned + bytes_), end - aligned - bytes_);
  }
  madvise(data_, bytes_, pages == Pages::huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
}

MappedBuffer::~MappedBuffer() {
  if (data_) munmap(data_, bytes_);
}

double MappedBuffer::huge_share() const {
  std::ifstream file("/proc/self/smaps");
  const uintptr_t start = reinterpret_cast<uintptr_t>(data_);
  const uintptr_t end = start + bytes_;
  bool inside = false;
  double found = 0;
  for (std::string line; std::getline(file, line);) {
    uintptr_t low = 0, high = 0;
    char dash = 0;
    std::istringstream words(line);
    if (line.find(':') > line.find(' ') && words >> std::hex >> low >> dash >> high) {
      inside = low < end && high > start;  // a mapping's first line: "7f00-7f80 rw-p ..."
    } else if (inside && line.starts_with("AnonHugePages:")) {
      found += std::strtod(line.c_str() + std::string_view("AnonHugePages:").size(), nullptr);
    }
  }
  return std::min(1.0, found * 1024 / static_cast<double>(bytes_));
}

}  // namespace ridge
