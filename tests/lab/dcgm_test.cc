#include "lab/dcgm.h"

#include <gtest/gtest.h>

namespace ridge {
namespace {

TEST(Dcgm, LastSampleOfItsProgram) {
  const auto seen = parse_dcgm(
      "#Entity   SMACT        TENSO        DRAMA\n"
      "ID\n"
      "GPU 0     0.100        0.000        0.050\n"
      "GPU 0     0.998        0.001        0.912\n");
  ASSERT_TRUE(seen);
  EXPECT_EQ(seen->sm, 0.998);
  EXPECT_EQ(seen->tensor, 0.001);
  EXPECT_EQ(seen->dram, 0.912);
}

TEST(Dcgm, CountersThatAreNotThere) {
  EXPECT_FALSE(parse_dcgm(""));
  EXPECT_FALSE(parse_dcgm("GPU 0     N/A          N/A          N/A\n"));
  EXPECT_FALSE(parse_dcgm("Error: unable to establish a connection to the specified host\n"));
}

}  // namespace
}  // namespace ridge
