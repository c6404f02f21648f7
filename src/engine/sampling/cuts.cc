#include "engine/sampling/cuts.h"

#include <algorithm>
#include <limits>

#include "engine/sampling/logits.h"

namespace ridge {
namespace {

// Sums of up to 10^5 doubles in any order, with room to spare: each rounds by 2^-53.
constexpr double kRounding = 1e-10;

auto iterator(std::vector<Candidate>& candidates, size_t i) {
  return candidates.begin() + static_cast<ptrdiff_t>(i);
}

}  // namespace

Cuts::Cuts(const SamplerOptions& options, float scale)
    : top_k_(static_cast<size_t>(options.top_k)),
      top_p_(options.top_p),
      min_p_(options.min_p),
      scale_(scale) {}

// Both inputs of a draw use this same function, so equal logits give equal weights.
double Cuts::weight(float logit, float max) const {
  return static_cast<double>(exp_negative((logit - max) * scale_));
}

// Whether this weight and, whatever the rounding, every weight of a smaller logit is under min_p.
bool Cuts::below_min_p(double weight) const { return weight < min_p_ * (1 - 1e-6); }

void Cuts::remove_below_min_p(float max, std::vector<Candidate>& candidates) const {
  if (min_p_ == 0) return;
  std::erase_if(candidates,
                [&](const Candidate& c) { return c.logit < max && weight(c.logit, max) < min_p_; });
}

double Cuts::sum(std::span<const Candidate> candidates, float max) const {
  double sum = 0;
  for (const Candidate& c : candidates) sum += weight(c.logit, max);
  return sum;
}

// Enough of the first candidates for all cuts. Tokens far below the largest logit need not be
// looked at once those above them are known to suffice.
void Cuts::collect(std::span<const float> logits, float max, double total,
                   std::vector<Candidate>& to) const {
  // exp(-8) = 0.0003 and exp(-16) = 1e-7 of the first's probability: the first depth is enough for
  // a peaked distribution, the second for most.
  for (const double depth : {8.0, 16.0, std::numeric_limits<double>::infinity()}) {
    const auto least = static_cast<float>(double{max} - depth / double{scale_});
    to.clear();
    for (size_t token = 0; token < logits.size(); ++token) {
      if (logits[token] < least || logits[token] == kBanned) continue;
      to.push_back({logits[token], static_cast<Token>(token)});
    }
    if (top_k_ > 0) {
      if (to.size() >= top_k_) return;
    } else if (top_p_ < 1) {
      if (sum(to, max) >= top_p_ * total) return;
    } else if (below_min_p(weight(least, max))) {
      return;
    }
  }
}

// The fewest of the first candidates that together weigh at least `wanted`. Halving: whether the
// better half is enough decides which half holds the last of them. Puts them first.
size_t Cuts::top_p_count(double wanted, float max, std::vector<Candidate>& candidates) const {
  size_t begin = 0, end = candidates.size();
  while (end - begin > 1) {
    const size_t middle = begin + (end - begin) / 2;
    std::nth_element(iterator(candidates, begin), iterator(candidates, middle),
                     iterator(candidates, end));
    const double better = sum(std::span(candidates).subspan(begin, middle - begin), max);
    if (better >= wanted) {
      end = middle;
    } else {
      begin = middle;
      wanted -= better;
    }
  }
  return end;
}

void Cuts::keep(std::span<const float> logits, float max, std::vector<Candidate>& kept) const {
  double total = 0;  // of all that top-p counts
  if (top_k_ == 0 && top_p_ < 1) total = sum_exponentials(logits, max, scale_);
  collect(logits, max, total, kept);
  if (top_k_ > 0 && top_k_ < kept.size()) {
    std::nth_element(kept.begin(), iterator(kept, top_k_ - 1), kept.end());
    kept.resize(top_k_);
  }
  if (top_p_ < 1) {
    if (top_k_ > 0) total = sum(kept, max);
    kept.resize(top_p_count(top_p_ * total, max, kept));
  }
  remove_below_min_p(max, kept);
}

bool Cuts::keep(const RowTail& tail, std::vector<Candidate>& candidates) const {
  const float max = candidates.front().logit;
  if (top_k_ > 0) {
    if (candidates.size() < top_k_ && !tail.empty) return false;
    candidates.resize(std::min(candidates.size(), top_k_));
  }
  const bool whole = top_k_ > 0 || tail.empty;  // no token of the tail passed top-k
  if (top_p_ == 1) {
    if (!whole && !below_min_p(weight(tail.largest, max))) return false;
  } else {
    const double head = sum(candidates, max);
    const double total = top_k_ > 0 ? head : tail.total;
    const double error = top_k_ > 0 ? head * kRounding : tail.total_error;
    double reached = 0;
    size_t count = 0;
    while (true) {
      if (count == candidates.size()) return false;
      const double next = weight(candidates[count].logit, max);
      if (count > 0 && below_min_p(next)) break;  // min-p keeps fewer than top-p
      reached += next;
      ++count;
      if (reached >= top_p_ * (total + error)) break;
      if (reached >= top_p_ * (total - error)) return false;
    }
    candidates.resize(count);
  }
  remove_below_min_p(max, candidates);
  return true;
}

}  // namespace ridge
