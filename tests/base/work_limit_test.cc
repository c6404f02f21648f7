#include "base/work_limit.h"

#include <gtest/gtest.h>

namespace ridge {
namespace {

using Reason = WorkLimitError::Reason;

Reason reason_of(WorkLimit& limit, uint64_t steps) {
  try {
    for (uint64_t i = 0; i < steps; ++i) limit.spend();
  } catch (const WorkLimitError& error) {
    return error.reason();
  }
  ADD_FAILURE() << "nothing was refused";
  return Reason::steps;
}

TEST(WorkLimit, TheLastStepIsAllowedAndTheNextIsNot) {
  for (const uint64_t most : {uint64_t{0}, uint64_t{1}, uint64_t{4096}, uint64_t{100'000}}) {
    WorkLimit limit("the grammar", most);
    for (uint64_t i = 0; i < most; ++i) limit.spend();
    EXPECT_EQ(limit.spent(), most);
    EXPECT_EQ(reason_of(limit, 1), Reason::steps) << most;
  }
  WorkLimit at_once("the grammar", 10);
  EXPECT_THROW(at_once.spend(11), WorkLimitError);
}

TEST(WorkLimit, EndsByTimeAndByACancellation) {
  WorkLimit timed("the template", UINT64_MAX, std::chrono::milliseconds(0));
  EXPECT_EQ(reason_of(timed, UINT64_MAX), Reason::time);
  bool gone = false;
  WorkLimit wanted("the template", UINT64_MAX, WorkLimit::kNoTimeLimit, [&] { return gone; });
  for (int i = 0; i < 100'000; ++i) wanted.spend();
  gone = true;
  EXPECT_EQ(reason_of(wanted, 10'000), Reason::cancelled);
}

TEST(WorkLimit, TheMessageNamesTheSubjectAndTheBound) {
  WorkLimit limit("the schema", 5);
  try {
    limit.spend(6);
    FAIL();
  } catch (const WorkLimitError& error) {
    EXPECT_STREQ(error.what(), "the schema: more than 5 steps of work");
  }
}

}  // namespace
}  // namespace ridge
