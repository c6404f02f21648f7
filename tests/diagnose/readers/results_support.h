// Looks into what the readers of results and logs returned.
#pragma once

#include <cmath>
#include <filesystem>
#include <optional>
#include <string>

#include "diagnose/evidence.h"

namespace ridge::results_test {

inline std::optional<double> observed_value(const EvidenceFile& file, Quantity quantity) {
  for (const Observed& o : file.observed) {
    if (o.quantity == quantity) return o.value;
  }
  return std::nullopt;
}

// NaN where it was not observed: no comparison with it holds.
inline double value_of(const EvidenceFile& file, Quantity quantity) {
  return observed_value(file, quantity).value_or(std::nan(""));
}

// Some note contains the text.
inline bool has_note(const EvidenceFile& file, const std::string& text) {
  for (const std::string& note : file.notes) {
    if (note.find(text) != note.npos) return true;
  }
  return false;
}

inline std::filesystem::path evidence_folder() { return RIDGE_SOURCE_DIR "/../shared/evidence"; }

}  // namespace ridge::results_test
