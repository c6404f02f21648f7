// A bounded queue from one writer to one reader, for a writer that must never wait or allocate.
// What does not fit is dropped whole and counted. A reader never sees a record that is being
// written.
#pragma once

#include <atomic>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace ridge {

template <typename Record>
class RecordRing {
 public:
  explicit RecordRing(size_t capacity) : records_(capacity) {
    assert(capacity > 0 && (capacity & (capacity - 1)) == 0);
  }

  // The writer's. `fill(i, record)` is called for the next `count` records, which are published
  // together; false where there is no room for all of them: then nothing is.
  template <typename Fill>
  bool write(size_t count, Fill fill) {
    const uint64_t end = written_.load(std::memory_order_relaxed);
    if (end + count - read_.load(std::memory_order_acquire) > records_.size()) return false;
    for (size_t i = 0; i < count; ++i) fill(i, at(end + i));
    written_.store(end + count, std::memory_order_release);
    return true;
  }

  // The reader's. Calls f(record) for everything published, in order, and makes room.
  template <typename F>
  void read_all(F f) {
    const uint64_t end = written_.load(std::memory_order_acquire);
    uint64_t next = read_.load(std::memory_order_relaxed);
    for (; next < end; ++next) f(static_cast<const Record&>(at(next)));
    read_.store(next, std::memory_order_release);
  }

 private:
  Record& at(uint64_t number) { return records_[size_t(number) & (records_.size() - 1)]; }

  std::vector<Record> records_;
  // On cache lines of their own: the two threads would otherwise slow each other down.
  alignas(64) std::atomic<uint64_t> written_ = 0;
  alignas(64) std::atomic<uint64_t> read_ = 0;
};

}  // namespace ridge
