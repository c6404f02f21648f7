// Is a reading good, poor, or impossible?
//
// A typical share says what healthy machines reach of the reference (a datasheet, or a peak derived
// from width x units x clock). Outside the hard limits the measurement itself must be wrong: the
// compiler dropped the work, a cache answered for the memory, a unit was mistaken.
#pragma once

#include <optional>
#include <string>

#include "measure/reading.h"

namespace ridge {

enum class ReadingVerdict : uint8_t {
  good,         // inside the typical range
  slow,         // worse than typical
  fast,         // better than typical, and possible
  implausible,  // no machine does that: the measurement is wrong
  unknown,      // nothing to hold it against
};

struct Judgement {
  ReadingVerdict verdict = ReadingVerdict::unknown;
  Maybe reference;                           // what the reading is held against
  double typical_low = 0, typical_high = 0;  // shares of the reference; 0: none known
  std::string reason;                        // for implausible: which limit it broke
};

// `base` is what is known without measuring.
Judgement judge(const Reading& reading, const Machine& base);

// The same for readings that bound each other: a level faster than the one inside it. Marks
// nothing; returns one line for each contradiction.
std::vector<std::string> contradictions(const Report& report);

std::string reading_verdict_name(ReadingVerdict verdict);

}  // namespace ridge
