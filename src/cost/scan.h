// Layers with a recurrent state instead of a growing cache: Mamba, Mamba-2, gated delta rule.
#pragma once

#include "cost/work.h"

namespace ridge {

enum class ScanKind : unsigned char { mamba1, mamba2, delta, conv };

struct ScanShape {
  ScanKind kind = ScanKind::mamba2;
  double heads = 0;                     // value heads on this rank
  double state_dim = 0, value_dim = 0;  // the state of a head is state_dim x value_dim
  double key_columns = 0;               // columns of the key-like inputs (B and C, or q and k)
  double conv_channels = 0, conv_kernel = 0;
  double state_bytes = 4, act_bytes = 2;
};

// `count` sequences with `fresh` new tokens each. One token: the state is read, updated and
// written (about 3 multiply-adds per entry for Mamba-2: decay, outer product, output; 4 for the
// delta rule, which first reads the old value). Many tokens: chunks of 128 run as matrix products
// inside the chunk and the state moves once a chunk, on chip. Sources: Dao & Gu 2024 (SSD,
// section 6), Yang et al. 2024 (gated delta networks, section 3).
Work scan_work(const ScanShape& shape, double count, double fresh);

}  // namespace ridge
