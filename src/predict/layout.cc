#include "predict/layout.h"

namespace ridge {

int uneven_heads(const Model& model, int tp) {
  for (const LayerGroup& group : model.groups) {
    const Mixer& mixer = group.layer.mixer;
    for (const int heads : {mixer.heads, mixer.value_heads}) {
      if (tp > 0 && heads % tp != 0) return heads;
    }
  }
  return 0;
}

}  // namespace ridge
