// Levers: changes to a request, each with its predicted gain.
#pragma once

#include <string>
#include <vector>

#include "predict/predict.h"

namespace ridge {

// One change and what the model says it would bring, everything else kept.
struct Lever {
  std::string name;      // "batch 8 -> 64"
  double gain = 1;       // output tokens/s after over before
  double tpot_s = 0;     // expected, after
  double ttft_gain = 1;  // time to first token, before over after
  Wall next_wall = Wall::memory;
  bool fits = true;
  std::string note;
};

// Which phase is asked about: its gain ranks the levers, its wall comes next.
enum class Phase : uint8_t { prefill, decode };

// All levers that apply to a request, best first.
std::vector<Lever> rank_levers(const Request& request, const Prediction& now,
                               Phase phase = Phase::decode);
void sort_levers(std::vector<Lever>& levers, Phase phase);

}  // namespace ridge
