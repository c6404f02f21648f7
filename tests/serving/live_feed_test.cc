// The ring between the engine and the live stream, and what goes through it.
#include "serving/live_feed.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "base/random.h"
#include "engine_support.h"
#include "serving/scheduler.h"

namespace ridge {
namespace {

struct Stamped {
  uint64_t number = 0;
  std::array<uint64_t, 20> words{};
};

// A slow reader, a fast one, and batches of several records.
TEST(RecordRing, LosesWholeRecordsAndTearsNone) {
  for (const size_t capacity : {size_t{8}, size_t{256}}) {
    RecordRing<Stamped> ring(capacity);
    constexpr uint64_t kWrites = 200'000;
    uint64_t refused = 0, torn = 0, disordered = 0, seen = 0, batches = 0;
    std::atomic<bool> done = false;
    std::thread writer([&] {
      for (uint64_t n = 1; n <= kWrites; ++n) {
        const size_t count = 1 + n % 3;
        const bool written = ring.write(count, [&](size_t i, Stamped& to) {
          to.number = n * 8 + i;
          to.words.fill(splitmix64(to.number));
        });
        if (!written) ++refused;
      }
      done = true;
    });
    uint64_t last = 0, expected = 0;
    const auto read = [&] {
      ring.read_all([&](const Stamped& record) {
        for (const uint64_t word : record.words) torn += word != splitmix64(record.number);
        disordered += record.number <= last;
        // A batch comes whole: its records follow each other.
        disordered += expected != 0 && record.number != expected;
        const uint64_t n = record.number / 8, i = record.number % 8;
        batches += i == 0;
        expected = i < n % 3 ? record.number + 1 : 0;
        last = record.number;
        ++seen;
      });
    };
    while (!done) {
      read();
      if (capacity == 8) std::this_thread::yield();
    }
    writer.join();
    read();
    EXPECT_EQ(torn, 0u);
    EXPECT_EQ(disordered, 0u);
    EXPECT_EQ(expected, 0u);
    EXPECT_GT(seen, 0u);
    EXPECT_EQ(batches + refused, kWrites);
  }
}

StepReport step_of(std::span<const StepRow> rows) {
  StepReport report;
  report.measured_s = 0.001;
  report.generated_tokens = int(rows.size());
  report.rows = rows;
  return report;
}

TEST(LiveFeed, RecordsOnlyWhileSomebodyListens) {
  LiveFeed feed(16, 32);
  std::vector<StepRow> rows(32);
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = {.id = i + 1, .tokens = int(i)};
  feed.on_step(step_of(rows));
  feed.on_request({.id = 1});
  int steps = 0, requests = 0;
  const auto read = [&] {
    feed.read(
        [&](const StepReport& report) {
          ++steps;
          ASSERT_EQ(report.rows.size(), size_t(report.generated_tokens));
          for (size_t i = 0; i < report.rows.size(); ++i) {
            EXPECT_EQ(report.rows[i].id, i + 1);
            EXPECT_EQ(report.rows[i].tokens, int(i));
          }
        },
        [&](const RequestEvent&) { ++requests; });
  };
  read();
  EXPECT_EQ(steps + requests, 0);
  feed.listen(true);
  for (const size_t count : {0, 1, 6, 7, 32}) feed.on_step(step_of(std::span(rows).first(count)));
  feed.on_request({.id = 1});
  read();
  EXPECT_EQ(steps, 5);
  EXPECT_EQ(requests, 1);
  // What no longer fits is counted, not waited for.
  constexpr int kMany = 20'000;
  for (int i = 0; i < kMany; ++i) feed.on_step(step_of(std::span(rows).first(1)));
  steps = 0;
  read();
  EXPECT_GT(steps, 1000);
  EXPECT_EQ(steps + feed.take_dropped_steps(), kMany);
  EXPECT_EQ(feed.take_dropped_steps(), 0);
  feed.on_step(step_of(rows));
  feed.listen(false);
  feed.listen(true);
  steps = 0;
  read();
  EXPECT_EQ(steps, 0);
}

TEST(LiveFeed, TimesOneStepInSixtyFour) {
  LiveFeed feed(16, 4);
  const Sequences one;
  const StepProfile decode{.measured_s = 1, .decode_sequences = 1, .batch = {&one, 1}};
  const auto timed_of = [&](int steps) {
    int timed = 0;
    for (int i = 0; i < steps; ++i) {
      if (!feed.wants_profile()) continue;
      ++timed;
      feed.on_profile(decode);
      if (feed.timed_step() != nullptr) feed.release_timed_step();
    }
    return timed;
  };
  EXPECT_EQ(timed_of(200), 0);
  feed.profile(true);
  EXPECT_EQ(timed_of(1), 1);  // at once, and then every 64th
  EXPECT_EQ(timed_of(640), 10);
  // Prompts alone do not count, and nothing is timed while the last lies unread.
  while (!feed.wants_profile()) {
  }
  StepProfile prompt = decode;
  prompt.decode_sequences = 0;
  feed.on_profile(prompt);
  EXPECT_EQ(feed.timed_step(), nullptr);
  EXPECT_TRUE(feed.wants_profile());
  feed.on_profile(decode);
  ASSERT_NE(feed.timed_step(), nullptr);
  for (int i = 0; i < 200; ++i) EXPECT_FALSE(feed.wants_profile());
}

// Snapshots of a scheduler at work: they add up to the pool, and sharers are the holders.
TEST(LiveFeed, CopiesOwnersOfPages) {
  PagePool pool(32, 16);
  SchedulerOptions options;
  options.max_tokens = 64;
  Scheduler scheduler(options, pool);
  LiveFeed feed(pool.total(), options.max_sequences);
  std::vector<Token> prompt(80);
  for (size_t i = 0; i < prompt.size(); ++i) prompt[i] = Token(i);
  const auto add = [&](RequestId id) {
    Arrival arrival;
    arrival.id = id;
    arrival.prompt = prompt;
    arrival.max_length = 200;
    scheduler.add(std::move(arrival));
  };
  ScheduledStep step;
  const auto run = [&] {
    scheduler.next(step);
    for (const ScheduledSlice& slice : step.slices) {
      const Token token = 7;
      if (slice.samples) scheduler.accept(slice, {&token, 1});
    }
  };
  const auto check = [&](int shared) {
    EXPECT_TRUE(feed.ask_for_cache(true));
    EXPECT_FALSE(feed.ask_for_cache(true));
    EXPECT_EQ(feed.cache(), nullptr);
    feed.between_steps(scheduler);
    const CacheSnapshot* const cache = feed.cache();
    ASSERT_NE(cache, nullptr);
    int free = 0, cached = 0, held = 0, with_sharers = 0, nodes = 0;
    for (const CacheSnapshot::Page& page : cache->pages) {
      free += page.owner == CacheSnapshot::kFree;
      cached += page.owner == CacheSnapshot::kCached && page.sharers == 0;
      held += page.owner > 0 || page.sharers > 0;
      with_sharers += page.sharers > 1;
    }
    for (const CacheSnapshot::Node& node : cache->nodes) nodes += node.used;
    EXPECT_EQ(free, cache->free);
    EXPECT_EQ(cached, cache->cached);
    EXPECT_EQ(held, cache->held);
    EXPECT_EQ(free + cached + held, pool.total());
    EXPECT_EQ(with_sharers, shared);
    EXPECT_LE(cached, nodes);
    feed.release_cache();
  };
  check(0);
  add(1);
  while (scheduler.pages().held == 0 || step.slices.front().past < 80) run();
  check(0);
  add(2);
  for (int i = 0; i < 4; ++i) run();
  check(5);  // the last page was copied; once full, the tree's takes its place
  scheduler.remove(1);
  check(0);
  scheduler.remove(2);
  check(0);
  EXPECT_EQ(scheduler.pages().held, 0);
  EXPECT_GT(scheduler.pages().cached, 4);
}

// The engine answers a look while it sleeps and while it works.
TEST(LiveFeed, LooksBetweenSteps) {
  LiveFeed feed(256, 16);
  EngineClient client;
  ServingEngine engine(make_test_runner({}), paced({}), client.sink(), &feed);
  const auto look = [&] {
    ASSERT_TRUE(feed.ask_for_cache(false));
    engine.request_look();
    ASSERT_TRUE(wait_until("a picture of the cache", [&] { return feed.cache() != nullptr; }));
    EXPECT_EQ(feed.cache()->free + feed.cache()->cached + feed.cache()->held, 256);
    feed.release_cache();
  };
  look();
  ServingRequest request;
  request.id = engine.new_id();
  request.prompt = {1, 2, 3};
  request.generate.max_tokens = 400;
  request.generate.ignore_end = true;
  ASSERT_TRUE(engine.submit(std::move(request)));
  for (int i = 0; i < 5; ++i) look();
  client.wait_for_ends(1);
  look();
}

}  // namespace
}  // namespace ridge
