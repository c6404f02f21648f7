// Replicas of a model behind one queue: the answers of one replica, and where requests go.
#include "serving/replicas.h"

#include <gtest/gtest.h>

#include <atomic>
#include <set>

#include "base/error.h"
#include "base/wait_until.h"
#include "serving/engine_support.h"

namespace ridge {
namespace {

// Which replica a request arrived at.
class ArrivalObserver final : public ServingObserver {
 public:
  void on_request(const RequestEvent& event) override {
    if (event.stage != RequestEvent::Stage::arrived) return;
    const std::lock_guard lock(mutex_);
    ids_.insert(event.id);
  }
  bool has(RequestId id) const {
    const std::lock_guard lock(mutex_);
    return ids_.contains(id);
  }
  size_t count() const {
    const std::lock_guard lock(mutex_);
    return ids_.size();
  }

 private:
  mutable std::mutex mutex_;
  std::set<RequestId> ids_;
};

struct GroupOfReplicas {
  explicit GroupOfReplicas(size_t count, const EngineBounds& bounds = {}, int max_waiting = 1024)
      : arrivals(count), broken(count) {
    std::vector<ReplicaGroup::Parts> parts(count);
    for (size_t r = 0; r < count; ++r) {
      parts[r].runner = make_test_runner(bounds);
      parts[r].options.max_waiting = max_waiting;
      parts[r].options.pace = paces.emplace_back(std::make_shared<StepPace>());
      parts[r].options.lost = [this, r] { return broken[r] ? "rank 1 was killed" : ""; };
      parts[r].observer = &arrivals[r];
    }
    group.emplace(std::move(parts), client.sink());
  }
  // While the replicas are held, none finishes a request: where requests go depends on them alone.
  void hold() {
    for (const auto& pace : paces) pace->hold();
  }
  void go() {
    for (const auto& pace : paces) pace->go();
  }
  int replica_of(RequestId id) const {
    for (size_t r = 0; r < arrivals.size(); ++r) {
      if (arrivals[r].has(id)) return int(r);
    }
    return -1;
  }
  // Submits it and waits for its end.
  EngineAnswer& answer(ServingRequest request) {
    const RequestId id = request.id = group->new_id();
    EXPECT_TRUE(group->submit(std::move(request)));
    client.wait_for_ends(++sent);
    last = id;
    return client[id];
  }

