// Positions whose experts are a near tie: the device's rounding may fall to another expert there,
// which changes that position's result and, through attention, those after it.
#pragma once

#include <cmath>
#include <limits>
#include <span>
#include <vector>

#include "engine/reference/forward.h"

namespace ridge {

// How close each token's choice of experts is (reference::forward).
inline std::vector<double> router_gaps(const Weights& weights, std::span<const Token> tokens) {
  std::vector<double> gaps(tokens.size(), std::numeric_limits<double>::infinity());
  if (weights.architecture.experts > 0) reference::forward(weights, tokens, &gaps);
  return gaps;
}

class RoutingTies {
 public:
  // `error`: the relative error of what the router reads. A gap is the difference of two logits,
  // each with that error.
  RoutingTies(std::span<const double> gaps, double error) {
    for (const double gap : gaps) {
      before_.push_back(count_);
      tied_.push_back(gap < 2 * error);
      count_ += tied_.back();
    }
  }
  bool tied(size_t position) const { return tied_[position]; }
  int count() const { return count_; }
  // The relative error allowed at a position without a tie, where `error` is allowed without ties.
  // Earlier tied positions may each differ by their whole size, independently of each other; with
  // random weights attention is nearly uniform, so each weighs 1 / (position + 1).
  double limit(size_t position, double error) const {
    return error + std::sqrt(double(before_[position])) / double(position + 1);
  }

 private:
  std::vector<bool> tied_;
  std::vector<int> before_;  // tied positions before each
  int count_ = 0;
};

}  // namespace ridge
