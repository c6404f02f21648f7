// Observations and diagnoses as the tests write them.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "diagnose/diagnose.h"
#include "predict/support.h"

namespace ridge {

using Stated = std::vector<std::pair<Quantity, double>>;

inline Observations stated(const Stated& values, RunSetup setup = {}) {
  EvidenceFile file;
  file.setup = std::move(setup);
  for (const auto& [quantity, value] : values) {
    file.add(quantity, value, Trust::stated, quantity_info(quantity).name);
  }
  Evidence evidence;
  evidence.files.push_back(std::move(file));
  return combine(std::move(evidence));
}

inline Diagnosis judged(const std::optional<Request>& request, const Stated& values,
                        RunSetup setup = {}) {
  Identified identified;
  identified.request = request;
  identified.context_known = true;
  return diagnose(stated(values, std::move(setup)), std::move(identified));
}

}  // namespace ridge
