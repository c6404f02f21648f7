// An idle server whose rank ends.
#include <gtest/gtest.h>

#include "running_program.h"

namespace ridge {
namespace {

TEST(RanksServer, NoticesADeadRankWithoutARequest) {
  RunningProgram program({RIDGE_BINARY, "serve", "ridge-1m", "--ranks", "3", "--pp", "3", "--port",
                          "0", "--kv-tokens", "4096"});
  ASSERT_TRUE(program.wait_for_text("OpenAI API at")) << program.text();
  const std::vector<pid_t> ranks = program.children();
  ASSERT_EQ(ranks.size(), 2u);
  kill(ranks[1], SIGKILL);
  // It looks ten times a second, and lets answers that are on their way out for a second.
  EXPECT_EQ(program.wait(), 2) << program.text();
  EXPECT_NE(program.text().find("rank 2 was killed by signal 9"), std::string::npos)
      << program.text();
  for (const pid_t rank : ranks) EXPECT_NE(kill(rank, 0), 0);
}

}  // namespace
}  // namespace ridge
