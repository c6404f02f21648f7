// The pace of an engine's steps: none while it holds, so many as it allows, none shorter than it
// says; and an engine that is held hears of arrivals, cancellations and its end.
#include "serving/step_pace.h"

#include <gtest/gtest.h>

#include <atomic>

#include "serving/engine_support.h"
#include "serving/replicas.h"

namespace ridge {
namespace {

TEST(StepPace, GivesAsManyPermitsAsItAllows) {
  StepPace pace;
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(pace.take());
  pace.hold();
  EXPECT_TRUE(pace.holds());
  EXPECT_FALSE(pace.take());
  pace.allow(2);
  pace.allow(1);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(pace.take());
  EXPECT_FALSE(pace.take());
  pace.at_least(1);
  EXPECT_FALSE(pace.take());  // a duration does not end a hold
  EXPECT_EQ(pace.least_s(), 1);
  pace.go();
  EXPECT_TRUE(pace.take());
  EXPECT_EQ(pace.least_s(), 0);
}

TEST(StepPace, TakesAPermitBackUnlessItHasHeldSince) {
  StepPace pace;
  pace.allow(1);
  auto permit = pace.take();
  ASSERT_TRUE(permit);
  pace.give_back(*permit);
  permit = pace.take();
  ASSERT_TRUE(permit);
  pace.hold();
  pace.give_back(*permit);
  EXPECT_FALSE(pace.take());
  permit.reset();
  pace.go();
  pace.give_back(*pace.take());
  permit = pace.take();
  ASSERT_TRUE(permit);
  // A permit of unlimited steps is none of the two that are allowed then.
  pace.allow(2);
  pace.give_back(*permit);
  EXPECT_TRUE(pace.take() && pace.take());
  EXPECT_FALSE(pace.take());
}

TEST(StepPace, ReportsEachChangeWhileItIsWatched) {
  StepPace pace;
  int changes = 0;
  {
    const StepPace::Watch watch(pace, [&] { ++changes; });
    pace.hold();
    pace.allow(1);
    pace.at_least(1);
    pace.go();
    EXPECT_EQ(changes, 4);
  }
  pace.hold();
  EXPECT_EQ(changes, 4);
}

// Counts what an engine reports, and waits for it.
class PaceObserver final : public ServingObserver {
 public:
  void on_request(const RequestEvent& event) override {
    if (event.stage == RequestEvent::Stage::arrived) add(arrived_);
    if (event.stage == RequestEvent::Stage::admitted) add(admitted_);
  }
  void on_step(const StepReport& report) override {
    if (report.measured_s == 0) return;
    const std::lock_guard lock(mutex_);
    ++steps_;
    shortest_s_ = std::min(shortest_s_.load(), report.measured_s);
  }
  void between_steps(const Scheduler&) override { add(looks_); }

  bool wait_for_arrived(int count) { return wait(arrived_, count); }
  bool wait_for_admitted(int count) { return wait(admitted_, count); }
  // Returns when the engine's loop has gone round: a step that could be launched now was.
  void let_launch(ServingEngine& engine) {
    for (int i = 0; i < 2; ++i) {  // between two looks the loop launches what it may
      const int wanted = looks_ + 1;
      engine.request_look();
      ASSERT_TRUE(wait(looks_, wanted));
    }
  }
  int steps() const { return steps_; }
  double shortest_s() const { return shortest_s_; }

 private:
  void add(std::atomic<int>& count) {
    {
      const std::lock_guard lock(mutex_);
      ++count;
    }
    changed_.notify_all();
  }
  bool wait(std::atomic<int>& count, int wanted) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, kPatience, [&] { return count >= wanted; });
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::atomic<int> arrived_ = 0, admitted_ = 0, looks_ = 0, steps_ = 0;
  std::atomic<double> shortest_s_ = 1e9;
};

ServingRequest paced_request(RequestId id, int max_tokens) {
  ServingRequest request;
  request.id = id;
  for (int i = 0; i < 10; ++i) request.prompt.push_back(Token((int(id) * 131 + i * 17) % 400 + 5));
  request.generate.max_tokens = max_tokens;
  request.generate.ignore_end = true;
  return request;
}

// An engine with a pace. Its own part of the bounds: a prompt of ten tokens is one step.
struct PacedServing {
  PacedServing() {
    ServingOptions options;
    options.pace = pace;
    engine.emplace(make_test_runner({}), std::move(options), client.sink(), &observer);
  }
  void submit(RequestId id, int max_tokens) {
    ASSERT_TRUE(engine->submit(paced_request(id, max_tokens)));
  }

