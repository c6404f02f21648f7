// Which wall is a run hitting? From numbers a person has: throughput, latencies, counters.
//
// The run's step is reconstructed from the observation and compared with the roof and the expected
// band. Counters say what the device did in that time. A verdict comes with the evidence for it,
// the evidence against it and what was not observed. diagnosis.h lists the files that do this.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "predict/levers.h"
#include "predict/observation.h"
#include "predict/predict.h"

namespace ridge {

enum class Verdict : uint8_t {
  impossible,     // faster than the roof: a number is wrong
  healthy,        // within the expected band, and the batch is used well
  under_batched,  // the step is as expected, or memory-bound, but carries far too few sequences
  slow_step,      // slower than expected: the wall says where the time goes
  starved,        // the device is idle: the host, the scheduler or the client holds it back
  full,           // no room for more sequences
};
std::string_view verdict_name(Verdict verdict);

enum class Bearing : uint8_t { supports, contradicts, missing };

struct Evidence {
  Bearing bearing = Bearing::supports;
  std::string text;
};

struct Explanation {
  Verdict verdict = Verdict::healthy;
  Wall wall = Wall::memory, next_wall = Wall::compute;
  std::string sentence;                   // the answer in one line
  double step_s = 0;                      // observed, or reconstructed
  double batch = 0;                       // that the reconstruction uses
  std::optional<double> effective_batch;  // tokens/s x expected step: what the device acts like
  double useful_batch = 0;                // where throughput is within 10 % of the most that fits
  double useful_tokens_per_s = 0;
  double share_of_roof = 0;  // roof time over observed time
  double over_expected = 0;  // observed time over expected time
  double mbu = 0, mfu = 0;   // of the observed step
  Prediction prediction;     // at `batch`
  std::vector<Evidence> evidence;
  std::vector<Lever> levers;  // best first
};

// `request.batch` is ignored: the batch is the observed or reconstructed one. Throws Error for
// observations that check_observation() refuses.
Explanation explain(const Request& request, const Observation& observation);

}  // namespace ridge
