// GET /api/live: what the engine does, as server-sent events (docs/page.md, "The live stream").
//
// One thread of low priority reads the feed ten times a second while somebody listens, writes the
// JSON once and gives it to all. Listeners share a rate of bytes: when it is used up, steps are
// merged and the rest waits. Writing to a listener never waits (HttpExchange::write).
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/json.h"
#include "http/http.h"
#include "live/live_steps.h"
#include "live/machine_load.h"
#include "machine/machine.h"
#include "roofline/stack.h"
#include "serving/live_feed.h"
#include "serving/serving_engine.h"

namespace ridge {

inline constexpr const char* kLiveThreadName = "ridge-live";  // of the thread, for top and perf

// A replica, and what observes it.
struct LiveReplica {
  LiveFeed* feed;
  ServingEngine* engine;
};

class LiveStream {
 public:
  static constexpr size_t kMaxListeners = 4;
  static constexpr double kBytesPerSecond = 16 << 10;

  // `about` is what /api/serving says. `system` and `stack` are what the engines' predictions
  // assume. Feeds and engines must outlive this.
  LiveStream(Json about, const std::vector<LiveReplica>& replicas, std::optional<System> system,
             std::optional<Stack> stack);
  ~LiveStream();  // ends the streams
  LiveStream(const LiveStream&) = delete;
  LiveStream& operator=(const LiveStream&) = delete;

  const Json& about() const { return about_; }

  // From any thread. False where there are kMaxListeners already, or after end(): then the exchange
  // is not answered.
  bool listen(std::shared_ptr<HttpExchange> exchange, bool profile);
  void end();  // ends the streams, for good

 private:
  struct Listener {
    std::shared_ptr<HttpExchange> exchange;
    bool profile = false;
    bool greeted = false, has_pages = false, has_tree = false;
    ServingClock::time_point last_write = {};
  };

  // A replica as the thread sees it.
  struct Source {
    LiveFeed* feed;
    ServingEngine* engine;
    std::vector<StepGroup> groups;
    int running = 0, waiting = 0;  // after its last step
  };

  void loop();
  void listen_to_all(bool on);
  void tick(ServingClock::time_point now);
  void collect();
  void collect_step(Source& source, const StepReport& report);
  void send_requests();
  void send_steps();
  void send_cache();
  const CacheSnapshot* whole_cache();  // null: not all replicas have copied theirs
  void release_caches();
  void send_pages(const CacheSnapshot& cache);
  void send_tree(const CacheSnapshot& cache);
  void send_profile();
  void send_load();
  // To all, or to those that have the message that changes refer to.
  void broadcast(const std::string& event, bool Listener::*has = nullptr);
  bool write(Listener& listener, std::string_view text) const;
  bool wants_profile() const;
  void forget();

  const Json about_;
  const std::optional<System> system_;
  const std::optional<Stack> stack_;
  const ServingClock::time_point start_ = ServingClock::now();

  std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<Listener> joining_;  // accepted, not yet seen by the thread
  size_t count_ = 0;               // listeners, joining ones included
  bool ended_ = false;

  // The thread's.
  std::vector<Source> sources_;
  std::vector<Listener> listeners_;
  double allowance_ = 0;  // bytes that may be sent now; below 0 after a long message
  ServingClock::time_point last_tick_ = {};
  std::vector<RequestEvent> requests_;
  int dropped_steps_ = 0, dropped_requests_ = 0;
  bool cache_asked_ = false;  // of all feeds: they are asked and released together
  bool pages_changed_ = true, tree_changed_ = true;  // since the last snapshot, perhaps
  int64_t ticks_ = 0, next_tree_ = 0, next_load_ = 0;
  std::vector<CacheSnapshot::Page> known_pages_;  // what listeners know
  size_t next_page_ = 0;                          // where the next changes begin
  CacheSnapshot joined_;                          // of several replicas
  std::string known_tree_, known_load_;
  std::optional<MachineLoad> load_;  // while somebody listens

  std::thread thread_;  // last: it uses everything above
};

}  // namespace ridge
