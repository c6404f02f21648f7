#include "ranks/communicator.h"

#include <algorithm>

#include "cost/collective.h"

namespace ridge {
namespace {

// to[i] = the sum of part 0, part 1, ... at i; at least two parts.
void add_parts(std::span<const float> parts, std::span<float> to) {
  for (size_t i = 0; i < to.size(); ++i) to[i] = parts[i] + parts[to.size() + i];
  for (size_t at = 2 * to.size(); at < parts.size(); at += to.size()) {
    for (size_t i = 0; i < to.size(); ++i) to[i] += parts[at + i];
  }
}

}  // namespace

// Large buffers begin at one and the same offset of a page, where the C library's copies are slow
// on some processors (local_copy.h): half a page lies between the caller's and this one.
std::span<float> Communicator::scratch(size_t floats) {
  constexpr size_t kHalfPage = 2048 / sizeof(float);
  if (scratch_.size() < kHalfPage + floats) scratch_.resize(kHalfPage + floats);
  return std::span(scratch_).subspan(kHalfPage, floats);
}

void Communicator::all_reduce(std::span<float> values) {
  const auto ranks = static_cast<size_t>(size());
  if (ranks == 1 || values.empty()) return;
  if (all_reduce_is_one_shot(double(values.size_bytes()), size())) {
    const std::span<float> all = scratch(values.size() * ranks);
    all_gather(std::as_bytes(values), std::as_writable_bytes(all));
    add_parts(all, values);
    return;
  }
  // Two-shot: each rank adds up one part, then all take all parts. The last part is filled up.
  const size_t part = (values.size() + ranks - 1) / ranks;
  const std::span<float> all = scratch(2 * part * ranks + part);
  const std::span<float> padded = all.first(part * ranks);
  const std::span<float> theirs = all.subspan(part * ranks, part * ranks);
  const std::span<float> mine = all.last(part);
  std::copy(values.begin(), values.end(), padded.begin());
  std::fill(padded.begin() + ptrdiff_t(values.size()), padded.end(), 0.0f);
  all_to_all(std::as_bytes(padded), std::as_writable_bytes(theirs));
  add_parts(theirs, mine);
  all_gather(std::as_bytes(mine), std::as_writable_bytes(padded));
  std::copy_n(padded.begin(), values.size(), values.begin());
}

void Communicator::reduce_scatter(std::span<const float> values, std::span<float> part) {
  if (size() == 1) {
    std::copy(values.begin(), values.end(), part.begin());
    return;
  }
  const std::span<float> all = scratch(values.size());
  all_to_all(std::as_bytes(values), std::as_writable_bytes(all));
  add_parts(all, part);
}

}  // namespace ridge
