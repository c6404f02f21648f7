#include "cost/matmul.h"

#include <gtest/gtest.h>

namespace ridge {
namespace {

TEST(Matmul, CountsEveryMatrixOnce) {
  const Work w = matmul_work({.m = 3, .k = 64, .n = 160, .weight_bits = 4.25, .in_bytes = 1});
  EXPECT_DOUBLE_EQ(w.flops, 2.0 * 3 * 64 * 160);
  EXPECT_DOUBLE_EQ(w.weight_bytes, 64 * 160 * 4.25 / 8);
  EXPECT_DOUBLE_EQ(w.act_bytes, 3.0 * 64 * 1 + 3.0 * 160 * 2);
  EXPECT_EQ(w.kv_bytes, 0);
  EXPECT_EQ(w.launches, 1);
}

TEST(Matmul, FusedActivationWritesItsShare) {
  MatmulShape s{.m = 16, .k = 128, .n = 512};
  const double whole = matmul_work(s).act_bytes;
  s.outputs_kept = 0.5;
  EXPECT_DOUBLE_EQ(whole - matmul_work(s).act_bytes, 16 * 256 * 2);
}

TEST(Matmul, PaddingNeverShrinksAndStopsAtMultiples) {
  for (const DType math :
       {DType::fp32, DType::bf16, DType::fp16, DType::fp8, DType::int8, DType::fp4, DType::int4}) {
    const double step = dimension_multiple(math);
    EXPECT_EQ(step, 128 / dtype_bits(math));  // 16 bytes of elements
    for (double side : {1.0, 7.0, 8.0, 31.0, 32.0, 100.0, 4096.0}) {
      const Work w = matmul_work({.m = side, .k = side, .n = side, .math = math});
      EXPECT_GE(w.padded_flops, w.flops);
      // Less than one multiple is added on each side.
      EXPECT_LT(w.padded_flops, 2 * (side + 8) * (side + step) * (side + step));
    }
    const Work even = matmul_work({.m = 64, .k = 8 * step, .n = 4 * step, .math = math});
    EXPECT_EQ(even.padded_flops, even.flops);
  }
}

TEST(Matmul, ChipTrafficIsAtLeastDeviceTrafficAndGrowsPastATile) {
  for (double m : {1.0, 64.0, 256.0, 4096.0}) {
    const Work w = matmul_work({.m = m, .k = 1024, .n = 4096});
    EXPECT_GE(w.chip_bytes, w.device_bytes());
  }
  // A product no larger than one tile on either side is streamed through the cache once.
  const Work small = matmul_work({.m = 64, .k = 4096, .n = 128});
  EXPECT_EQ(small.chip_bytes, small.device_bytes());
}

TEST(Matmul, NoRowsIsNoKernel) {
  const Work w = matmul_work({.m = 0, .k = 64, .n = 64});
  EXPECT_EQ(w.flops + w.device_bytes() + w.launches, 0);
}

TEST(GroupedMatmul, ReadsEachExpertAndConservesFlops) {
  const MatmulShape s{.m = 64, .k = 512, .n = 256};
  const Work one = matmul_work(s), eight = grouped_matmul_work(s, 8);
  EXPECT_EQ(eight.flops, one.flops);
  EXPECT_EQ(eight.weight_bytes, 8 * one.weight_bytes);
  EXPECT_EQ(eight.act_bytes, one.act_bytes);
  // 64 rows over 64 experts leave one row each, padded to the 8 rows of an MMA.
  EXPECT_EQ(grouped_matmul_work(s, 64).padded_flops, 8 * one.flops);
}

}  // namespace
}  // namespace ridge
