// The memory pyramid of a machine, and what of a model lies where.
#pragma once

#include <vector>

#include "base/json.h"
#include "predict/predict.h"

namespace ridge {

// Something whose place in the pyramid a reader wants to know.
struct PyramidPiece {
  const char* name;
  double bytes;
};
// A tile, a page of KV cache, a layer, the whole model.
std::vector<PyramidPiece> pieces_of(const Model& model);

// How many copies a level holds. A piece lies in one instance of a level, so what is left over in
// each is lost.
Maybe count_in(const Level& level, const PyramidPiece& piece);

// {system, machine, ridge, fits}: what `ridge machine NAME --json` prints.
Json pyramid_json(const System& system, const Model& model);

// What of a running model lives in which level, per device (per unit where the level is a unit's):
// [{level, name, bytes, capacity, note}].
Json residents_json(const Request& request, const Prediction& prediction);

}  // namespace ridge
