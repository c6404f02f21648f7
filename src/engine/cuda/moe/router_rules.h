// How a router chooses and weighs experts, where that is not the top k of a softmax: RouterRules of
// engine/weights/architecture.h for device code (C++17).
#pragma once

namespace ridge::cuda {

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

constexpr int kMaxExperts = 512;       // 16 in a lane
constexpr int kMaxTopK = 32;           // one lane each
constexpr int kMaxRoutingGroups = 32;  // one lane each

}  // namespace ridge::cuda
