// What is served, and what it is held against: GET /api/serving.
#pragma once

#include <optional>
#include <string>

#include "base/json.h"
#include "engine/runner/runner.h"
#include "machine/machine.h"
#include "roofline/stack.h"

namespace ridge {

struct ServedLimits {
  int max_context = 0;
  int max_sequences = 0;  // of all replicas together
  int max_drafts = 0;
  int replicas = 1;
};

// The fields of docs/page.md, "The live stream". What needs a machine is null without one.
Json serving_json(const std::string& model_name, const Runner& runner, const ServedLimits& limits,
                  const std::optional<System>& system, const std::optional<Stack>& stack);
// {"serving": false, "why": ...}
Json not_serving_json(const std::string& why);

}  // namespace ridge
