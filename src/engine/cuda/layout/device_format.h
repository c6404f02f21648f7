// The formats that weights and the KV cache are kept in on a CUDA device, by name and as the
// predictor counts them.
#pragma once

#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "engine/cuda/layout/weight_format.h"

namespace ridge {

// "bf16", "fp8", "int8", "int4", "nf4". Throws Error with the names.
cuda::WeightFormat device_format_from_name(std::string_view name);

std::vector<cuda::WeightFormat> device_formats();  // the widest first

// What a weight costs there, scales included. Products run in bf16 whatever it is.
Format stored_format(cuda::WeightFormat format);
// What a key's or value's element costs in heads of this width, scales included.
Format stored_format(cuda::KvFormat format, int head_dim);

}  // namespace ridge
