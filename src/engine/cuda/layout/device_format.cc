#include "engine/cuda/layout/device_format.h"

#include <string>

#include "base/error.h"

namespace ridge {
namespace {

struct Named {
  std::string_view name;
  cuda::WeightFormat format;
  DType dtype;
  double bits;  // per weight, with group scales (weight_format.h); row scales are not counted
};

constexpr Named kNamed[] = {
    {"bf16", cuda::WeightFormat::bf16, DType::bf16, 16},
    {"fp8", cuda::WeightFormat::fp8, DType::fp8, 8},
    {"int8", cuda::WeightFormat::int8, DType::int8, 8},
    {"int4", cuda::WeightFormat::int4, DType::int4, 4 + 16.0 / 64},
    {"nf4", cuda::WeightFormat::nf4, DType::int4, 4 + 16.0 / 64},
    {"mxfp4", cuda::WeightFormat::mxfp4, DType::fp4, 4 + 8.0 / 32},
};

}  // namespace

cuda::WeightFormat device_format_from_name(std::string_view name) {
  std::string names;
  for (const Named& each : kNamed) {
    if (each.name == name) return each.format;
    names += (names.empty() ? "" : ", ") + std::string(each.name);
  }
  throw Error("weights are kept on a CUDA device as one of {}, not \"{}\"", names,
              name.substr(0, 40));
}

std::vector<cuda::WeightFormat> device_formats() {
  std::vector<cuda::WeightFormat> all;
  for (const Named& each : kNamed) {
    if (each.format != cuda::WeightFormat::mxfp4) all.push_back(each.format);
  }
  return all;
}

cuda::WeightFormat released_device_format(const Model& model) {
  return has_mxfp4_experts(model) ? cuda::WeightFormat::mxfp4 : cuda::WeightFormat::bf16;
}

void check_device_format(const Model& model, cuda::WeightFormat format) {
  if (format != cuda::WeightFormat::mxfp4 || released_device_format(model) == format) return;
  throw Error("--format mxfp4 keeps experts that were released in MXFP4, and {} has none",
              model.name);
}

Model model_on_device(Model model, cuda::WeightFormat format) {
  const Format dense = stored_format(dense_format(format));
  model.head.format = dense;
  if (format != cuda::WeightFormat::mxfp4) return model;
  for (LayerGroup& group : model.groups) {
    for (Linear& linear : group.layer.linears) {
      linear.format = is_expert(linear.stage) ? stored_format(format) : dense;
    }
  }
  return model;
}

std::optional<Format> planned_weights(cuda::WeightFormat format) {
  if (format == cuda::WeightFormat::mxfp4) return {};
  return stored_format(format);
}

Format stored_format(cuda::WeightFormat format) {
  for (const Named& each : kNamed) {
    if (each.format == format) return {each.dtype, each.bits, std::string(each.name)};
  }
  return {};
}

Format stored_format(cuda::KvFormat format, int head_dim) {
  const double scale = 32.0 / head_dim;
  switch (format) {
    case cuda::KvFormat::bf16:
      return {DType::bf16, 16, "bf16"};
    case cuda::KvFormat::f16:
      return {DType::fp16, 16, "fp16"};
    case cuda::KvFormat::fp8:
      return {DType::fp8, 8 + scale, "fp8"};
    case cuda::KvFormat::int8:
      return {DType::int8, 8 + scale, "int8"};
  }
  return {};
}

}  // namespace ridge
