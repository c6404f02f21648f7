// How a model is spread over the devices of a machine.
#pragma once

#include "model/model.h"

namespace ridge {

// The heads of the first layer group that tensor parallelism of this degree does not cut evenly; 0:
// it cuts all of them. Engines refuse such degrees.
int uneven_heads(const Model& model, int tp);

}  // namespace ridge
