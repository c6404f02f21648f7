#include "step/micro_batches.h"

#include <algorithm>

namespace ridge {
namespace {

struct Division {
  std::vector<int> ends;
  double largest = 0;  // tokens
};

// Cut where the tokens so far come closest to equal parts.
Division divide(std::span<const double> tokens, double all, int parts) {
  Division division;
  double before = 0, begun = 0;  // tokens before this sequence, and before this micro-batch
  for (size_t s = 0; s < tokens.size(); ++s) {
    const double after = before + tokens[s];
    const double end = all * double(division.ends.size() + 1) / parts;
    const bool closest = after + (s + 1 < tokens.size() ? tokens[s + 1] : 0) - end > end - after;
    if (s + 1 == tokens.size() || (closest && int(division.ends.size()) + 1 < parts)) {
      division.ends.push_back(int(s + 1));
      division.largest = std::max(division.largest, after - begun);
      begun = after;
    }
    before = after;
  }
  return division;
}

}  // namespace

std::vector<int> micro_batch_ends(std::span<const double> tokens, int stages, double turn_tokens) {
  double all = 0;
  for (const double count : tokens) all += count;
  std::vector<int> best{int(tokens.size())};
  const auto time = [&](const Division& division) {
    const double turns = stages + double(division.ends.size()) - 1;
    return turns * std::max(1.0, division.largest / turn_tokens);
  };
  double best_time = time({best, all});
  for (int parts = 2; parts <= std::min(stages, int(tokens.size())); ++parts) {
    Division division = divide(tokens, all, parts);
    if (time(division) >= best_time) continue;
    best_time = time(division);
    best = std::move(division.ends);
  }
  return best;
}

std::vector<std::vector<Sequences>> micro_batches(std::span<const Sequences> batch,
                                                  const Plan& plan) {
  if (plan.pp == 1 || plan.turn_tokens <= 0) return {{batch.begin(), batch.end()}};
  std::vector<Sequences> each;  // one sequence an entry
  std::vector<double> tokens;
  for (const Sequences& group : batch) {
    for (double left = group.count; left > 0; --left) {
      each.push_back(group);
      each.back().count = std::min(1.0, left);
      tokens.push_back(each.back().count * group.fresh);
    }
  }
  std::vector<std::vector<Sequences>> parts;
  size_t first = 0;
  for (const int end : micro_batch_ends(tokens, plan.pp, plan.turn_tokens)) {
    parts.emplace_back(each.begin() + ptrdiff_t(first), each.begin() + end);
    first = size_t(end);
  }
  return parts;
}

}  // namespace ridge
