#include "engine/ranks/micro_batches.h"

#include <algorithm>

namespace ridge {
namespace {

struct Division {
  std::vector<int> ends;
  double largest = 0;  // tokens
};

// Cut where the tokens so far come closest to equal parts.
Division divide(std::span<const Slice> batch, double tokens, int parts) {
  Division division;
  double before = 0, begun = 0;  // tokens before this slice, and before this micro-batch
  for (size_t s = 0; s < batch.size(); ++s) {
    const double after = before + double(batch[s].tokens.size());
    const double end = tokens * double(division.ends.size() + 1) / parts;
    const bool closest =
        after + double(s + 1 < batch.size() ? batch[s + 1].tokens.size() : 0) - end > end - after;
    if (s + 1 == batch.size() || (closest && int(division.ends.size()) + 1 < parts)) {
      division.ends.push_back(int(s + 1));
      division.largest = std::max(division.largest, after - begun);
      begun = after;
    }
    before = after;
  }
  return division;
}

}  // namespace

std::vector<int> micro_batch_ends(std::span<const Slice> batch, int stages, TurnTime turn_time) {
  double tokens = 0;
  for (const Slice& slice : batch) tokens += double(slice.tokens.size());
  std::vector<int> best{int(batch.size())};
  const auto time = [&](const Division& division) {
    const double turns = stages + double(division.ends.size()) - 1;
    return turns * turn_time(division.largest);
  };
  double best_time = time({best, tokens});
  for (int parts = 2; parts <= std::min(stages, int(batch.size())); ++parts) {
    Division division = divide(batch, tokens, parts);
    if (time(division) >= best_time) continue;
    best_time = time(division);
    best = std::move(division.ends);
  }
  return best;
}

}  // namespace ridge
