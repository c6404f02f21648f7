// Peak, bandwidth and ridge over the years, from the atlas.
#pragma once

#include <vector>

#include "base/json.h"
#include "machine/machine.h"

namespace ridge {

struct Epoch {
  const Machine* machine;
  DType dtype;  // of the peak: 16 bit where the part has it
  double year, peak, bandwidth;

  double ridge() const { return peak / bandwidth; }
};

// The data-centre GPUs that set a new record of the peak, one a year at most, oldest first. They
// point into `machines`.
std::vector<Epoch> peak_records(const std::vector<Machine>& machines);

// How much grew from one part to another.
struct Growth {
  const Epoch* from;
  const Epoch* to;

  Maybe fp32() const;  // the same format on both sides; unknown where a part has none
};

// The whole span, and the last ten years of it. `epochs` must not be empty.
std::vector<Growth> growths(const std::vector<Epoch>& epochs);

Json history_json(const std::vector<Epoch>& epochs);

}  // namespace ridge
