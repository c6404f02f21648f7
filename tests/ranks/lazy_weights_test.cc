// Weights that ranks make or copy in parts have the bits of the whole.
#include <gtest/gtest.h>

#include <cstring>

#include "base/error.h"
#include "engine/golden.h"
#include "engine/ranks/cut_weights.h"
#include "engine/weights/random_weights.h"

namespace ridge {
namespace {

void expect_equal(const Matrix& a, const Matrix& b) {
  ASSERT_EQ(bool(a), bool(b));
  if (!a) return;
  ASSERT_EQ(a.rows, b.rows);
  ASSERT_EQ(a.columns, b.columns);
  const size_t bytes = storage_bytes(a.storage, a.columns);
  for (int64_t row = 0; row < a.rows; ++row) {
    ASSERT_EQ(std::memcmp(a.row(row), b.row(row), bytes), 0) << row;
  }
}

TEST(LazyRandomWeights, EveryPartHasTheBitsOfTheWhole) {
  const std::string model = "ridge-1m";
  for (const Storage storage : {Storage::bf16, Storage::q4_0}) {
    const Weights whole = random_weights(model, storage, 5, 1);
    for (const auto& [tp, pp] : {std::pair{2, 1}, std::pair{1, 2}, std::pair{2, 2}}) {
      RankGrid grid;
      grid.tp = tp;
      grid.pp = pp;
      for (int rank = 0; rank < grid.ranks(); ++rank) {
        const LazyWeights lazy = lazy_random_weights(model, storage, 5, 2, grid.ranks());
        const Weights made = cut_weights(lazy.whole, grid, rank, lazy.make);
        const Weights wanted = cut_weights(whole, grid, rank);
        expect_equal(made.embed, wanted.embed);
        expect_equal(made.head, wanted.head);
        ASSERT_EQ(made.layers.size(), wanted.layers.size());
        for (size_t l = 0; l < made.layers.size(); ++l) {
          const LayerWeights &a = made.layers[l], &b = wanted.layers[l];
          for (const auto part : {&LayerWeights::q, &LayerWeights::k, &LayerWeights::v,
                                  &LayerWeights::out, &LayerWeights::gate, &LayerWeights::up,
                                  &LayerWeights::down, &LayerWeights::router}) {
            expect_equal(a.*part, b.*part);
          }
          EXPECT_EQ(a.attn_norm, b.attn_norm);
        }
        // What the rank does not hold was never touched: it is still the zeros of fresh memory.
        if (tp == 2) {
          const Matrix& q = lazy.whole.layers[size_t(0)].q;
          const std::byte* other = q.row(rank % 2 == 0 ? q.rows - 1 : 0);
          const bool in_stage = rank / tp == 0;
          if (in_stage) {
            EXPECT_EQ(int(other[0]) | int(other[1]) | int(other[2]) | int(other[3]), 0);
          }
        }
      }
    }
  }
}

std::vector<const Matrix*> matrices_of(const Weights& weights) {
  std::vector<const Matrix*> all{&weights.embed, &weights.head};
  for (const LayerWeights& layer : weights.layers) {
    for (const Matrix* matrix : {&layer.q, &layer.k, &layer.v, &layer.out, &layer.q_a, &layer.kv_a,
                                 &layer.kv_b, &layer.gate, &layer.up, &layer.down, &layer.router,
                                 &layer.shared_gate, &layer.shared_up, &layer.shared_down}) {
      all.push_back(matrix);
    }
    for (const auto* experts : {&layer.expert_gate, &layer.expert_up, &layer.expert_down}) {
      for (const Matrix& expert : *experts) all.push_back(&expert);
    }
  }
  return all;
}

// Files of every family: what they store in another order is copied by part.
TEST(LazyWeights, PartsOfFilesHaveTheBitsOfTheWhole) {
  int copied = 0;
  for (const Golden& golden : goldens()) {
    const Weights whole = load_weights(golden.folder);
    copied += whole.copied_bytes > 0 ? 1 : 0;
    for (const RankGrid& grid :
         {RankGrid{.tp = 2}, RankGrid{.pp = 2}, RankGrid{.tp = 2, .whole_experts = true}}) {
      try {
        check_cut(whole, grid);
      } catch (const Error&) {
        continue;
      }
      if (grid.whole_experts && whole.architecture.experts == 0) continue;
      for (int rank = 0; rank < grid.ranks(); ++rank) {
        const LazyWeights lazy = lazy_weights(golden.folder, 1);
        EXPECT_EQ(lazy.whole.copied_bytes, whole.copied_bytes);
        const Weights made = cut_weights(lazy.whole, grid, rank, lazy.make);
        const Weights wanted = cut_weights(whole, grid, rank);
        const auto a = matrices_of(made), b = matrices_of(wanted);
        ASSERT_EQ(a.size(), b.size());
        for (size_t i = 0; i < a.size(); ++i) {
          expect_equal(*a[i], *b[i]);
          ASSERT_FALSE(testing::Test::HasFailure()) << golden.name << ", matrix " << i;
        }
      }
    }
  }
  EXPECT_GE(copied, 3);  // GLM-4, DeepSeek, gpt-oss, Llama 4
}

}  // namespace
}  // namespace ridge
