// Operators that touch each element a few times: norms, rope, activations, residuals, the
// embedding and sampling. All lie far left of every ridge; their bytes are their cost.
#pragma once

#include "cost/work.h"

namespace ridge {

// Reads `in` and writes `out` elements of `bytes` each with `ops` vector operations per output.
Work elementwise_work(double in, double out, double bytes, double ops);

// RMSNorm of tokens x width: square, sum, scale, weight. With a fused residual add the sum is
// read and written too.
Work norm_work(double tokens, double width, double bytes, bool with_residual);
Work residual_work(double tokens, double width, double bytes);
// Gate * activation(up) of an MLP with `inner` columns, or the activation alone.
Work activation_work(double tokens, double inner, double bytes, bool gated);
// Rotates q and k in place (`rotated` columns per token).
Work rope_work(double tokens, double rotated, double bytes);
// Appends k and v (`columns` per token) to the cache in its own format.
Work cache_write_work(double tokens, double columns, double bytes, double cache_bytes);
// rope and cache write in one kernel: q and k rotated, k and v stored.
Work rope_cache_work(double tokens, double q_columns, double kv_columns, double bytes,
                     double cache_bytes);
// 16-bit activations to 8-bit with a scale per token.
Work quantize_work(double tokens, double width, double bytes);
// One embedding row per token.
Work embed_work(double tokens, double width, double table_bytes, double bytes);
// Softmax and choice over fp32 logits.
Work sample_work(double sequences, double vocab);

}  // namespace ridge
