// Steps of the live stream: merged until they fit the rate that a listener gets.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "serving/observer.h"

namespace ridge {

// Neighbouring steps as one: sums, and one row for each sequence and kind.
struct StepGroup {
  explicit StepGroup(const StepReport& report);
  void merge(const StepGroup& later);

  bool prefills() const { return sum.prefill_sequences > 0; }
  bool decodes() const { return sum.decode_sequences > 0; }
  Wall wall() const;  // of most of the measured time

  int steps = 0;     // 0: requests ended between steps
  int replica = -1;  // -1: there is one
  StepReport sum;
  std::array<double, kWallCount> wall_s{};
  std::vector<StepRow> rows;
};

// Merges neighbours until at most `most` groups are left: first steps of one kind (prompts, tokens,
// both), and then any. Every step stays in exactly one group.
void merge_groups(std::vector<StepGroup>& groups, size_t most);

}  // namespace ridge
