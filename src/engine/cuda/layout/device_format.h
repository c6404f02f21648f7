// Formats of weights and of the KV cache on a CUDA device: by name, and as the predictor counts
// them.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/weight_format.h"
#include "model/model.h"

namespace ridge {

// "bf16", "fp8", "int8", "int4", "nf4" or "mxfp4". Throws an Error that lists the names.
cuda::WeightFormat device_format_from_name(std::string_view name);

std::vector<cuda::WeightFormat> device_formats();  // that every model can have, the widest first

// mxfp4 where the model's experts are stored so, otherwise bf16.
cuda::WeightFormat released_device_format(const Model& model);
// Throws Error: mxfp4 for a model whose experts are not stored so.
void check_device_format(const Model& model, cuda::WeightFormat format);
// The model as a prediction of the device counts it: the head in the format that it has there, and
// with mxfp4 all matrices.
Model model_on_device(Model model, cuda::WeightFormat format);
// Plan::weights of such a prediction. None with mxfp4: the matrices have the model's formats.
std::optional<Format> planned_weights(cuda::WeightFormat format);

// Storage of a weight, scales included. GEMMs of many tokens compute in bf16 for every format.
Format stored_format(cuda::WeightFormat format);
// Storage of an element of a key or value, scales included.
Format stored_format(cuda::KvFormat format, int head_dim);

}  // namespace ridge
