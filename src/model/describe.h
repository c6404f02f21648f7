// A model in words, and its parameters grouped by what they do, for people and for JSON.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "model/model.h"

namespace ridge {

// "attention 64/8 heads of 128 + gated MLP 28672"
std::string describe_layer(const Layer& layer);

// Parameters that are counted together.
struct ParameterGroup {
  std::string name;  // "attention", or a format's name
  double parameters = 0;
  double bytes = 0;
};

// Parameters by what they do: embedding, mixers, MLP, experts, head, the rest. The groups add up to
// parameters(). Bytes are computed from the formats, so the bytes of a file may differ.
std::vector<ParameterGroup> parameter_groups(const Model& model);

// Parameters by storage format, the largest group first.
std::vector<ParameterGroup> parameters_by_format(const Model& model);

}  // namespace ridge
