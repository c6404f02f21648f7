#include "cost/elementwise.h"

#include <gtest/gtest.h>

namespace ridge {
namespace {

TEST(Elementwise, BytesAreReadsPlusWrites) {
  const double n = 32 * 4096;
  EXPECT_EQ(norm_work(32, 4096, 2, false).device_bytes(), 2 * n * 2);
  EXPECT_EQ(residual_work(32, 4096, 2).device_bytes(), 3 * n * 2);
  EXPECT_EQ(rope_work(32, 4096, 2).device_bytes(), 2 * n * 2);
  EXPECT_EQ(activation_work(32, 4096, 2, true).device_bytes(), 3 * n * 2);
  EXPECT_EQ(activation_work(32, 4096, 2, false).device_bytes(), 2 * n * 2);
  EXPECT_EQ(quantize_work(32, 4096, 2).device_bytes(), 3 * n);
}

TEST(Elementwise, FusedNormSavesOnePassOverTheResidual) {
  const double apart =
      norm_work(8, 1024, 2, false).device_bytes() + residual_work(8, 1024, 2).device_bytes();
  const Work fused = norm_work(8, 1024, 2, true);
  EXPECT_EQ(apart - fused.device_bytes(), 8 * 1024 * 2);
  // The arithmetic is the same: one add and four operations of the norm per element.
  EXPECT_EQ(fused.vector_flops, 5 * 8 * 1024);
}

TEST(Elementwise, CacheWritesInTheCachesOwnFormat) {
  const Work w = cache_write_work(10, 2048, 2, 1);
  EXPECT_EQ(w.act_bytes, 10 * 2048 * 2);
  EXPECT_EQ(w.kv_bytes, 10 * 2048 * 1);
  const Work fused = rope_cache_work(10, 4096, 2048, 2, 1);
  EXPECT_EQ(fused.kv_bytes, w.kv_bytes);
  const double apart = rope_work(10, 4096 + 1024, 2).device_bytes() + w.device_bytes();
  EXPECT_LT(fused.device_bytes(), apart);
  EXPECT_EQ(fused.vector_flops, rope_work(10, 4096 + 1024, 2).vector_flops);
}

TEST(Elementwise, EmbeddingReadsRowsNotTheTable) {
  const Work w = embed_work(7, 4096, 2, 2);
  EXPECT_EQ(w.weight_bytes, 7 * 4096 * 2);
  EXPECT_EQ(w.act_bytes, 7 * 4096 * 2);
}

TEST(Elementwise, SamplingReadsEveryLogit) {
  const Work w = sample_work(4, 128256);
  EXPECT_GE(w.act_bytes, 4 * 128256.0 * 4);
  EXPECT_GE(w.vector_flops, 4 * 128256.0);
}

TEST(Elementwise, NothingUsesTheMatrixUnits) {
  for (const Work& w : {norm_work(2, 64, 2, true), residual_work(2, 64, 2), rope_work(2, 64, 2),
                        activation_work(2, 64, 2, true), embed_work(2, 64, 2, 2),
                        quantize_work(2, 64, 2), sample_work(2, 64)}) {
    EXPECT_EQ(w.flops, 0);
    EXPECT_EQ(w.launches, 1);
    EXPECT_GE(w.chip_bytes, w.device_bytes());
  }
}

}  // namespace
}  // namespace ridge
