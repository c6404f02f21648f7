// The tile pipeline as people ask for it and read it: options, JSON.
#pragma once

#include <string>

#include "base/json.h"
#include "roofline/pipeline.h"

namespace ridge {

struct TileOptions {
  std::string machine = "h100-sxm", tile = "128x128x64", dtype = "fp16";
  int stages = 4, steps = 16;
  double reuse = 0;
};

// Throws Error where the tile or the type cannot be read.
TileShape tile_shape(const TileOptions& options);

// The simulation, the same with other numbers of stages ("ladder"), and how many square tiles each
// level holds ("sizes"). docs/json.md has the fields.
Json tiles_json(const Machine& machine, const TileShape& shape);

}  // namespace ridge
