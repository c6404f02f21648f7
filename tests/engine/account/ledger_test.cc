// The ledger accounts the steps that ran: the Ops of exactly those steps, beside their time.
#include "engine/account/ledger.h"

#include <gtest/gtest.h>

#include <chrono>

#include "machine/atlas.h"
#include "model/read.h"
#include "roofline/stack.h"
#include "step/lower.h"

namespace ridge {
namespace {

class LedgerOf : public testing::Test {
 protected:
  Account account(const Ledger& ledger, const Profile* profile = nullptr) const {
    return ledger.account(model_, plan_, system_, stack_, profile);
  }
  // FLOPs and bytes of one step, from the lowered Ops.
  std::pair<double, double> work(std::span<const Sequences> batch) const {
    std::vector<Op> ops;
    lower(make_rank(model_, plan_), batch, ops);
    double flops = 0, bytes = 0;
    for (const Op& op : ops) {
      flops += op.count * (op.work.flops + op.work.vector_flops);
      bytes += op.count * op.work.device_bytes();
    }
    return {flops, bytes};
  }

  const Model model_ = find_model("llama-3-8b");
  const Plan plan_ = {};
  const System system_ = find_system("h200");
  const Stack stack_ = find_stack("ideal");
};

const Sequences kPrompt{1, 100, 0, 1};
const Sequences kDecode{8, 1, 100, 1};

TEST_F(LedgerOf, CountsStepsTokensAndSeconds) {
  Ledger ledger;
  EXPECT_EQ(ledger.steps(), 0);
  ledger.record({&kPrompt, 1}, 0.5);
  const Sequences mixed[] = {kPrompt, kDecode};
  ledger.record(mixed, 0.25);
  EXPECT_EQ(ledger.steps(), 2);
  EXPECT_EQ(ledger.seconds(), 0.75);
  const Account sum = account(ledger);
  EXPECT_EQ(sum.steps, 2);
  EXPECT_EQ(sum.tokens, 100 + 100 + 8);
  EXPECT_EQ(sum.measured_s, 0.75);
  ledger.clear();
  EXPECT_EQ(ledger.steps(), 0);
  EXPECT_EQ(ledger.seconds(), 0);
  EXPECT_EQ(account(ledger).tokens, 0);
}

TEST_F(LedgerOf, SumsTheWorkOfTheLoweredSteps) {
  const Sequences mixed[] = {kPrompt, kDecode};
  Ledger ledger;
  ledger.record({&kDecode, 1}, 0.1);
  ledger.record(mixed, 0.2);
  const Account sum = account(ledger);
  const auto [decode_flops, decode_bytes] = work({&kDecode, 1});
  const auto [mixed_flops, mixed_bytes] = work(mixed);
  double flops = 0, bytes = 0, roof_s = 0;
  for (const OperatorAccount& each : sum.operators) {
    EXPECT_GT(each.calls, 0) << each.name;
    flops += each.flops;
    bytes += each.bytes;
    roof_s += each.roof_s;
  }
  // Sums of the same numbers in another order: a few roundings of double.
  EXPECT_NEAR(flops / (decode_flops + mixed_flops), 1, 1e-12);
  EXPECT_NEAR(bytes / (decode_bytes + mixed_bytes), 1, 1e-12);
  EXPECT_NEAR(sum.bytes / bytes, 1, 1e-12);
  EXPECT_NEAR(sum.roof_s / roof_s, 1, 1e-12);
  EXPECT_DOUBLE_EQ(sum.bytes_per_s(), sum.bytes / 0.3);
  EXPECT_DOUBLE_EQ(sum.share_of_roof(), sum.roof_s / 0.3);
  // A decode step reads every weight once: never less than the model's parameters.
  EXPECT_GT(decode_bytes, 2 * 8e9 * 0.9);
}

TEST_F(LedgerOf, EqualStepsAddUp) {
  Ledger one, three;
  one.record({&kDecode, 1}, 0.1);
  for (int i = 0; i < 3; ++i) three.record({&kDecode, 1}, 0.1);
  const Account single = account(one), triple = account(three);
  EXPECT_NEAR(triple.bytes / single.bytes, 3, 1e-12);
  EXPECT_NEAR(triple.flops / single.flops, 3, 1e-12);
  EXPECT_NEAR(triple.roof_s / single.roof_s, 3, 1e-12);
  EXPECT_EQ(triple.wall, single.wall);
  ASSERT_EQ(triple.operators.size(), single.operators.size());
  for (size_t i = 0; i < single.operators.size(); ++i) {
    EXPECT_EQ(triple.operators[i].name, single.operators[i].name);
    EXPECT_NEAR(triple.operators[i].calls, 3 * single.operators[i].calls, 1e-9);
  }
}

TEST_F(LedgerOf, ProfileTimesGoToTheirOperators) {
  Ledger ledger;
  ledger.record({&kDecode, 1}, 0.1);
  const Account plain = account(ledger);
  for (const OperatorAccount& each : plain.operators) EXPECT_EQ(each.measured_s, 0) << each.name;

  const std::string first = plain.operators.front().name;
  Profile profile;
  const Profile::Clock::time_point start{};
  profile.add(first.c_str(), start, start + std::chrono::milliseconds(30));
  profile.add(first.c_str(), start, start + std::chrono::milliseconds(10));
  profile.add("unknown", start, start + std::chrono::milliseconds(5));
  const Account timed = account(ledger, &profile);
  ASSERT_EQ(timed.operators.size(), plain.operators.size() + 1);
  EXPECT_NEAR(timed.operators.front().measured_s, 0.040, 1e-9);
  EXPECT_EQ(timed.operators.back().name, "unknown");
  EXPECT_NEAR(timed.operators.back().measured_s, 0.005, 1e-9);
  EXPECT_EQ(timed.measured_s, 0.1);  // of the steps, not of their operators
}

}  // namespace
}  // namespace ridge
