// The steps of explain(), each in a file of its own:
//   observation.cc  checks what was seen
//   reconstruct.cc  finds the run's batch and step time, and predicts the same step
//   verdict.cc      compares the two and names the wall
//   levers.cc       predicts what changes would gain
#pragma once

#include <string>

#include "predict/explain.h"

namespace ridge {

// What the steps hand on to each other.
struct Diagnosis {
  Request request;          // with the reconstructed batch, once it is known
  const Observation& seen;  // checked
  Explanation result;

  // A time to first token alone asks about prefill, everything else about decode.
  Phase phase() const { return seen.tokens_per_s || seen.itl_s ? Phase::decode : Phase::prefill; }
  const StepEstimate& predicted() const {
    return phase() == Phase::decode ? result.prediction.decode : result.prediction.prefill;
  }

  void supports(std::string text) { add(Bearing::supports, std::move(text)); }
  void contradicts(std::string text) { add(Bearing::contradicts, std::move(text)); }
  void misses(std::string text) { add(Bearing::missing, std::move(text)); }

 private:
  void add(Bearing bearing, std::string text) {
    result.evidence.push_back({bearing, std::move(text)});
  }
};

// Fills batch, step_s, effective_batch, prediction, the shares, wall and next_wall (as predicted),
// useful_batch and useful_tokens_per_s.
void reconstruct(Diagnosis& d);

// Decides verdict, wall, next_wall and sentence, and lists the evidence.
void judge(Diagnosis& d);

}  // namespace ridge
