// Whether a model fits a device's memory, asked before anything is loaded, by the predictor's
// numbers.
#pragma once

#include <string>

#include "engine/cuda/layout/weight_format.h"
#include "model/model.h"
#include "step/plan.h"

namespace ridge {

// Bytes on the device.
struct DeviceNeed {
  double weights = 0;  // embedding and head apart even where the file has one for both
  double cache = 0;    // every layer keeps every token, windows or not; a layer of it in bf16
                       // besides, where prompts need it unpacked
  double working = 0;  // a step's activations; while loading, matrices that wait to be packed
  double all() const { return weights + cache + working; }
};

// `plan`: its KV format and page counts; `max_tokens` of one step.
DeviceNeed device_need(const Model& model, const Plan& plan, cuda::WeightFormat format,
                       int cache_tokens, int max_tokens);

// Throws Error where `available` bytes of `device` do not hold it: what is needed, and the longest
// cache or the formats, of weights or of the cache, that would fit.
void check_device_memory(const Model& model, const Plan& plan, cuda::WeightFormat format,
                         int cache_tokens, int max_tokens, double available,
                         const std::string& device);

}  // namespace ridge
