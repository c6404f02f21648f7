#include "roofline/kernels/mla.h"

namespace ridge {

AttentionCall mla_prefill_call(AttentionCall call, const MlaWidths& widths) {
  call.kv_heads = call.heads;
  call.head_dim = widths.head + widths.rope;
  call.v_head_dim = widths.head;
  return call;
}

AttentionCall mla_decode_call(AttentionCall call, const MlaWidths& widths) {
  call.kv_heads = 1;
  call.head_dim = widths.kv_rank + widths.rope;
  call.v_head_dim = widths.kv_rank;
  call.kv_rank = widths.kv_rank;
  call.rope_dim = widths.rope;
  call.shared_kv = true;
  return call;
}

}  // namespace ridge
