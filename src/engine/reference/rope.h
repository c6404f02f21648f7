// Rotary embedding by its definition (Su et al. 2021, in the halves layout), in double.
#pragma once

#include "model/architecture.h"

namespace ridge::reference {

// Rotates the pairs (i, i + n) of a head, n = rope.frequency.size(), by position * frequency[i].
void turn(float* head, const Rope& rope, int position);

}  // namespace ridge::reference
