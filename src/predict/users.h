// How many users at once? As many as memory holds and as the latency target allows.
#pragma once

#include "base/json.h"
#include "predict/predict.h"

namespace ridge {

struct UserLimit {
  Maybe by_memory;        // sequences that fit; unknown where the memory's size is
  double by_latency = 0;  // sequences whose time per token still meets the target; 0: not even one
  double users = 0;       // the smaller of both
  Wall decides = Wall::capacity;  // capacity, or the wall that makes the step too long
};

// The time per token grows with the batch, so the largest batch within the target is well defined.
UserLimit users_at(const Request& request, double target_s);

Json users_json(const Request& request, double target_s);

}  // namespace ridge
