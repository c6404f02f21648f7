#include "cost/work.h"

namespace ridge {

std::string_view op_kind_name(OpKind kind) {
  static constexpr std::string_view kNames[] = {
      "matmul", "expert_matmul", "attention_prefill", "attention_decode", "elementwise", "scan",
      "embed",  "sample",        "collective"};
  return kNames[static_cast<int>(kind)];
}

}  // namespace ridge
