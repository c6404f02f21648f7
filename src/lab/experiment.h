// An experiment: a claim of the field, what the roofline predicts for it on this machine, and what
// real kernels do. Each lies in a file of its own; experiments.cc lists them.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/plot.h"

namespace ridge {

class Lab;

// What a time or a rate should be, stated before it is measured.
struct LabBand {
  double low = 0, expected = 0, high = 0;
};

struct LabPoint {
  double x = 0;
  std::string label;    // a name for the point: "q4_0"
  LabBand band;         // expected 0: nothing is predicted for this point
  double measured = 0;  // median
  double spread = 0;    // (90th - 10th percentile) / median
  std::string doubt;    // why not to lean on it; empty: no reason seen

  bool predicted() const { return band.expected > 0; }
  bool doubtful() const { return !doubt.empty(); }
  bool inside() const { return measured >= band.low && measured <= band.high; }
  double error() const { return std::abs(measured / band.expected - 1); }
};

struct LabSeries {
  std::string name;
  std::vector<LabPoint> points;
};

// An equality that the claim rests on: the same tokens, a difference within rounding.
struct LabCheck {
  std::string what;
  bool holds = false;
};

enum class LabVerdict : uint8_t {
  confirmed,
  refuted,
  open,  // not answerable here; the reason or the sentence says why
};
std::string_view lab_verdict_name(LabVerdict verdict);

struct LabResult {
  // Whether the measured points show what the claim says; empty where this machine cannot answer.
  std::optional<bool> holds;
  // Why a point that `holds` rests on is doubtful; empty: none is. Set by decide().
  std::string deciding_doubt;
  std::string sentence;     // the answer, with its numbers
  bool timed = true;        // a disturbed machine changes times, not counted bytes
  bool on_memory = true;    // points rest on memory or a shared cache, whose rates may change
  bool categories = false;  // x only counts the points, and each has a label: no order, no line
  Axis x, y;
  std::vector<LabSeries> series;
  std::vector<LabCheck> checks;
  std::vector<std::string> notes;
};

// Sets `holds`, and what its deciding points are doubted for: a doubtful point decides nothing.
// Points that compare series are all of them.
using LabPoints = std::vector<const LabPoint*>;
void decide(LabResult& result, bool holds, const LabPoints& points);
LabPoints points_of(const LabSeries& series);
LabPoints operator+(LabPoints a, const LabPoints& b);

// The part of the subject that an experiment belongs to: the order of the list and of the page.
enum class LabTopic : uint8_t { hardware, model, kernels, formats, serving };

// Bytes that an experiment holds at most, beyond what the process or the device held before:
// weights, keys and values, step buffers, arrays. lab_memory.h adds what each thread and the
// ceilings' probe need. On the CPU these are measured peaks (`peak_bytes` of --json) and a quarter
// more, or the largest arrays that a machine with any cache gives; on CUDA sums of what is
// allocated.
struct LabMemory {
  double quick_cpu = 0, cpu = 0, quick_cuda = 0, cuda = 0;
};

struct Experiment {
  const char* name;  // "attention"
  LabTopic topic;
  const char* question;  // "Why does attention not store its scores?"
  const char* claim;     // the sentence that is tested
  const char* source;    // the technique and its paper: "FlashAttention (Dao et al., 2022)"
  const char* next;      // what to try next: a command that runs as it stands
  // How it is measured on each device, for the same claim; null: it does not run there.
  LabResult (*on_cpu)(Lab& lab);
  LabResult (*on_cuda)(Lab& lab);
  double seconds;  // it takes about so long in full
  LabMemory memory;
  const char* needs = nullptr;  // why it does not run on a device
  bool ceilings = true;         // false: nothing is timed, so no ceiling is probed for it
};

// In the order in which they are told.
std::span<const Experiment> experiments();
// Throws Error naming the nearest names.
const Experiment& find_experiment(std::string_view name);

// Points that have a prediction, and how many of them lie inside their band. Doubtful points are
// left out of both counts and of the errors, which are |measured / predicted - 1|.
struct Agreement {
  int points = 0, inside = 0, left_out = 0;
  double median_error = 0, p90_error = 0;

  double share() const { return points > 0 ? double(inside) / points : 0; }
  // The same with doubtful points counted as outside.
  double share_of_all() const {
    return points + left_out > 0 ? double(inside) / (points + left_out) : 0;
  }
};
Agreement agreement_of(std::span<const LabResult> results);
// "9 of 11 points inside their band (82 %), error 8 % (median), 20 % (90th percentile); 2 doubtful
// points left out (69 % with them as outside)".
std::string agreement_text(const Agreement& agreement);

// The one way to a verdict. An equality that fails refutes. The question stays open where the run
// was too short to judge by (--quick), where a point that decides or more than half of the
// predicted points are doubtful, and where the claim holds while most points miss their bands: the
// prediction does not explain it then. Otherwise the measured points decide.
struct LabJudgement {
  LabVerdict verdict = LabVerdict::open;
  std::string reason;  // of an open verdict or of a failed equality; empty: the sentence says all
};
LabJudgement judge(const LabResult& result, bool quick);

}  // namespace ridge
