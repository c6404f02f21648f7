// Rotary frequencies as Hugging Face computes them (transformers, modeling_rope_utils.py).
#pragma once

#include "model/config_fields.h"
#include "model/execution.h"

namespace ridge {

struct RopeSizes {
  int dims = 0;  // rotated elements of a head
  double max_context = 0;
  double original_context = 0;  // before longrope's scaling, unless `scaling` says it; 0: not known
};

// `scaling` is a config's rope_scaling or rope_parameters object (empty: none); `theta` is the base
// unless `scaling` sets another. Throws Error for types that are not supported (dynamic).
Rope make_rope(const Fields& scaling, double theta, const RopeSizes& sizes);

// DeepSeek: yarn multiplies the logits of attention too, by this square of its magnitude at
// mscale_all_dim. 1 without it.
double yarn_softmax_scale(const Fields& scaling, double max_context);

}  // namespace ridge
