#include "ranks/communicator.h"

#include <algorithm>

namespace ridge {
namespace {

// Below, one exchange of everything beats two exchanges of parts: latency is what counts.
constexpr size_t kOneShotFloats = 16 << 10;

// to[i] = the sum of part 0, part 1, ... at i.
void add_parts(std::span<const float> parts, std::span<float> to) {
  std::copy_n(parts.begin(), to.size(), to.begin());
  for (size_t at = to.size(); at < parts.size(); at += to.size()) {
    for (size_t i = 0; i < to.size(); ++i) to[i] += parts[at + i];
  }
}

}  // namespace

void Communicator::all_reduce(std::span<float> values) {
  const auto ranks = static_cast<size_t>(size());
  if (ranks == 1 || values.empty()) return;
  if (values.size() <= kOneShotFloats) {
    gathered_.resize(values.size() * ranks);
    all_gather(std::as_bytes(values), std::as_writable_bytes(std::span(gathered_)));
    add_parts(gathered_, values);
    return;
  }
  // Two-shot: each rank adds up one part, then all take all parts. The last part is filled up.
  const size_t part = (values.size() + ranks - 1) / ranks;
  gathered_.assign(2 * part * ranks + part, 0.0f);
  const std::span<float> padded = std::span(gathered_).first(part * ranks);
  const std::span<float> theirs = std::span(gathered_).subspan(part * ranks, part * ranks);
  const std::span<float> mine = std::span(gathered_).last(part);
  std::copy(values.begin(), values.end(), padded.begin());
  all_to_all(std::as_bytes(padded), std::as_writable_bytes(theirs));
  add_parts(theirs, mine);
  all_gather(std::as_bytes(mine), std::as_writable_bytes(padded));
  std::copy_n(padded.begin(), values.size(), values.begin());
}

void Communicator::reduce_scatter(std::span<const float> values, std::span<float> part) {
  gathered_.resize(values.size());
  all_to_all(std::as_bytes(values), std::as_writable_bytes(std::span(gathered_)));
  add_parts(gathered_, part);
}

}  // namespace ridge
