// An Architecture as the CUDA engine executes it, and whether it can.
#pragma once

#include "engine/cuda/host/device_model.h"
#include "engine/cuda/layout/wide_heads.h"
#include "engine/runner/runner.h"
#include "engine/weights/weights.h"

namespace ridge {

cuda::ModelShape model_shape(const Architecture& architecture, const cuda::WideHeads& heads);
cuda::WideHeads wide_heads(const Architecture& architecture);
cuda::KvFormat kv_format_of(KvStorage kv);  // throws Error: f32

// Throws Error, in one line, where no device is here or the current one has no code for the model.
// Needs no weights, so that nothing is loaded in vain. `cut`: ranks share the model; no device is
// queried then, because each rank has its own and may not have been started.
void check_cuda_model(const Architecture& architecture, KvStorage kv, bool cut);

}  // namespace ridge
