// Which replica takes a request, and what the router remembers of their caches.
#include "serving/routing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "serving/prefix_index.h"

namespace ridge {
namespace {

size_t first_choice(std::vector<ReplicaState> states) { return route_request(states).front(); }

TEST(Routing, PrefersTheLongestCachedPrefix) {
  EXPECT_EQ(first_choice({{.requests = 0, .cached_tokens = 16},
                          {.requests = 3, .cached_tokens = 160},
                          {.requests = 1, .cached_tokens = 32}}),
            1u);
}

TEST(Routing, BreaksTiesByRequestsAndThenByTurn) {
  EXPECT_EQ(first_choice({{.requests = 2, .cached_tokens = 32},
                          {.requests = 1, .cached_tokens = 32},
                          {.requests = 0}}),
            1u);
  EXPECT_EQ(first_choice({{.last_chosen = 3}, {.last_chosen = 1}, {.last_chosen = 2}}), 1u);
}

TEST(Routing, PassesOverAReplicaThatIsTooLoaded) {
  const auto choice = [](int busy, int idle) {
    return first_choice({{.requests = busy, .cached_tokens = 1000}, {.requests = idle}});
  };
  EXPECT_EQ(choice(4, 0), 0u);  // the slack
  EXPECT_EQ(choice(5, 0), 1u);
  EXPECT_EQ(choice(30, 20), 0u);  // half more
  EXPECT_EQ(choice(31, 20), 1u);
}

TEST(Routing, LeavesOutReplicasThatHaveFailed) {
  const std::vector<ReplicaState> states{{.serves = false, .cached_tokens = 64}, {.requests = 9}};
  EXPECT_EQ(route_request(states), std::vector<size_t>{1});
  EXPECT_TRUE(route_request(std::vector<ReplicaState>{{.serves = false}}).empty());
}

// Whatever the state: all that serve are listed once, the first is not too loaded, and no replica
// that is not too loaded has more of the prompt cached.
TEST(Routing, KeepsItsRuleForAnyState) {
  std::mt19937 random(7);
  for (int round = 0; round < 5000; ++round) {
    std::vector<ReplicaState> states(1 + random() % 6);
    int least = 1 << 30;
    size_t serving = 0;
    for (ReplicaState& state : states) {
      state = {.serves = random() % 5 != 0,
               .requests = int(random() % 40),
               .cached_tokens = 16 * int(random() % 5),
               .last_chosen = random() % 4};
      if (!state.serves) continue;
      ++serving;
      least = std::min(least, state.requests);
    }
    std::vector<size_t> order = route_request(states);
    ASSERT_EQ(order.size(), serving);
    if (order.empty()) continue;
    const ReplicaState& chosen = states[order.front()];
    EXPECT_TRUE(chosen.serves);
    EXPECT_FALSE(is_too_loaded(chosen.requests, least));
    for (const ReplicaState& other : states) {
      if (!other.serves || is_too_loaded(other.requests, least)) continue;
      EXPECT_LE(other.cached_tokens, chosen.cached_tokens);
      if (other.cached_tokens == chosen.cached_tokens) {
        EXPECT_LE(chosen.requests, other.requests);
      }
    }
    std::sort(order.begin(), order.end());
    EXPECT_EQ(std::unique(order.begin(), order.end()), order.end());
  }
}

// Requests that last equally long, of random conversations: every replica gets about its share, and
// most conversations keep their place.
TEST(Routing, SpreadsConversationsOverReplicas) {
  std::mt19937 random(11);
  std::vector<ReplicaState> states(4);
  std::vector<size_t> home(40, 99);
  std::vector<size_t> running;
  std::vector<int> sent(states.size());
  int moved = 0;
  for (uint64_t turn = 1; turn <= 4000; ++turn) {
    const size_t conversation = random() % home.size();
    for (size_t r = 0; r < states.size(); ++r) {
      states[r].cached_tokens = home[conversation] == r ? 64 : 0;
    }
    const size_t chosen = route_request(states).front();
    if (home[conversation] != 99 && home[conversation] != chosen) ++moved;
    home[conversation] = chosen;
    ++sent[chosen];
    ++states[chosen].requests;
    states[chosen].last_chosen = turn;
    running.push_back(chosen);
    if (running.size() > 32) {
      --states[running.front()].requests;
      running.erase(running.begin());
    }
  }
  for (const int count : sent) EXPECT_GT(count, 4000 / 4 * 3 / 4);
  EXPECT_LT(moved, 4000 / 5);
}

TEST(PrefixIndex, FindsWholePagesOfEqualBeginnings) {
  std::vector<Token> tokens(100);
  std::iota(tokens.begin(), tokens.end(), 0);
  PrefixIndex index(64);
  index.add(hash_prefixes("", tokens, 16));
  EXPECT_EQ(index.size(), 6u);
  EXPECT_EQ(index.match(hash_prefixes("", tokens, 16)), 6);
  EXPECT_EQ(index.match(hash_prefixes("", std::span(tokens).first(47), 16)), 2);
  tokens[20] = 7;  // within the second page: what follows is another prompt's
  EXPECT_EQ(index.match(hash_prefixes("", tokens, 16)), 1);
  tokens[0] = 7;
  EXPECT_EQ(index.match(hash_prefixes("", tokens, 16)), 0);
  tokens[0] = 0;
  EXPECT_EQ(index.match(hash_prefixes("tenant", tokens, 16)), 0);
}

TEST(PrefixIndex, ForgetsTheLeastRecentlyUsedFromItsEnd) {
  PrefixIndex index(5);
  const std::vector<uint64_t> a{1, 2, 3}, b{11, 12}, c{21, 22};
  index.add(a);
  index.add(b);
  index.add(a);  // used again
  index.add(c);
  EXPECT_EQ(index.size(), 5u);
  EXPECT_EQ(index.match(a), 3);
  EXPECT_EQ(index.match(b), 0);
  EXPECT_EQ(index.match(c), 2);
  index.add(b);
  EXPECT_EQ(index.match(a), 1);  // the longest went first
  PrefixIndex none(0);           // a replica without a prefix cache
  none.add(a);
  EXPECT_EQ(none.match(a), 0);
}

}  // namespace
}  // namespace ridge
