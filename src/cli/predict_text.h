// A prediction for a person to read, and the roofline it lies under.
#pragma once

#include <string>

#include "base/plot.h"
#include "plan/service.h"
#include "predict/predict.h"

namespace ridge {

std::string stack_words(const Request& request);  // "stack vllm (vLLM 0.24, the default for h200)"
std::string prediction_headline(const Request& request, const Prediction& prediction);
std::string prediction_phases(const Request& request, const Prediction& prediction);
// What the clients of a simulated endpoint see.
std::string simulated_text(const ServiceSummary& summary);
std::string prediction_memory(const Request& request, const Prediction& prediction);
std::string prediction_ops(const Prediction& prediction);
std::string prediction_notes(const Request& request, const Prediction& prediction);

// One roof per dtype the machine has a peak for, the cache's above device memory's, and a marker
// per operator of both phases.
Plot roofline_plot(const Request& request, const Prediction& prediction);

}  // namespace ridge
