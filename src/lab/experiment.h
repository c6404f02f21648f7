// An experiment: a claim of the field, what the roofline predicts for it on this machine, and what
// real kernels do. Each lies in a file of its own; experiments.cc lists them.
#pragma once

#include <cmath>
#include <cstdint>
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
  open,  // not answerable here; the sentence says why
};
std::string_view lab_verdict_name(LabVerdict verdict);

struct LabResult {
  LabVerdict verdict = LabVerdict::open;
  std::string sentence;  // the answer, with its numbers
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
};

// In the order in which they are told.
std::span<const Experiment> experiments();
// Throws Error naming the nearest names.
const Experiment& find_experiment(std::string_view name);

// Points of a result that have a prediction, and how many of them lie inside their band.
struct Agreement {
  int points = 0, inside = 0;
  double median_error = 0;

  double share() const { return points > 0 ? double(inside) / points : 0; }
};
Agreement agreement_of(std::span<const LabResult> results);

// Points as dots and the predicted values as a line.
Plot lab_plot(const Experiment& experiment, const LabResult& result);

}  // namespace ridge
