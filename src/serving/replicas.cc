#include "serving/replicas.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "base/error.h"
#include "ranks/rank_processes.h"
#include "serving/prefix_index.h"
#include "serving/routing.h"

namespace ridge {

ReplicaProcessors::ReplicaProcessors(int replica, int replicas) {
  if (replicas > 1) use_own_processors(replica, replicas);
}

struct ReplicaGroup::Replica {
  Replica(Parts parts, const ServingEngine::Outputs& outputs)
      : index(parts.options.prefix_cache ? parts.runner->page_count() : 0),
        engine(
            std::move(parts.runner), std::move(parts.options),
            [this, outputs](std::vector<RequestOutput>&& made) {
              requests -= int(std::count_if(made.begin(), made.end(), [](const RequestOutput& o) {
                return o.end.has_value();
              }));
              outputs(std::move(made));
            },
            parts.observer) {}

  PrefixIndex index;
  uint64_t last_chosen = 0;
  std::atomic<int> requests = 0;
  ServingEngine engine;  // last: its thread uses `requests`
};

ReplicaGroup::ReplicaGroup(std::vector<Parts> replicas, const ServingEngine::Outputs& outputs) {
  for (size_t r = 0; r < replicas.size(); ++r) {
    const ReplicaProcessors own(int(r), int(replicas.size()));
    replicas_.push_back(std::make_unique<Replica>(std::move(replicas[r]), outputs));
  }
}
ReplicaGroup::~ReplicaGroup() = default;

int ReplicaGroup::size() const { return int(replicas_.size()); }
ServingEngine& ReplicaGroup::engine(int replica) const {
  return replicas_[size_t(replica)]->engine;
}
int ReplicaGroup::serving() const {
  return int(std::count_if(replicas_.begin(), replicas_.end(), [](const auto& replica) {
    return !replica->engine.failure().has_value();
  }));
}

RequestId ReplicaGroup::new_id() { return engine(0).new_id(); }

std::vector<size_t> ReplicaGroup::route(std::span<const uint64_t> prefixes) const {
  std::vector<ReplicaState> states;
  const int page_tokens = runner().options().page_tokens;
  for (const auto& replica : replicas_) {
    states.push_back({.serves = !replica->engine.failure(),
                      .requests = replica->requests,
                      .cached_tokens = page_tokens * replica->index.match(prefixes),
                      .last_chosen = replica->last_chosen});
  }
  return route_request(states);
}

bool ReplicaGroup::submit(ServingRequest request) {
  if (replicas_.size() == 1) return engine(0).submit(std::move(request));
  const std::vector<uint64_t> prefixes =
      hash_prefixes(request.cache_salt, request.prompt, runner().options().page_tokens);
  const std::lock_guard lock(mutex_);
  bool full = false;
  for (const size_t r : route(prefixes)) {
    Replica& replica = *replicas_[r];
    try {
      if (!replica.engine.submit(request)) {
        full = true;
        continue;
      }
    } catch (const Error&) {
      if (!replica.engine.failure()) throw;
      continue;  // it has failed since it was looked at
    }
    ++replica.requests;  // its end may have been counted already
    replica.index.add(prefixes);
    replica.last_chosen = ++turn_;
    return true;
  }
  if (!full) throw Error("the engine has stopped: {}", failure().value_or("every replica failed"));
  return false;
}

void ReplicaGroup::cancel(RequestId id) {
  for (const auto& replica : replicas_) replica->engine.cancel(id);  // the others do not know it
}

std::optional<std::string> ReplicaGroup::failure() const {
  std::optional<std::string> first;
  for (const auto& replica : replicas_) {
    const std::optional<std::string> why = replica->engine.failure();
    if (!why) return std::nullopt;
    if (!first) first = why;
  }
  return first;
}

}  // namespace ridge
