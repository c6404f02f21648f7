// How many drafts a step should verify.
//
// With a probability a that a draft is accepted after those before it were, a sequence that
// verifies k drafts gains E(k) = 1 + a + a^2 + ... + a^k tokens a step. A step of 1 + k tokens per
// sequence takes longer than one of 1 token, by what the predictor says, corrected by what steps
// with k drafts took so far. The policy takes the k with the most tokens per second; 0 is a choice.
#pragma once

#include <functional>
#include <span>
#include <unordered_map>
#include <vector>

#include "serving/drafter.h"

namespace ridge {

class DraftPolicy {
 public:
  // Predicted seconds of a step of `sequences` sequences with 1 + drafts tokens each after `past`
  // cached ones, the making of the drafts included. Empty: every step takes the same time.
  using StepSeconds = std::function<double(int sequences, int drafts, double past)>;

  explicit DraftPolicy(StepSeconds seconds) : seconds_(std::move(seconds)) {}

  // `available` drafts exist for each of `requests`; returns how many of them to verify at most.
  int choose(std::span<const DraftRequest> requests, std::span<const int> available);
  // A step without prompts took `measured` seconds, the making of its drafts included.
  void on_step(int sequences, int drafts, double past, double measured);
  void verified(RequestId id, int proposed, int accepted);
  void remove(RequestId id) { requests_.erase(id); }

  double acceptance(RequestId id) const;  // of a draft whose predecessors were accepted

 private:
  // Accepted and proposed drafts, older ones weighing less.
  struct Counts {
    double accepted = 0, decided = 0;
    void add(int proposed, int accepted_drafts);
  };

  double correction(int drafts) const;

  StepSeconds seconds_;
  Counts all_{.accepted = 2, .decided = 4};
  std::unordered_map<RequestId, Counts> requests_;
  std::vector<double> corrections_;  // by drafts: measured over predicted, moving average; 0: none
  int without_ = 0;                  // steps since drafts were verified last
  int probes_ = 0;                   // steps left in which one draft is tried
};

}  // namespace ridge
