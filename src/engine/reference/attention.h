// Attention by its definition: all scores, then softmax, then the weighted values, in double.
#pragma once

namespace ridge::reference {

struct AttentionRules {
  int heads = 0, kv_heads = 0, head_dim = 0;
  float scale = 1;               // multiplies q . k
  float softcap = 0;             // c tanh(s / c) before the mask; 0: none
  int window = 0;                // keys visible to a query, its own included; 0: all
  bool chunked = false;          // the window starts at its last multiple
  const float* sinks = nullptr;  // [heads]: a logit that joins the softmax without a value
};

// q, out: [fresh][heads][head_dim]; k, v: [past + fresh][kv_heads][head_dim]. Query t is at
// position past + t and attends to no later key; heads / kv_heads consecutive heads share a KV
// head.
void attention(const AttentionRules& rules, int past, int fresh, const float* q, const float* k,
               const float* v, float* out);

}  // namespace ridge::reference
