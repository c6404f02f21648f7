// Which wall is a run hitting? Evidence -> observations -> reconstruction -> verdict -> levers,
// each step in a file of its own.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "diagnose/identify.h"
#include "diagnose/levers.h"
#include "diagnose/observations.h"
#include "diagnose/operators.h"
#include "diagnose/reconstruct.h"
#include "diagnose/verdict.h"

namespace ridge {

struct Diagnosis {
  Verdict verdict = Verdict::unknown;
  bool healthy = false;
  std::optional<Wall> wall, next_wall;
  double confidence = 0;  // 0 to 1
  std::optional<Verdict> runner_up;
  double runner_up_confidence = 0;
  std::string sentence;  // the answer in one line
  std::vector<Finding> findings;
  std::vector<std::string> missing;  // what would settle it, with the option or command
  std::string machine;               // its name in the atlas; empty: not known
  std::vector<std::string> taken;    // what the files say about model and machine
  std::vector<Lever> levers;         // best first
  std::vector<OperatorTime> operators;
  Observations seen;
  Reconstruction run;
};

// `identified` is from identify() over the same observations. Throws Error where nothing was
// observed at all.
Diagnosis diagnose(Observations seen, Identified identified);

}  // namespace ridge
