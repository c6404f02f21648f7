// Multi-head latent attention in terms of the attention kernels, with parameters of its own.
#pragma once

#include "roofline/kernels/attention.h"

namespace ridge {

// Widths of DeepSeek-V2 and V3 (their reports, section 2.1): a compressed cache of 512 + 64 columns
// shared by all heads, and 128 columns per head. The measured tables have no others, so every MLA
// model is timed with these.
struct MlaWidths {
  double kv_rank = 512, rope = 64, head = 128;
};

// Prompts run decompressed: as many KV heads as heads, qk = head + rope, v = head.
AttentionCall mla_prefill_call(AttentionCall call, const MlaWidths& widths = {});
// Decoding runs absorbed: one KV head, qk = rank + rope, V is a part of K.
AttentionCall mla_decode_call(AttentionCall call, const MlaWidths& widths = {});

}  // namespace ridge
