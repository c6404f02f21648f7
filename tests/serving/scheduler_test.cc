#include "serving/scheduler.h"

#include <algorithm>
#include <deque>
#include <map>
#include <random>

#include "serving/fake_device.h"

namespace ridge {
namespace {

constexpr int kVocab = 50;

std::vector<Token> generate_alone(std::vector<Token> tokens, int count) {
  const size_t prompt = tokens.size();
  for (int i = 0; i < count; ++i) tokens.push_back(FakeDevice::next_token(tokens, kVocab));
  return {tokens.begin() + static_cast<long>(prompt), tokens.end()};
}

// Drafts that are right with some probability.
class GuessingDrafter : public Drafter {
 public:
  void propose(std::span<const DraftRequest> requests) override {
    for (const DraftRequest& request : requests) {
      std::vector<Token> tokens(request.tokens.begin(), request.tokens.end());
      const int count = static_cast<int>(random_() % static_cast<unsigned>(request.most + 1));
      for (int i = 0; i < count; ++i) {
        Token token = FakeDevice::next_token(tokens, kVocab);
        if (random_() % 4 == 0) token = (token + 1) % kVocab;
        tokens.push_back(token);
        request.drafts->push_back(token);
      }
    }
  }
  void verified(RequestId, int proposed, int accepted) override {
    proposed_ += proposed;
    accepted_ += accepted;
  }
  void remove(RequestId) override {}
  int proposed_ = 0, accepted_ = 0;

 private:
  std::mt19937 random_{7};
};

struct World {
  World(const SchedulerOptions& options, int pages, int page_tokens = 4, Drafter* drafter = nullptr,
        int steps_ahead = 0)
      : pool(pages, page_tokens),
        device(pages, page_tokens, kVocab),
        scheduler(options, pool, drafter),
        ahead(steps_ahead) {}

  void add(RequestId id, std::vector<Token> prompt, int tokens, int priority = 0,
           std::string salt = "") {
    prompts[id] = prompt;
    wanted[id] = tokens;
    Arrival arrival;
    arrival.id = id;
    arrival.max_length = static_cast<int>(prompt.size()) + tokens;
    arrival.prompt = std::move(prompt);
    arrival.priority = priority;
    arrival.cache_salt = std::move(salt);
    scheduler.add(std::move(arrival));
  }

  // One step planned and run; its tokens are accepted `ahead` steps later.
  bool step() {
    ScheduledStep planned;
    scheduler.next(planned);
    scheduler.check_pages();
    preemptions += int(planned.preempted.size());
    for (const auto& [id, cached] : planned.admitted) {
      order.push_back(id);
      cached_tokens[id] = cached;
    }
    if (!planned.empty()) {
      int rows = 0;
      for (const ScheduledSlice& slice : planned.slices) rows += slice.logits;
      largest_step = std::max(largest_step, int(planned.tokens.size()));
      computed += static_cast<long>(planned.tokens.size());
      std::vector<Token> drawn = device.run(planned);
      EXPECT_EQ(int(drawn.size()), rows);
      flying.push_back({std::move(planned), std::move(drawn)});
    } else if (flying.empty()) {
      return !planned.preempted.empty();  // those can run in the next step
    }
    while (!flying.empty() && (int(flying.size()) > ahead || planned.empty())) land();
    scheduler.check_pages();
    return true;
  }

  void land() {
    const auto [step, drawn] = std::move(flying.front());
    flying.pop_front();
    int row = 0;
    for (const ScheduledSlice& slice : step.slices) {
      const int rows = slice.logits;
      const int first = row + rows - 1 - slice.drafts;
      row += rows;
      if (!slice.samples || !wanted.contains(slice.id)) continue;
      std::vector<Token> tokens;
      const auto given = step.tokens_of(slice);
      for (int i = 0; i <= slice.drafts; ++i) {
        tokens.push_back(drawn[size_t(first + i)]);
        const bool last = i == slice.drafts;
        if (!last && tokens.back() != given[given.size() - size_t(slice.drafts - i)]) break;
      }
      std::vector<Token>& made = results[slice.id];
      bool ended = false;
      for (size_t i = 0; i < tokens.size() && !ended; ++i) {
        made.push_back(tokens[i]);
        ended = int(made.size()) == wanted[slice.id];
      }
      scheduler.accept(slice, tokens);
      if (ended) {
        scheduler.remove(slice.id);
        finished.push_back(slice.id);
        wanted.erase(slice.id);
      }
    }
  }

