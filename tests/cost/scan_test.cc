#include "cost/scan.h"

#include <gtest/gtest.h>

namespace ridge {
namespace {

ScanShape mamba2() {
  return {.kind = ScanKind::mamba2,
          .heads = 64,
          .state_dim = 128,
          .value_dim = 64,
          .key_columns = 256,
          .conv_channels = 4352,
          .conv_kernel = 4};
}

TEST(Scan, DecodeReadsAndWritesTheStateOnceWhateverTheContext) {
  const Work w = scan_work(mamba2(), 5, 1);
  const double state = 64.0 * 128 * 64 * 4 + 4352 * 3 * 2;
  EXPECT_DOUBLE_EQ(w.kv_bytes, 5 * 2 * state);
  // Decay, outer product and output: three multiply-adds per entry; the convolution besides.
  EXPECT_DOUBLE_EQ(w.vector_flops, 5 * (2 * 3 * 64.0 * 128 * 64 + 2 * 4352 * 4));
  EXPECT_EQ(w.flops, 0);
}

TEST(Scan, LongPromptsMoveTheStateOnceAndRunAsProducts) {
  const Work one = scan_work(mamba2(), 1, 1), many = scan_work(mamba2(), 1, 4096);
  EXPECT_EQ(many.kv_bytes, one.kv_bytes);
  EXPECT_GT(many.flops, 0);
  // Linear in the prompt, once it is longer than a chunk.
  EXPECT_DOUBLE_EQ(scan_work(mamba2(), 1, 8192).flops, 2 * many.flops);
  EXPECT_DOUBLE_EQ(scan_work(mamba2(), 1, 8192).act_bytes, 2 * many.act_bytes);
}

TEST(Scan, AdditiveOverSequences) {
  for (const ScanKind kind :
       {ScanKind::mamba1, ScanKind::mamba2, ScanKind::delta, ScanKind::conv}) {
    ScanShape s = mamba2();
    s.kind = kind;
    for (double fresh : {1.0, 300.0}) {
      const Work one = scan_work(s, 1, fresh), six = scan_work(s, 6, fresh);
      EXPECT_DOUBLE_EQ(six.flops, 6 * one.flops);
      EXPECT_DOUBLE_EQ(six.vector_flops, 6 * one.vector_flops);
      EXPECT_DOUBLE_EQ(six.device_bytes(), 6 * one.device_bytes());
      EXPECT_EQ(six.launches, one.launches);
    }
  }
}

TEST(Scan, DeltaRuleCostsMoreThanMamba) {
  ScanShape s = mamba2();
  const Work plain_one = scan_work(s, 1, 1), plain_many = scan_work(s, 1, 512);
  s.kind = ScanKind::delta;
  EXPECT_GT(scan_work(s, 1, 1).vector_flops, plain_one.vector_flops);
  EXPECT_GT(scan_work(s, 1, 512).flops, plain_many.flops);
}

TEST(Scan, ConvolutionAloneHasNoMatrixState) {
  const ScanShape s{.kind = ScanKind::conv, .conv_channels = 2048, .conv_kernel = 3};
  const Work w = scan_work(s, 2, 1);
  EXPECT_DOUBLE_EQ(w.kv_bytes, 2 * 2 * 2048 * 2 * 2);
  EXPECT_DOUBLE_EQ(w.vector_flops, 2 * 2 * 2048 * 3);
  EXPECT_EQ(w.flops, 0);
}

// Two gates and the input in, one output.
TEST(Scan, ConvolutionMovesItsActivations) {
  const ScanShape s{.kind = ScanKind::conv, .conv_channels = 2048, .conv_kernel = 3};
  EXPECT_EQ(scan_work(s, 1, 1000).act_bytes, 4 * 1000.0 * 2048 * 2);
}

}  // namespace
}  // namespace ridge
