// A model in words and parts, for people and for JSON.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "model/model.h"

namespace ridge {

// "attention 64/8 heads of 128 + gated MLP 28672"
std::string describe_layer(const Layer& layer);

struct Part {
  std::string name;  // "attention"
  double parameters = 0;
  double bytes = 0;
};

// Where the parameters are: embedding, mixers, MLP, experts, head, the rest. Parts that the counts
// include add up to parameters(); bytes are those of the formats, so exact files may differ.
std::vector<Part> parts_of(const Model& model);

// Share of the parameters by format name, the largest first.
std::vector<Part> formats_of(const Model& model);

}  // namespace ridge