  void run_to_end(int limit = 100000) {
    while (step()) ASSERT_GT(limit--, 0) << "no end";
    EXPECT_TRUE(scheduler.idle());
  }

  PagePool pool;
  FakeDevice device;
  Scheduler scheduler;
  int ahead;
  struct Flying {
    ScheduledStep step;
    std::vector<Token> drawn;
  };
  std::deque<Flying> flying;
  std::map<RequestId, std::vector<Token>> prompts, results;
  std::map<RequestId, int> wanted, cached_tokens;
  std::vector<RequestId> order, finished;
  int preemptions = 0, largest_step = 0;
  long computed = 0;
};

std::vector<Token> random_prompt(std::mt19937& random, int length) {
  std::vector<Token> prompt(static_cast<size_t>(length));
  for (Token& token : prompt) token = static_cast<Token>(random() % kVocab);
  return prompt;
}

struct Case {
  int pages, max_tokens, max_sequences, preempt_every, ahead, drafts;
  bool prefix_cache;
};

class AnySchedule : public testing::TestWithParam<Case> {};

// Whatever the pool, the budget, the drafts and the preemptions: each request gets the tokens that
// it gets alone, every page is accounted for in every step, and all requests end.
TEST_P(AnySchedule, GivesEachRequestTheTokensItGetsAlone) {
  const Case& c = GetParam();
  GuessingDrafter drafter;
  SchedulerOptions options;
  options.max_tokens = c.max_tokens;
  options.max_sequences = c.max_sequences;
  options.max_drafts = c.drafts;
  options.max_logit_rows = c.max_sequences * (1 + c.drafts);
  options.preempt_every = c.preempt_every;
  options.prefix_cache = c.prefix_cache;
  World world(options, c.pages, 4, c.drafts > 0 ? &drafter : nullptr, c.ahead);
  std::mt19937 random(static_cast<unsigned>(c.pages * 31 + c.max_tokens));
  const int room = c.pages * 4;
  std::vector<std::vector<Token>> beginnings;
  for (int i = 0; i < 4; ++i) beginnings.push_back(random_prompt(random, room / 4));
  std::map<RequestId, int> tokens;
  RequestId id = 1;
  for (; id <= 60; ++id) {
    std::vector<Token> prompt = random() % 2 == 0 ? beginnings[random() % 4] : std::vector<Token>{};
    const auto tail = random_prompt(random, 1 + int(random() % unsigned(room / 4)));
    prompt.insert(prompt.end(), tail.begin(), tail.end());
    tokens[id] = 1 + int(random() % unsigned(room / 4));
    world.add(id, prompt, tokens[id], int(random() % 3), random() % 3 == 0 ? "tenant" : "");
    for (unsigned steps = random() % 4; steps > 0; --steps) world.step();
    if (random() % 8 == 0) {  // a client goes away, wherever its request is
      const RequestId gone = 1 + random() % id;
      world.scheduler.remove(gone);
      world.wanted.erase(gone);
      tokens.erase(gone);
    }
  }
  world.run_to_end();
  for (const auto& [request, count] : tokens) {
    EXPECT_EQ(world.results[request], generate_alone(world.prompts[request], count)) << request;
  }
  EXPECT_LE(world.largest_step, c.max_tokens);
  const Scheduler::PageCounts pages = world.scheduler.pages();
  EXPECT_EQ(pages.held, 0);
  EXPECT_EQ(pages.free + pages.cached, c.pages);
  EXPECT_EQ(drafter.accepted_ > 0, c.drafts > 0);
  EXPECT_TRUE(c.preempt_every == 0 || world.preemptions > 0);
}

INSTANTIATE_TEST_SUITE_P(
    Serving, AnySchedule,
    testing::Values(Case{200, 64, 16, 0, 0, 0, true}, Case{200, 64, 16, 0, 1, 0, true},
                    Case{12, 16, 8, 0, 0, 0, true}, Case{12, 16, 8, 0, 1, 0, true},
                    Case{12, 16, 8, 3, 0, 0, true}, Case{12, 16, 8, 3, 1, 0, true},
                    Case{40, 7, 5, 3, 1, 0, true}, Case{40, 32, 8, 0, 0, 3, true},
                    Case{12, 16, 4, 3, 0, 3, true}, Case{12, 16, 8, 3, 1, 0, false},
                    Case{40, 64, 16, 1, 0, 2, true}, Case{100, 8, 8, 0, 1, 0, true}));

// Pools of a few pages, prompts that are equal, share parts of pages or fill the pool.
TEST(Scheduler, NeverStandsStillInTinyPools) {
  for (unsigned seed = 0; seed < 1500; ++seed) {
    std::mt19937 random(seed);
    const int pages = 2 + int(random() % 6), room = 4 * pages;
    const int ahead = int(random() % 2);
    SchedulerOptions options{.max_tokens = 4 + int(random() % 12), .max_sequences = 4};
    options.max_logit_rows = 4;
    World world(options, pages, 4, nullptr, ahead);
    const std::vector<Token> common = random_prompt(random, room);
    RequestId id = 1;
    for (; id <= 8; ++id) {
      const int length = 1 + int(random() % unsigned(room - 1));
      std::vector<Token> prompt(common.begin(), common.begin() + length);
      if (random() % 2 == 0) prompt[random() % prompt.size()] = Token(random() % kVocab);
      world.add(id, prompt, 1 + int(random() % unsigned(room - length)), int(random() % 2));
      for (unsigned steps = random() % 3; steps > 0; --steps) world.step();
    }
    world.run_to_end(5000);
    ASSERT_FALSE(testing::Test::HasFailure()) << "seed " << seed;
    EXPECT_EQ(world.scheduler.pages().held, 0) << "seed " << seed;
    EXPECT_EQ(world.finished.size(), 8u) << "seed " << seed;
    for (RequestId each = 1; each < id; ++each) {
      const std::vector<Token>& made = world.results[each];
      ASSERT_EQ(made, generate_alone(world.prompts[each], int(made.size()))) << "seed " << seed;
    }
  }
}

TEST(Scheduler, ComputesASharedPrefixOnce) {
  World world({.max_tokens = 128, .max_sequences = 16, .max_logit_rows = 16}, 200);
  std::mt19937 random(1);
  const std::vector<Token> shared = random_prompt(random, 80);
  for (RequestId id = 1; id <= 8; ++id) {
    std::vector<Token> prompt = shared;
    prompt.push_back(static_cast<Token>(id));
    world.add(id, prompt, 2);
  }
  world.run_to_end();
  EXPECT_EQ(world.cached_tokens[1], 0);
  for (RequestId id = 2; id <= 8; ++id) EXPECT_EQ(world.cached_tokens[id], 80) << id;
  EXPECT_EQ(world.computed, 80 + 8 + 8);  // the prefix, every last token, every first drawn one
}

TEST(Scheduler, CopiesThePartOfAPageThatMatches) {
  World world({.max_tokens = 64, .max_sequences = 4, .max_logit_rows = 4}, 50, 8);
  std::mt19937 random(2);
  std::vector<Token> prompt = random_prompt(random, 24);
  world.add(1, prompt, 1);
  world.run_to_end();
  prompt[21] = (prompt[21] + 1) % kVocab;  // in the third page, behind 5 equal tokens
  world.add(2, prompt, 5);
  world.run_to_end();
  EXPECT_EQ(world.cached_tokens[2], 21);
  EXPECT_EQ(world.scheduler.pages().held, 0);
  world.add(3, {prompt.begin(), prompt.begin() + 22}, 1);  // ends in the step that copies
  world.run_to_end();
  EXPECT_EQ(world.cached_tokens[3], 21);
  EXPECT_EQ(world.scheduler.pages().held, 0);
  EXPECT_EQ(world.results[2], generate_alone(prompt, 5));
}

TEST(Scheduler, KeepsSaltsApart) {
  World world({.max_tokens = 64, .max_sequences = 4, .max_logit_rows = 4}, 50);
  std::mt19937 random(3);
  const std::vector<Token> prompt = random_prompt(random, 40);
  world.add(1, prompt, 2, 0, "a");
  world.run_to_end();
  world.add(2, prompt, 2, 0, "b");
  world.run_to_end();
  world.add(3, prompt, 2, 0, "a");
  world.run_to_end();
  EXPECT_EQ(world.cached_tokens[2], 0);
  EXPECT_EQ(world.cached_tokens[3], 39);  // nine pages and three tokens of the tenth
}

// While high priorities keep coming, a low one is overtaken a bounded number of times.
TEST(Scheduler, OvertakesARequestABoundedNumberOfTimes) {
  World world({.max_tokens = 16, .max_sequences = 1, .max_logit_rows = 1}, 50);
  std::mt19937 random(4);
  world.add(1, random_prompt(random, 8), 3, 0);
  world.step();
  world.add(2, random_prompt(random, 8), 3, 9);  // the worst priority
  RequestId id = 3;
  for (int i = 0; i < 2000 && world.results[2].empty(); ++i) {
    if (world.scheduler.waiting() < 3) world.add(id++, random_prompt(random, 8), 3, 0);
    world.step();
  }
  const auto position = std::find(world.order.begin(), world.order.end(), 2u) - world.order.begin();
  EXPECT_EQ(position, 1 + Scheduler::kMaxOvertakes);
}

TEST(Scheduler, RunsInOrderOfArrivalWithinAPriority) {
  World world({.max_tokens = 8, .max_sequences = 2, .max_logit_rows = 2}, 50);
  std::mt19937 random(5);
  for (RequestId id = 1; id <= 12; ++id) world.add(id, random_prompt(random, 8), 4, id % 2);
  world.run_to_end();
  EXPECT_EQ(world.order, (std::vector<RequestId>{2, 4, 6, 8, 10, 12, 1, 3, 5, 7, 9, 11}));
}

// A prompt that fills the pool waits for it, and those behind wait with it.
TEST(Scheduler, DoesNotPassALargePromptBy) {
  World world({.max_tokens = 64, .max_sequences = 8, .max_logit_rows = 8}, 20);
  std::mt19937 random(6);
  world.add(1, random_prompt(random, 20), 10);
  world.step();
  world.add(2, random_prompt(random, 70), 10);
  for (RequestId id = 3; id <= 6; ++id) world.add(id, random_prompt(random, 8), 2);
  world.run_to_end();
  EXPECT_EQ(world.order.at(1), 2u);
}

// Decodes go first, so a long prompt delays no running stream by more than its chunk.
TEST(Scheduler, MixesChunksOfAPromptWithEveryRunningStream) {
  World world({.max_tokens = 16, .max_sequences = 8, .max_logit_rows = 8}, 200);
  std::mt19937 random(7);
  for (RequestId id = 1; id <= 4; ++id) world.add(id, random_prompt(random, 4), 50);
  world.step();
  world.step();
  world.add(9, random_prompt(random, 200), 5);
  for (int i = 0; i < 17; ++i) {
    const size_t before = world.results[1].size();
    world.step();
    EXPECT_EQ(world.results[1].size(), before + 1);
    EXPECT_EQ(world.largest_step, 16);
  }
  EXPECT_FALSE(world.results[9].empty());  // 200 tokens in chunks of 12: 17 steps
}

}  // namespace
}  // namespace ridge
