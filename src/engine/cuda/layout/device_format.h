// Formats of weights and of the KV cache on a CUDA device: by name, and as the predictor counts
// them.
#pragma once

#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "engine/cuda/layout/weight_format.h"

namespace ridge {

// "bf16", "fp8", "int8", "int4" or "nf4". Throws an Error that lists the names.
cuda::WeightFormat device_format_from_name(std::string_view name);

std::vector<cuda::WeightFormat> device_formats();  // the widest first

// Storage of a weight, scales included. GEMMs of many tokens compute in bf16 for every format.
Format stored_format(cuda::WeightFormat format);
// Storage of an element of a key or value, scales included.
Format stored_format(cuda::KvFormat format, int head_dim);

}  // namespace ridge
