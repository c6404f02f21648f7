// What a person types: a source of evidence like any file, and the most trusted one.
#pragma once

#include <array>
#include <string>
#include <string_view>

#include "diagnose/evidence.h"

namespace ridge {

// As typed, by quantity; empty: not given. Only quantities with an option can be.
struct StatedOptions {
  std::array<std::string, kQuantities> text;

  std::string& operator[](Quantity q) { return text[static_cast<size_t>(q)]; }
  const std::string& operator[](Quantity q) const { return text[static_cast<size_t>(q)]; }
  bool empty() const;
};

// `drafted` are the draft tokens of a step (--speculate; 0: not known): with it a share of accepted
// drafts becomes a number of tokens. Throws OptionError.
EvidenceFile stated_evidence(const StatedOptions& options, int drafted);

}  // namespace ridge
