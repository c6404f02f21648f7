// From what was seen to the run that was seen: batch, step time, and the same step as predicted.
#pragma once

#include <optional>
#include <string>

#include "diagnose/levers.h"
#include "diagnose/observations.h"
#include "predict/predict.h"

namespace ridge {

// The run as predicted, and the observed step beside it.
struct Expected {
  Request request;          // with the reconstructed batch
  Prediction prediction;    // at that batch
  double useful_batch = 0;  // where throughput is within 10 % of the most that fits
  double useful_tokens_per_s = 0;
  std::optional<double> effective_batch;  // tokens/s x expected step: what the device acts like
  // Of the observed step; 0 where none was observed.
  double share_of_roof = 0;  // roof time over observed time
  double over_expected = 0;  // observed time over expected time
  double mbu = 0, mfu = 0;
};

struct Reconstruction {
  Phase phase = Phase::decode;  // a time to first token alone asks about prefill
  std::optional<double> batch;
  std::string batch_from;        // in words: "tok/s x inter-token latency"
  bool batch_predicted = false;  // the batch that would yield the rate: its step says nothing new
  std::optional<double> step_s;  // one decode step; for prefill, the whole prompt
  double prompts_s = 0;          // taken off the time per token: prompts of other requests
  double tokens_per_step = 1;    // of a sequence, above 1 with speculation
  std::optional<Expected> expected;
  // The context was given or follows from what was seen. Otherwise a step may be shorter or longer
  // than predicted because the sequences are.
  bool context_known = false;
  double floor_s =
      0;  // no step is faster: the roof, of an empty cache where the context is unknown

  const StepEstimate& predicted() const {
    const Prediction& p = expected->prediction;
    return phase == Phase::decode ? p.decode : p.prefill;
  }
  bool compares() const { return expected && step_s && !batch_predicted; }
  bool is_slow() const;
  bool in_band() const;  // neither slow nor faster than the roof
  bool under_batched(double share) const;
};

Reconstruction reconstruct(const Observations& seen, const std::optional<Request>& request,
                           bool context_known);

}  // namespace ridge
