// Memory of the ledger and of the profile does not grow with the run.
#include <gtest/gtest.h>

#include <cmath>

#include "engine/account/ledger.h"
#include "machine/atlas.h"
#include "model/read.h"

namespace ridge {
namespace {

struct LedgerBound : testing::Test {
  Model model = find_model("llama-3-8b");
  System system = find_system("h100-sxm");
  Stack stack = find_stack("ideal");
  Account account(const Ledger& ledger, const Profile* profile = nullptr) const {
    return ledger.account(model, {}, system, stack, profile);
  }
};

Sequences decode(double past) { return {1, 1, past, 1}; }

TEST_F(LedgerBound, CountsTimeThatComesLater) {
  Ledger ledger;
  const Sequences step = decode(10);
  ledger.record({&step, 1}, 0.5);
  ledger.add_seconds(0.25);
  EXPECT_EQ(ledger.seconds(), 0.75);
  EXPECT_EQ(ledger.steps(), 1);
}

// Work is linear in the cached tokens of full attention, so merged decode steps lose nothing. The
// roof is the larger of two sums that both are; only where they cross is it not linear.
TEST_F(LedgerBound, StaysBoundedAndExactOverALongGeneration) {
  constexpr int kSteps = 3 * int(Ledger::kMaxSequences);
  Ledger ledger;
  double past = 0;
  for (int i = 0; i < kSteps; ++i) {
    const Sequences step = decode(1000 + i);
    past += step.past;
    ledger.record({&step, 1}, 0.001);
    ASSERT_LE(ledger.held(), Ledger::kMaxSequences);
  }
  EXPECT_EQ(ledger.steps(), kSteps);
  EXPECT_EQ(ledger.tokens(), kSteps);
  const Account all = account(ledger);
  Ledger mean;  // one step at the mean, times all
  const Sequences middle = decode(past / kSteps);
  mean.record({&middle, 1}, 0);
  const Account one = account(mean);
  EXPECT_NEAR(all.bytes / (kSteps * one.bytes), 1, 1e-9);
  EXPECT_NEAR(all.flops / (kSteps * one.flops), 1, 1e-9);
  EXPECT_NEAR(all.roof_s / (kSteps * one.roof_s), 1, 1e-3);
}

// Prompts and decode steps by turns never have equal shapes: pairs are thinned out.
TEST_F(LedgerBound, EstimatesStepsOfUnequalShapes) {
  constexpr int kSteps = 2 * int(Ledger::kMaxSequences);
  Ledger ledger;
  double bytes = 0, flops = 0;
  const Sequences shapes[] = {{1, 64, 0, 1}, decode(64)};
  for (const Sequences& shape : shapes) {
    Ledger one;
    one.record({&shape, 1}, 0);
    bytes += account(one).bytes * kSteps / 2;
    flops += account(one).flops * kSteps / 2;
  }
  for (int i = 0; i < kSteps; ++i) ledger.record({&shapes[i % 2], 1}, 0.001);
  EXPECT_LE(ledger.held(), Ledger::kMaxSequences);
  EXPECT_EQ(ledger.tokens(), kSteps / 2 * 65);
  const Account all = account(ledger);
  // A pair errs by its weight of 2 times a random half of the difference: relative to the sum,
  // sqrt(pairs) / pairs x |difference| / sum, five times that allowed. Pairs: at least 2048.
  const double error = 5 / std::sqrt(2048.0);
  EXPECT_NEAR(all.bytes / bytes, 1, error);
  EXPECT_NEAR(all.flops / flops, 1, error);
}

TEST_F(LedgerBound, HoldsBatchesLargerThanTheBound) {
  const std::vector<Sequences> batch(Ledger::kMaxSequences + 1, decode(5));
  Ledger ledger;
  for (int i = 0; i < 3; ++i) ledger.record(batch, 0.1);
  EXPECT_LE(ledger.held(), 2 * batch.size());
  EXPECT_EQ(ledger.steps(), 3);
}

TEST(Profile, KeepsTheFirstEventsAndCountsTheRest) {
  Profile profile(true);
  const auto now = Profile::Clock::now();
  const long calls = long{Profile::kMaxEvents} + 10;
  for (long i = 0; i < calls; ++i) profile.add("qkv", now, now + std::chrono::nanoseconds(1));
  EXPECT_EQ(profile.events().size(), Profile::kMaxEvents);
  EXPECT_EQ(profile.dropped_events(), 10);
  ASSERT_EQ(profile.entries().size(), 1u);
  EXPECT_EQ(profile.entries()[0].calls, calls);
}

}  // namespace
}  // namespace ridge
