#include "engine/weights/lazy_weights.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "base/affinity.h"

namespace ridge {

void LateCopies::add(const Matrix& whole, CopyRows copy) {
  by_address_[whole.data] = {whole, std::move(copy)};
}

void LateCopies::fill(const Matrix& view) const {
  auto found = by_address_.upper_bound(view.data);
  if (found == by_address_.begin()) return;
  const Late& late = std::prev(found)->second;
  const Matrix& whole = late.whole;
  const int64_t offset = view.data - whole.data;
  if (offset >= whole.rows * whole.row_stride) return;
  const int64_t first = offset / whole.row_stride, skipped = offset % whole.row_stride;
  const size_t kept = storage_bytes(view.storage, view.columns);
  constexpr int64_t kRows = 32;
  std::atomic<int64_t> next{0};
  std::mutex mutex;
  std::exception_ptr failed;
  const auto copy_piece = [&](int64_t at, std::vector<std::byte>& rows) {
    const int64_t count = std::min(kRows, view.rows - at);
    // The memory is this class's to write: whoever added the matrix made it for that.
    auto* to = const_cast<std::byte*>(view.data) + at * whole.row_stride;
    if (int64_t(kept) == whole.row_stride) return late.copy(first + at, count, to);
    rows.resize(size_t(kRows * whole.row_stride));
    late.copy(first + at, count, rows.data());
    for (int64_t r = 0; r < count; ++r) {
      std::memcpy(to + r * whole.row_stride, rows.data() + r * whole.row_stride + skipped, kept);
    }
  };
  const auto work = [&] {
    std::vector<std::byte> rows;
    try {
      for (int64_t at = next.fetch_add(kRows); at < view.rows; at = next.fetch_add(kRows)) {
        copy_piece(at, rows);
      }
    } catch (...) {
      const std::lock_guard lock(mutex);
      failed = std::current_exception();
    }
  };
  {
    const bool large = double(view.rows) * double(kept) > double(4 << 20);
    const size_t threads = large ? usable_processors().size() : 1;
    std::vector<std::jthread> workers;
    for (size_t t = 1; t < threads; ++t) workers.emplace_back(work);
    work();
  }
  if (failed) std::rethrow_exception(failed);
}

}  // namespace ridge
