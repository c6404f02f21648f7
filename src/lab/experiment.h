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
struct Band {
  double low = 0, expected = 0, high = 0;
};

struct LabPoint {
  double x = 0;
  std::string label;    // where x is no number: "q4_0"
  Band band;            // expected 0: nothing is predicted for this point
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
  std::string sentence;  // the answer, with its numbers
  bool timed = true;     // a disturbed machine changes times, not counted bytes
  Axis x, y;
  std::vector<LabSeries> series;
  std::vector<LabCheck> checks;
  std::vector<std::string> notes;
};

// The part of the subject that an experiment belongs to: the order of the list and of the page.
enum class LabTopic : uint8_t { hardware, model, kernels, formats, serving };

struct Experiment {
  const char* name;  // "attention"
  LabTopic topic;
  const char* question;  // "Why does attention not store its scores?"
  const char* claim;     // the sentence that is tested
  const char* source;    // rows of the list of claims or techniques: "claim 16; FlashAttention"
  const char* next;      // what to try next
  bool on_cpu, on_cuda;
  double seconds;  // it takes about so long in full
  LabResult (*run)(Lab& lab);
  const char* needs = nullptr;  // why it runs neither on a CPU nor on a GPU
};

// In the order in which they are told.
std::span<const Experiment> experiments();
// Throws Error naming the nearest names.
const Experiment& find_experiment(std::string_view name);

// Points that have a prediction, and how many of them lie inside their band. Doubtful points are
// left out of both counts.
struct Agreement {
  int points = 0, inside = 0, left_out = 0;
  double median_error = 0;

  double share() const { return points > 0 ? double(inside) / points : 0; }
};
Agreement agreement_of(std::span<const LabResult> results);
// "9 of 11 points inside their band (82 %), median error 8 %; 2 doubtful points left out".
std::string agreement_text(const Agreement& agreement);

// The one way to a verdict. An equality that fails refutes. A run that was too short to judge by
// (--quick), or with doubts about more than half of its predicted points, leaves the question open,
// and so does a claim that holds while most points miss their bands: what was predicted does not
// explain it. Otherwise the measured points decide.
struct LabJudgement {
  LabVerdict verdict = LabVerdict::open;
  std::string reason;  // of an open verdict or of a failed equality; empty: the sentence says all
};
LabJudgement judge(const LabResult& result, bool quick);

// Points as dots (doubtful ones as circles) and the predicted values as a line.
Plot lab_plot(const Experiment& experiment, const LabResult& result);

}  // namespace ridge
