#include "lab/lab_dots.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/mapped_buffer.h"

namespace ridge {
namespace {

TEST(LabDots, AreThoseOfPlainCode) {
  const MappedBuffer buffer(16 * kDotStep);
  for (const DotLoop& loop : dot_loops()) {
    fill_dot_operands(loop.dtype, buffer.as<std::byte>(), 16 * kDotStep);
    for (const DotTurn& turn : {DotTurn{0, 8}, {0, 1}, {1, 1}, {2, 1}, {4, 1}, {12, 1}}) {
      const double expected = dot_loop_sum(loop, buffer.as<std::byte>(), 16 * kDotStep, turn);
      EXPECT_NEAR(loop.run(buffer.as<std::byte>(), 16 * kDotStep, 1, turn) / expected, 1, 1e-4)
          << loop.isa << " " << turn.products << " " << turn.group;
      EXPECT_NEAR(loop.run(buffer.as<std::byte>(), 16 * kDotStep, 3, turn) / expected, 3, 3e-4);
    }
  }
}

TEST(LabDots, CountFlopsPerByte) {
  const DotLoop tiles{DType::bf16, "AMX", 2.0 * 16 * 16 * 32, nullptr};
  EXPECT_EQ(tiles.flop_per_byte({1, 1}), 16);
  EXPECT_EQ(tiles.flop_per_byte({64, 1}), 1024);
  EXPECT_EQ(tiles.flop_per_byte({0, 256}), 1.0 / 16);
}

}  // namespace
}  // namespace ridge
