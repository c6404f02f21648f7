// The predictor and the engine read one description of a model.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/json.h"
#include "engine/tiny_families.h"
#include "engine/weights/load_parts.h"
#include "model/architecture.h"
#include "model/read.h"

namespace ridge {
namespace {

using nlohmann::json;

// Of all tensors that the engine would load.
double loaded_parameters(const Model& model) {
  Weights weights;
  weights.architecture = architecture_of(model);
  double count = 0;
  for (const Slot& slot : make_slots(weights)) {
    count += double(slot.rows) * double(slot.matrix ? slot.columns : 1);
  }
  return count;
}

// Released configs leave fields out: whatever the reader then assumes, prediction and run must
// assume together.
TEST(DescribedOnce, EnginesAndPredictorsSizesAgreeWhateverAConfigLeavesOut) {
  int executed = 0, refused = 0;
  for (const TinyFamily& family : kTinyFamilies) {
    const json whole = parse_json(family.config, family.name);
    for (const auto& [dropped, value] : whole.items()) {
      json config = whole;
      if (dropped != "model_type") config.erase(dropped);  // once the whole config
      const std::string name = std::string(family.name) + " without " + dropped;
      Model model;
      try {
        model = read_config(config, name);
      } catch (const Error&) {
        ++refused;  // by both
        continue;
      }
      EXPECT_EQ(model.execution != nullptr, model.not_executed.empty()) << name;
      if (!model.execution) continue;
      EXPECT_EQ(loaded_parameters(model), parameters(model)) << name;
      ++executed;
    }
  }
  EXPECT_GT(executed, 100);
  EXPECT_GT(refused, 50);
}

}  // namespace
}  // namespace ridge
