// Whether a model fits a device's memory, checked before anything is loaded: weights and cache by
// the predictor's numbers, the steps' memory as it will be allocated.
#pragma once

#include <string>

#include "base/weight_format.h"
#include "model/model.h"
#include "step/plan.h"

namespace ridge {

// Bytes on the device.
struct DeviceNeed {
  double weights = 0;  // embedding and head apart even where the file has one for both
  double cache = 0;    // every layer of the fullest stage keeps every token, windows or not; a
                       // layer of it in bf16 besides, where prompts need it unpacked
  double working = 0;  // of the steps; while loading, besides, matrices that wait to be packed
  double all() const { return weights + cache + working; }
};

// `plan`: its KV format and page counts; `step_bytes`: cuda::step_bytes().
DeviceNeed device_need(const Model& model, const Plan& plan, cuda::WeightFormat format,
                       int cache_tokens, double step_bytes);

// Throws Error where `available` bytes of `device` do not hold it: what is needed, and the longest
// cache or the formats, of weights or of the cache, that would fit.
void check_device_memory(const Model& model, const Plan& plan, cuda::WeightFormat format,
                         int cache_tokens, double step_bytes, double available,
                         const std::string& device);

}  // namespace ridge
