// All evidence of a case, combined: one value for each quantity, the setup of the run, and where
// the sources disagree.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "diagnose/evidence.h"

namespace ridge {

struct Observations {
  Observations() = default;
  Observations(Observations&&) = default;  // not copied: pointers lead into `evidence`
  Observations& operator=(Observations&&) = default;

  Quantities values;                                  // of each quantity, the most trusted
  std::array<const Observed*, kQuantities> source{};  // where the value is from; into `evidence`
  RunSetup setup;
  const KernelProfile* profile = nullptr;  // the most telling one; into `evidence`
  std::vector<std::string> conflicts;      // sources or quantities that contradict each other
  Evidence evidence;

  const std::optional<double>& operator[](Quantity q) const { return values[q]; }
  double value_or(Quantity q, double otherwise) const { return values.value_or(q, otherwise); }
  bool has(Quantity q) const { return values.has(q); }
  // Known, and not merely an average since the server's start.
  bool is_recent(Quantity q) const;
  Trust trust(Quantity q) const;
};

// Values that cannot be (negative, NaN, shares above 1) are dropped and become conflicts; those
// that a person typed throw OptionError.
Observations combine(Evidence evidence);

}  // namespace ridge
