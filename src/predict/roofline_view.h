// Everything a roofline picture shows: roofs, ridges, landmarks, every operator with both times,
// and a sentence that says what is seen.
#pragma once

#include <span>
#include <string>

#include "base/json.h"
#include "predict/predict.h"

namespace ridge {

// {machines: [...], landmarks: [...], sentence, techniques, prediction}. The first machine is the
// request's; `others` are drawn beside it. docs/page.md has the fields.
Json roofline_json(const Request& request, const Prediction& prediction,
                   std::span<const System> others);

// Where decode and prefill lie, which side of the ridge that is, and what would move them.
std::string roofline_sentence(const Request& request, const Prediction& prediction);

// What each technique that is switched off would change here; empty where none is off.
std::string technique_sentence(const Request& request, const Prediction& prediction);

// The smallest power of two at which the decode step is no longer decided by memory or launches
// but by compute; nullopt where no batch does that.
std::optional<double> ridge_batch(const Request& request);

}  // namespace ridge
