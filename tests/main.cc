// Runs the tests that the command line selects. Exit status 77, which ctest reports as skipped,
// where every one of them skipped itself: what they need (a GPU, mpirun, ../shared) is not here.
#include <gtest/gtest.h>

int main(int count, char** words) {
  testing::InitGoogleTest(&count, words);
  const int status = RUN_ALL_TESTS();
  const testing::UnitTest& run = *testing::UnitTest::GetInstance();
  const bool skipped =
      run.skipped_test_count() > 0 && run.skipped_test_count() == run.test_to_run_count();
  return status == 0 && skipped ? 77 : status;
}
