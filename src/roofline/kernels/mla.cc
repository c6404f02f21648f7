#include "roofline/kernels/mla.h"

namespace ridge {

AttentionCall mla_prefill_call(AttentionCall call, const MlaWidths& widths) {
  call.kv_heads = call.heads;
  call.qk_dim = widths.head + widths.rope;
  call.v_dim = widths.head;
  return call;
}

AttentionCall mla_decode_call(AttentionCall call, const MlaWidths& widths) {
  call.kv_heads = 1;
  call.qk_dim = widths.kv_rank + widths.rope;
  call.v_dim = widths.kv_rank;
  call.shared_kv = true;
  return call;
}

}  // namespace ridge
