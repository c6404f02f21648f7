// Replicas of one model behind one queue of requests (data parallel): engines of this process, each
// with its own runner, scheduler, KV pages and thread, on its own processors. serving/routing.h
// says which takes a request. A request stays where it was sent.
//
// A replica that fails ends its requests with EndReason::failed; the others serve on.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/affinity.h"
#include "serving/serving_engine.h"

namespace ridge {

// While it lives, threads that this one starts use the processors of one replica of several.
// Destroy it on the same thread.
class ReplicaProcessors {
 public:
  ReplicaProcessors(int replica, int replicas);

 private:
  AffinityScope restored_;
};

class ReplicaGroup {
 public:
  struct Parts {
    std::unique_ptr<Runner> runner;
    ServingOptions options;
    ServingObserver* observer = nullptr;  // may be null; outlives the group
  };
  // All of one model, with equal bounds. `outputs` is called as ServingEngine calls it, but from
  // the threads of all replicas, at the same time.
  ReplicaGroup(std::vector<Parts> replicas, const ServingEngine::Outputs& outputs);
  ~ReplicaGroup();

  int size() const;
  ServingEngine& engine(int replica) const;
  int serving() const;  // replicas that have not failed

  // As ServingEngine's; ids are unique in the group. submit() returns false where every queue is
  // full.
  const Runner& runner() const { return engine(0).runner(); }
  int max_context() const { return engine(0).max_context(); }
  RequestId new_id();
  bool submit(ServingRequest request);
  void cancel(RequestId id);
  std::optional<std::string> failure() const;  // of the first replica, once all have failed

 private:
  struct Replica;
  std::vector<size_t> route(std::span<const uint64_t> prefixes) const;

  std::mutex mutex_;  // of routing: indexes, turns
  uint64_t turn_ = 0;
  std::vector<std::unique_ptr<Replica>> replicas_;
};

}  // namespace ridge
