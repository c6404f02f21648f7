// Levers: changes to a run, each with its predicted gain and the engine's name for the setting.
#pragma once

#include <string>
#include <vector>

#include "predict/predict.h"

namespace ridge {

struct Diagnosis;

// One change and its predicted effect, everything else kept.
struct Lever {
  std::string name;        // "batch 8 -> 64"
  std::string setting;     // in the engine's words: "--max-num-seqs"; empty: not known
  bool targeted = false;   // answers the verdict; the others are what is open besides
  bool predicted = false;  // the numbers below are known
  double gain = 1;         // output tokens/s per device, after over before
  double tpot_s = 0;       // expected, after
  double ttft_gain = 1;    // time to first token, before over after
  Wall next_wall = Wall::memory;
  std::string note;
};

// The phase in question: its gain ranks the levers, and its wall is the lever's next wall.
enum class Phase : uint8_t { prefill, decode };

// The levers that fit the memory and gain something (at least 0.5 % in throughput per device, time
// per token or time to first token), best first.
std::vector<Lever> rank_levers(const Request& request, const Prediction& now,
                               Phase phase = Phase::decode);
void sort_levers(std::vector<Lever>& levers, Phase phase);

// Those of a verdict first, then what else gains; none that the evidence excludes.
std::vector<Lever> levers_for(const Diagnosis& diagnosis);

}  // namespace ridge