  std::shared_ptr<StepPace> pace = std::make_shared<StepPace>();
  PaceObserver observer;
  EngineClient client;
  std::optional<ServingEngine> engine;
};

TEST(PacedEngine, HearsOfEverythingWhileItIsHeld) {
  PacedServing paced;
  paced.pace->hold();
  paced.submit(1, 8);
  paced.submit(2, 8);
  ASSERT_TRUE(paced.observer.wait_for_arrived(2));
  paced.observer.let_launch(*paced.engine);
  EXPECT_EQ(paced.observer.steps(), 0);
  paced.engine->cancel(1);
  paced.client.wait_for_ends(1);
  EXPECT_EQ(paced.client[1].end, EndReason::cancelled);
  EXPECT_TRUE(paced.client[1].tokens.empty());
  paced.pace->go();
  paced.client.wait_for_ends(2);
  EXPECT_EQ(paced.client[2].end, EndReason::length);
  EXPECT_EQ(paced.client[2].tokens.size(), 8u);
  // What waits at a hold ends with the engine.
  paced.pace->hold();
  paced.submit(3, 8);
  ASSERT_TRUE(paced.observer.wait_for_arrived(3));
  paced.engine.reset();
  paced.client.wait_for_ends(3);
  EXPECT_EQ(paced.client[3].end, EndReason::cancelled);
}

TEST(PacedEngine, LaunchesAsManyStepsAsAreAllowed) {
  PacedServing paced;
  paced.pace->hold();
  paced.submit(1, 100);
  paced.pace->allow(3);
  paced.client.wait_for_tokens(1, 3);
  paced.observer.let_launch(*paced.engine);
  EXPECT_EQ(paced.observer.steps(), 3);
  EXPECT_EQ(paced.client[1].tokens.size(), 3u);
  paced.pace->allow(1);
  paced.pace->allow(1);
  paced.client.wait_for_tokens(1, 5);
  paced.observer.let_launch(*paced.engine);
  EXPECT_EQ(paced.observer.steps(), 5);
  paced.engine->cancel(1);
  paced.client.wait_for_ends(1);
  EXPECT_EQ(paced.client[1].tokens.size(), 5u);
}

TEST(PacedEngine, TakesAtLeastTheTimeOfItsPace) {
  PacedServing paced;
  paced.pace->at_least(0.02);
  paced.submit(1, 5);
  paced.client.wait_for_ends(1);
  EXPECT_EQ(paced.observer.steps(), 5);
  EXPECT_GE(paced.observer.shortest_s(), 0.02);
}

TEST(PacedEngine, EndsAStepThatTheWholePaceWouldKeep) {
  PacedServing paced;
  paced.pace->at_least(1e6);
  paced.submit(1, 2);
  ASSERT_TRUE(paced.observer.wait_for_admitted(1));
  paced.pace->go();
  paced.client.wait_for_ends(1);
  EXPECT_EQ(paced.client[1].end, EndReason::length);
  paced.pace->at_least(1e6);
  paced.submit(2, 2);
  ASSERT_TRUE(paced.observer.wait_for_admitted(2));
  paced.engine.reset();
  paced.client.wait_for_ends(2);
  EXPECT_EQ(paced.client[2].end, EndReason::cancelled);
}

TEST(PacedEngine, SharesItsPaceWithOtherReplicas) {
  const auto pace = std::make_shared<StepPace>();
  pace->hold();
  EngineClient client;
  PaceObserver observers[2];
  std::vector<ReplicaGroup::Parts> parts(2);
  for (size_t r = 0; r < 2; ++r) {
    parts[r].runner = make_test_runner({});
    parts[r].options.pace = pace;
    parts[r].observer = &observers[r];
  }
  ReplicaGroup group(std::move(parts), client.sink());
  for (RequestId id = 1; id <= 2; ++id) ASSERT_TRUE(group.submit(paced_request(id, 4)));
  for (PaceObserver& observer : observers) ASSERT_TRUE(observer.wait_for_arrived(1));
  pace->allow(3);
  client.wait_for_all_tokens(3);
  for (size_t r = 0; r < 2; ++r) observers[r].let_launch(group.engine(int(r)));
  EXPECT_EQ(observers[0].steps() + observers[1].steps(), 3);
  pace->go();
  client.wait_for_ends(2);
  EXPECT_EQ(observers[0].steps() + observers[1].steps(), 8);
}

}  // namespace
}  // namespace ridge
