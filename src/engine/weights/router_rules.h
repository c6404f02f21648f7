// How a router chooses and weighs experts, where that is not the top k of a softmax. C++17: device
// code reads it too.
#pragma once

namespace ridge {

struct RouterRules {
  bool sigmoid = false;            // scores are sigmoids of the logits (DeepSeek-V3, Llama 4)
  int groups = 1, top_groups = 1;  // experts outside the best groups are not chosen (DeepSeek)
  // DeepSeek-V3: a bias per expert joins the scores for the choice, not for the weights. A group
  // then counts by its two best experts, otherwise by its best.
  bool correction = false;
  float scale = 1;            // multiplies the weights
  bool scales_input = false;  // Llama 4: the weight multiplies an expert's input, not its output

  bool is_plain() const {
    return !sigmoid && top_groups == groups && !correction && scale == 1 && !scales_input;
  }
};

}  // namespace ridge
