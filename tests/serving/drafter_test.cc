#include <gtest/gtest.h>

#include "serving/draft_policy.h"
#include "serving/ngram_drafter.h"

namespace ridge {
namespace {

struct Sequence {
  std::vector<Token> tokens, drafts;
  DraftRequest request(RequestId id, int most) { return {id, tokens, most, &drafts}; }
};

// Verifies `accepted` of `proposed` drafts many times, so that the average settles.
void settle(DraftPolicy& policy, RequestId id, int proposed, int accepted) {
  for (int i = 0; i < 200; ++i) policy.verified(id, proposed, accepted);
}

TEST(DraftPolicy, TakesTheMostTokensPerSecond) {
  // A step of 1 + k tokens takes 1 + k / 4: with acceptance a = 0.8, (1 - a^(k+1)) / (1 - a) / (1 +
  // k / 4) is 1, 1.44, 1.63, 1.69, 1.68 for k = 0 .. 4.
  DraftPolicy policy([](int, int drafts, double) { return 1 + 0.25 * drafts; });
  settle(policy, 1, 5, 4);
  EXPECT_NEAR(policy.acceptance(1), 0.8, 0.02);
  Sequence sequence{{1, 2, 3}, {}};
  const DraftRequest request = sequence.request(1, 8);
  const int available = 8;
  EXPECT_EQ(policy.choose({&request, 1}, {&available, 1}), 3);
  const int two = 2;
  EXPECT_EQ(policy.choose({&request, 1}, {&two, 1}), 2);
}

TEST(DraftPolicy, DraftsNothingWhereItDoesNotPayButTriesAgain) {
  DraftPolicy policy([](int, int drafts, double) { return 1 + drafts; });  // compute-bound
  settle(policy, 1, 3, 1);
  Sequence sequence{{1, 2, 3}, {}};
  const DraftRequest request = sequence.request(1, 4);
  const int available = 4;
  int probes = 0;
  for (int i = 0; i < 2590; ++i) probes += policy.choose({&request, 1}, {&available, 1});
  EXPECT_EQ(probes, 40);  // one draft in 4 of 259 steps
}

TEST(DraftPolicy, BelievesTheClockMoreThanThePrediction) {
  DraftPolicy policy([](int, int, double) { return 1.0; });  // drafts would be free
  settle(policy, 1, 5, 4);
  Sequence sequence{{1, 2, 3}, {}};
  const DraftRequest request = sequence.request(1, 1);
  const int available = 1;
  EXPECT_EQ(policy.choose({&request, 1}, {&available, 1}), 1);
  for (int i = 0; i < 50; ++i) {
    policy.on_step(1, 0, 3, 1.0);
    policy.on_step(1, 1, 3, 2.5);  // they are not
  }
  EXPECT_EQ(policy.choose({&request, 1}, {&available, 1}), 0);
}

TEST(NgramDrafter, ProposesWhatFollowedTheLastTime) {
  DraftPolicy policy({});
  NgramDrafter drafter(policy);
  settle(policy, 1, 4, 4);
  Sequence sequence{{7, 1, 2, 3, 4, 50, 51, 52, 9, 1, 2, 3, 4}, {}};
  DraftRequest request = sequence.request(1, 3);
  drafter.propose({&request, 1});
  EXPECT_EQ(sequence.drafts, (std::vector<Token>{50, 51, 52}));
  // The index grows with the sequence.
  sequence.tokens.insert(sequence.tokens.end(), {50, 51});
  sequence.drafts.clear();
  request = sequence.request(1, 3);
  drafter.propose({&request, 1});
  EXPECT_EQ(sequence.drafts, (std::vector<Token>{52, 9, 1}));
}

TEST(NgramDrafter, GoesOnWithAPeriod) {
  DraftPolicy policy({});
  NgramDrafter drafter(policy);
  settle(policy, 1, 4, 4);
  Sequence sequence{{8, 5, 6, 5, 6, 5, 6}, {}};
  const DraftRequest request = sequence.request(1, 5);
  drafter.propose({&request, 1});
  EXPECT_EQ(sequence.drafts, (std::vector<Token>{5, 6, 5, 6, 5}));
}

TEST(NgramDrafter, ProposesNothingForTextThatIsNew) {
  DraftPolicy policy({});
  NgramDrafter drafter(policy);
  Sequence sequence{{1, 2, 3, 4, 5, 6, 7}, {}};
  const DraftRequest request = sequence.request(1, 5);
  drafter.propose({&request, 1});
  EXPECT_TRUE(sequence.drafts.empty());
}

}  // namespace
}  // namespace ridge
