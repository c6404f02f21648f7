// Packs a model's weights into a DeviceModel.
#pragma once

#include "engine/cuda/host/device_model.h"
#include "engine/cuda/layout/wide_heads.h"
#include "engine/weights/weights.h"

namespace ridge {

struct RankLinks;

// `links`: the ranks that share the model, of which `weights` are one's part; null: none.
void load_model(const Weights& weights, const cuda::WideHeads& heads, const RankLinks* links,
                cuda::DeviceModel& to);

}  // namespace ridge
