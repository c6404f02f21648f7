// Requests as the tests write them.
#pragma once

#include <memory>
#include <string>

#include "machine/atlas.h"
#include "model/read.h"
#include "predict/predict.h"

namespace ridge {

inline Request make_request(const std::string& model, const std::string& system, double batch = 1,
                            double context = 2048, const std::string& stack = "typical") {
  Request r;
  r.model = std::make_shared<const Model>(find_model(model));
  r.system = find_system(system);
  r.stack = find_stack(stack);
  r.batch = batch;
  r.context = context;
  r.plan.tp = r.system.devices_per_node;
  return r;
}

}  // namespace ridge
