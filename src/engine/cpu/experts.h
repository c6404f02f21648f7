// The routed experts of a layer on the CPU.
//
// A step of n tokens has n top_k rows, one for each token and each of its experts, sorted by
// expert. Experts run in waves, as many at a time as the buffers have rows for. The GEMMs of a wave
// share parallel regions (16 in each, see multiply()), so that all threads stream the weights of
// several experts, however small one is.
#pragma once

#include <cstdint>
#include <vector>

#include "base/thread_team.h"
#include "engine/cpu/matmul.h"
#include "engine/cpu/packed_layer.h"
#include "engine/cpu/rows.h"
#include "engine/runner/profile.h"

namespace ridge::cpu {

class Experts {
 public:
  // For steps of up to `max_tokens`. Allocates everything; a model without experts needs nothing.
  Experts(const Architecture& shape, int max_tokens, ThreadTeam& team);

  // Chooses the experts of tokens x[0], ..., x[tokens - 1], the normed input of the layer's MLP.
  void route(const PackedLayer& packed, const LayerWeights& layer, const Rows& x, int tokens,
             OperatorClock& clock);
  // y[t] += the weighted outputs of the chosen experts that `packed` has; other ranks have the
  // rest. A token's experts are added in the order of their index, independent of the batch.
  void run(const PackedLayer& packed, const LayerWeights& layer, const Rows& x, const Rows& y,
           OperatorClock& clock);

 private:
  struct Wave {
    int first_expert, last_expert;  // [first, last)
    int first_row, rows;            // of rows_
  };
  // A token of an expert.
  struct Row {
    int32_t token;
    float weight;
  };

  void sort_rows(const PackedLayer& packed);
  Wave next_wave(int expert) const;
  // The range of rows_ that an expert has.
  int first_row(int expert) const { return starts_[size_t(expert)]; }
  int row_count(int expert) const { return first_row(expert + 1) - first_row(expert); }
  void gather(const Wave& wave, const Rows& x);
  void gate_up(const Wave& wave, const PackedLayer& packed, const LayerWeights& layer);
  void down(const Wave& wave, const PackedLayer& packed, const LayerWeights& layer);
  void add(const Wave& wave, const Rows& y);
  // f(expert, its first row within the wave, its rows) for every expert of the wave with rows.
  template <typename F>
  void for_each_expert(const Wave& wave, F&& f) const;

  const Architecture& shape_;
  ThreadTeam& team_;
  int wave_rows_;  // rows of the buffers
  int tokens_ = 0;
  std::vector<float> logits_;    // [tokens x experts], of the router
  std::vector<int32_t> chosen_;  // [tokens x top_k]
  std::vector<float> weights_;   // [tokens x top_k]
  std::vector<Row> rows_;        // sorted by expert, then by token
  std::vector<int32_t> starts_;  // [experts + 1]: see first_row
  std::vector<Gemm> gemms_;
  std::vector<InputKind> kinds_;
  Rows gathered_, inner_, outputs_;
  Input input_, inner_input_;
};

}  // namespace ridge::cpu