  EngineClient client;
  std::vector<std::shared_ptr<StepPace>> paces;
  std::vector<ArrivalObserver> arrivals;
  std::vector<std::atomic<bool>> broken;
  std::optional<ReplicaGroup> group;
  int sent = 0;
  RequestId last = 0;
};

ServingRequest request_of(size_t seed, int prompt_tokens, int max_tokens) {
  ServingRequest request;
  for (int i = 0; i < prompt_tokens; ++i) {
    request.prompt.push_back(Token((seed * 131 + size_t(i) * 17) % 400 + 5));
  }
  request.generate.max_tokens = max_tokens;
  request.generate.ignore_end = true;
  return request;
}

TEST(Replicas, AnswerAsOneDoes) {
  GroupOfReplicas replicas(3);
  replicas.hold();
  std::vector<ServingRequest> requests;
  for (size_t i = 0; i < 24; ++i) {
    ServingRequest request = request_of(i % 9, 20 + int(i), 12);
    request.generate.sampler.temperature = i % 2 == 0 ? 0.0f : 1.0f;
    request.generate.sampler.seed = i;
    request.id = replicas.group->new_id();
    requests.push_back(request);
    ASSERT_TRUE(replicas.group->submit(std::move(request)));
  }
  replicas.go();
  replicas.client.wait_for_ends(24);
  const std::unique_ptr<Runner> alone = make_test_runner({});
  for (const ServingRequest& request : requests) {
    expect_equal(replicas.client[request.id], answer_alone(*alone, request), request.id);
  }
  // Sent at once, they went to all three.
  for (const ArrivalObserver& observer : replicas.arrivals) EXPECT_GE(observer.count(), 4u);
}

TEST(Replicas, KeepAConversationTogether) {
  GroupOfReplicas replicas(3);
  std::vector<std::vector<Token>> said;
  std::vector<int> home;
  for (size_t c = 0; c < 6; ++c) {
    ServingRequest request = request_of(c, 40, 8);
    said.push_back(request.prompt);
    const EngineAnswer& answer = replicas.answer(std::move(request));
    said.back().insert(said.back().end(), answer.tokens.begin(), answer.tokens.end());
    home.push_back(replicas.replica_of(replicas.last));
  }
  // One after the other, each conversation found an idle group: they take turns.
  EXPECT_EQ(home, (std::vector<int>{0, 1, 2, 0, 1, 2}));
  for (int turn = 0; turn < 3; ++turn) {
    for (size_t c = 0; c < 6; ++c) {
      ServingRequest request = request_of(100 + c, 10, 8);
      request.prompt.insert(request.prompt.begin(), said[c].begin(), said[c].end());
      said[c] = request.prompt;
      const EngineAnswer& answer = replicas.answer(std::move(request));
      EXPECT_EQ(replicas.replica_of(replicas.last), home[c]) << "conversation " << c;
      EXPECT_GE(answer.cached, 32);
      said[c].insert(said[c].end(), answer.tokens.begin(), answer.tokens.end());
    }
  }
}

TEST(Replicas, LeaveABusyOneDespiteItsCache) {
  GroupOfReplicas replicas(2);
  replicas.answer(request_of(1, 40, 1));
  ASSERT_EQ(replicas.replica_of(replicas.last), 0);
  replicas.hold();
  std::vector<RequestId> ids;
  for (int i = 0; i < 6; ++i) {  // the same prompt: five fit the rule, the sixth goes elsewhere
    ServingRequest request = request_of(1, 40, 400);
    ids.push_back(request.id = replicas.group->new_id());
    ASSERT_TRUE(replicas.group->submit(std::move(request)));
  }
  replicas.go();
  for (const RequestId id : ids) replicas.client.wait_for_tokens(id, 1);
  for (size_t i = 0; i < 5; ++i) EXPECT_EQ(replicas.replica_of(ids[i]), 0);
  EXPECT_EQ(replicas.replica_of(ids[5]), 1);
  for (const RequestId id : ids) replicas.group->cancel(id);
  replicas.client.wait_for_ends(7);
}

TEST(Replicas, RefuseWhereEveryQueueIsFull) {
  GroupOfReplicas replicas(2, {.max_sequences = 1}, 1);
  std::vector<RequestId> ids;
  const auto submit_eight = [&] {
    int refused = 0;
    for (int i = 0; i < 8; ++i) {
      ServingRequest request = request_of(size_t(i), 20, 900);
      const RequestId id = request.id = replicas.group->new_id();
      if (replicas.group->submit(std::move(request))) {
        ids.push_back(id);
      } else {
        ++refused;
      }
    }
    return refused;
  };
  replicas.hold();
  EXPECT_EQ(submit_eight(), 6);  // none runs yet: one waits at each replica
  for (const auto& pace : replicas.paces) pace->allow(1);
  for (const RequestId id : ids) replicas.client.wait_for_tokens(id, 1);
  EXPECT_EQ(submit_eight(), 6);  // one runs and one waits at each
  EXPECT_EQ(ids.size(), 4u);
  for (const RequestId id : ids) replicas.group->cancel(id);
  replicas.client.wait_for_ends(int(ids.size()));
  EXPECT_THROW(replicas.group->submit(request_of(1, 0, 4)), OptionError);
}

TEST(Replicas, ServeOnWithoutOneThatFailed) {
  GroupOfReplicas replicas(2);
  const std::vector<Token> wanted = replicas.answer(request_of(1, 40, 8)).tokens;
  ASSERT_EQ(replicas.replica_of(replicas.last), 0);
  replicas.broken[0] = true;  // an idle engine looks ten times a second
  EXPECT_TRUE(wait_until("one replica is left", [&] { return replicas.group->serving() == 1; }));
  EXPECT_EQ(replicas.group->failure(), std::nullopt);
  EXPECT_EQ(replicas.answer(request_of(1, 40, 8)).tokens, wanted);
  EXPECT_EQ(replicas.replica_of(replicas.last), 1);
  replicas.broken[1] = true;
  EXPECT_TRUE(wait_until("no replica is left", [&] { return replicas.group->failure(); }));
  EXPECT_EQ(replicas.group->failure(), "rank 1 was killed");
  EXPECT_THROW(replicas.group->submit(request_of(1, 40, 8)), Error);
}

}  // namespace
}  // namespace ridge
