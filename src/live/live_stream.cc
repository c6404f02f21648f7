#include "live/live_stream.h"

#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/json.h"
#include "engine/account/ledger.h"
#include "live/live_json.h"

namespace ridge {
namespace {

using namespace std::chrono_literals;

constexpr auto kLiveTick = 100ms;
constexpr int kPagesEvery = 3, kTreeEvery = 10, kProfileTicks = 10;  // ticks
constexpr int kLoadEvery = 20;                                       // ticks
constexpr auto kHeartbeat = 5s;
constexpr double kMaxBurst = LiveStream::kBytesPerSecond / 2;
constexpr size_t kMostGroups = 8;           // in one message
constexpr size_t kMostPageBytes = 1 << 10;  // of changes in one message
constexpr size_t kMostEvents = 64;          // in one message
constexpr size_t kMostWaitingEvents = 2048;

// The engine's threads go first. Not the lowest priority: a thread that is never run would hold
// locks of the HTTP server for long.
constexpr int kNice = 10;

double group_bytes(const StepGroup& group) { return 340 + 20.0 * double(group.rows.size()); }

}  // namespace

LiveStream::LiveStream(Json about, const std::vector<LiveReplica>& replicas,
                       std::optional<System> system, std::optional<Stack> stack)
    : about_(std::move(about)), system_(std::move(system)), stack_(std::move(stack)) {
  for (const LiveReplica& replica : replicas) {
    sources_.push_back({.feed = replica.feed, .engine = replica.engine, .groups = {}});
  }
  thread_ = std::thread([this] { loop(); });
}

LiveStream::~LiveStream() {
  end();
  thread_.join();
}

bool LiveStream::listen(std::shared_ptr<HttpExchange> exchange, bool profile) {
  const std::lock_guard lock(mutex_);
  if (ended_ || count_ >= kMaxListeners) return false;
  HttpReply head;
  head.type = "text/event-stream";
  head.headers = {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}};
  exchange->begin_stream(std::move(head));
  joining_.push_back({.exchange = std::move(exchange), .profile = profile});
  ++count_;
  wake_.notify_one();
  return true;
}

void LiveStream::end() {
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  wake_.notify_one();
}

void LiveStream::listen_to_all(bool on) {
  for (const Source& source : sources_) source.feed->listen(on);
}

void LiveStream::loop() {
  ::pthread_setname_np(::pthread_self(), kLiveThreadName);
  ::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), kNice);
  bool listening = false;
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      if (listeners_.empty() && joining_.empty() && !ended_ && listening) {
        listen_to_all(listening = false);
        forget();
      }
      if (listeners_.empty()) {
        wake_.wait(lock, [&] { return ended_ || !joining_.empty(); });
      } else {
        wake_.wait_for(lock, kLiveTick, [&] { return ended_; });
      }
      std::move(joining_.begin(), joining_.end(), std::back_inserter(listeners_));
      joining_.clear();
      if (ended_) break;
    }
    if (!listening) {
      listen_to_all(listening = true);
      last_tick_ = ServingClock::now();
      allowance_ = kMaxBurst;
    }
    try {
      tick(ServingClock::now());
    } catch (const std::exception&) {  // no memory for a message: pages lose it, nothing else
      listeners_.clear();
    }
    std::erase_if(listeners_, [](const Listener& each) { return each.exchange->closed(); });
    const std::lock_guard lock(mutex_);
    count_ = listeners_.size() + joining_.size();
  }
  listen_to_all(false);
  for (const Source& source : sources_) source.feed->profile(false);
  for (const Listener& each : listeners_) each.exchange->end();
  listeners_.clear();
}

void LiveStream::tick(ServingClock::time_point now) {
  const double passed = std::chrono::duration<double>(now - last_tick_).count();
  allowance_ = std::min(allowance_ + kBytesPerSecond * passed, kMaxBurst);
  last_tick_ = now;
  ++ticks_;
  for (Listener& each : listeners_) {
    if (each.greeted) continue;
    Json hello = about_;
    hello["now_s"] = std::chrono::duration<double>(now - start_).count();
    each.greeted = write(each, live_event("hello", json_text(hello)));
    if (!known_load_.empty()) write(each, known_load_);
  }
  for (const Source& source : sources_) source.feed->profile(wants_profile());
  collect();
  send_requests();
  send_steps();
  send_cache();
  send_profile();
  send_load();
  for (Listener& each : listeners_) {
    if (now - each.last_write >= kHeartbeat) write(each, ":\n\n");
  }
}

void LiveStream::collect() {
  for (Source& source : sources_) {
    source.feed->read([&](const StepReport& report) { collect_step(source, report); },
                      [this](const RequestEvent& event) {
                        if (requests_.size() < kMostWaitingEvents) {
                          requests_.push_back(event);
                        } else {
                          ++dropped_requests_;
                        }
                      });
    dropped_steps_ += source.feed->take_dropped_steps();
    dropped_requests_ += source.feed->take_dropped_events();
    if (source.engine->failure()) source.running = source.waiting = 0;
  }
}

// Requests that run and wait are told of all replicas together.
void LiveStream::collect_step(Source& source, const StepReport& report) {
  StepGroup& group = source.groups.emplace_back(report);
  pages_changed_ = tree_changed_ = true;
  if (sources_.size() == 1) return;
  group.replica = int(&source - sources_.data());
  source.running = report.running;
  source.waiting = report.waiting;
  group.sum.running = group.sum.waiting = 0;
  for (const Source& each : sources_) {
    group.sum.running += each.running;
    group.sum.waiting += each.waiting;
  }
}

void LiveStream::send_requests() {
  if ((requests_.empty() && dropped_requests_ == 0) || allowance_ <= 0) return;
  const size_t count = std::min(requests_.size(), kMostEvents);
  broadcast(requests_event(std::span(requests_).first(count), std::exchange(dropped_requests_, 0),
                           start_));
  requests_.erase(requests_.begin(), requests_.begin() + long(count));
}

void LiveStream::send_steps() {
  double largest = 1;
  size_t count = 0;
  for (const Source& source : sources_) {
    count += source.groups.size();
    for (const StepGroup& group : source.groups) largest = std::max(largest, group_bytes(group));
  }
  if (count == 0 && dropped_steps_ == 0) return;
  // Something is kept for pages.
  const double share = kBytesPerSecond * std::chrono::duration<double>(kLiveTick).count();
  const double fits =
      std::clamp(0.75 * std::max(share, allowance_) / largest, 1.0, double(kMostGroups));
  for (Source& source : sources_) {
    merge_groups(source.groups, std::max<size_t>(1, size_t(fits) / sources_.size()));
  }
  if (allowance_ <= 0) return;
  std::vector<StepGroup> all;
  for (Source& source : sources_) {
    std::move(source.groups.begin(), source.groups.end(), std::back_inserter(all));
    source.groups.clear();
  }
  broadcast(steps_event(all, std::exchange(dropped_steps_, 0), start_));
}

const CacheSnapshot* LiveStream::whole_cache() {
  if (!cache_asked_) return nullptr;
  if (sources_.size() == 1) return sources_.front().feed->cache();
  joined_ = {};
  for (const Source& source : sources_) {
    const CacheSnapshot* const cache = source.feed->cache();
    if (cache != nullptr) {
      append_cache(*cache, joined_);
      continue;
    }
    if (!source.engine->failure()) return nullptr;
    // It copies no more. Its pages keep their places.
    joined_.pages.resize(joined_.pages.size() + size_t(source.engine->runner().page_count()));
  }
  return &joined_;
}

void LiveStream::release_caches() {
  for (const Source& source : sources_) source.feed->release_cache();
  cache_asked_ = false;
}

// A snapshot that was asked for in one tick is there in the next.
void LiveStream::send_cache() {
  if (const CacheSnapshot* cache = whole_cache()) {
    send_pages(*cache);
    if (sources_.front().feed->cache_has_tree()) send_tree(*cache);
    release_caches();
  }
  const bool somebody_new =
      std::any_of(listeners_.begin(), listeners_.end(),
                  [](const Listener& each) { return !each.has_pages || !each.has_tree; });
  const bool tree = somebody_new || (tree_changed_ && ticks_ >= next_tree_);
  if (!tree && !(pages_changed_ && ticks_ % kPagesEvery == 0)) return;
  if (cache_asked_) return;
  cache_asked_ = true;
  for (const Source& source : sources_) source.feed->ask_for_cache(tree);
  // What changes from here on is not in the snapshot, perhaps.
  pages_changed_ = false;
  if (tree) {
    tree_changed_ = false;
    next_tree_ = ticks_ + kTreeEvery;
  }
  for (const Source& source : sources_) source.engine->request_look();
}

void LiveStream::send_pages(const CacheSnapshot& cache) {
  if (known_pages_.empty()) known_pages_ = cache.pages;
  if (allowance_ > 0) {
    broadcast(pages_event(known_pages_, cache, next_page_, kMostPageBytes), &Listener::has_pages);
  }
  if (known_pages_ != cache.pages) pages_changed_ = true;
  for (Listener& each : listeners_) {
    if (!each.has_pages) each.has_pages = write(each, all_pages_event(known_pages_, cache));
  }
}

void LiveStream::send_tree(const CacheSnapshot& cache) {
  const std::string tree = tree_event(cache.nodes, about_.at("page_tokens").get<int>());
  if (tree != known_tree_ && allowance_ > 0) {
    broadcast(tree, &Listener::has_tree);
    known_tree_ = tree;
  }
  if (tree != known_tree_) tree_changed_ = true;
  for (Listener& each : listeners_) {
    if (!each.has_tree && !known_tree_.empty()) each.has_tree = write(each, known_tree_);
  }
}

void LiveStream::send_profile() {
  for (const Source& source : sources_) {
    const LiveFeed::TimedStep* const step = source.feed->timed_step();
    if (step == nullptr) continue;
    if (wants_profile() && ticks_ % kProfileTicks == 0 && allowance_ > 0 && system_ && stack_) {
      Ledger ledger;
      ledger.record(step->batch, step->measured_s);
      const Runner& runner = source.engine->runner();
      Account account =
          ledger.account(runner.weights().model, runner.plan(), *system_, *stack_, nullptr);
      for (OperatorAccount& op : account.operators) {
        for (const Profile::Entry& entry : step->operators) {
          if (op.name == entry.name) op.measured_s = entry.seconds;
        }
      }
      const std::string event = profile_event(*step, account, start_);
      allowance_ -= double(event.size());
      for (Listener& each : listeners_) {
        if (each.profile) write(each, event);
      }
    } else if (wants_profile()) {
      continue;  // later
    }
    source.feed->release_timed_step();
  }
}

// The first span begins when somebody listens. Ranks are processes of their own, whose time would
// count as others'.
void LiveStream::send_load() {
  if (sources_.front().engine->runner().plan().devices() > 1) return;
  if (!load_) {
    load_.emplace();
    next_load_ = ticks_ + kLoadEvery;
  }
  if (ticks_ < next_load_) return;
  next_load_ = ticks_ + kLoadEvery;
  std::string event = live_event("load", load_json(load_->others()));
  if (event == known_load_) return;
  broadcast(event);
  known_load_ = std::move(event);
}

void LiveStream::broadcast(const std::string& event, bool Listener::*has) {
  if (event.empty()) return;
  allowance_ -= double(event.size());
  for (Listener& each : listeners_) {
    if (has == nullptr || each.*has) write(each, event);
  }
}

// False where the listener is gone or too slow. It is removed at the end of the tick.
bool LiveStream::write(Listener& listener, std::string_view text) const {
  if (!listener.exchange->write(text)) return false;
  listener.last_write = last_tick_;
  return true;
}

bool LiveStream::wants_profile() const {
  return std::any_of(listeners_.begin(), listeners_.end(),
                     [](const Listener& each) { return each.profile; });
}

// Nobody listens any more.
void LiveStream::forget() {
  for (Source& source : sources_) {
    source.feed->profile(false);
    source.groups.clear();
    if (source.feed->timed_step() != nullptr) source.feed->release_timed_step();
  }
  if (whole_cache() != nullptr) release_caches();
  requests_.clear();
  dropped_steps_ = dropped_requests_ = 0;
  known_pages_.clear();
  known_tree_.clear();
  known_load_.clear();
  load_.reset();
  pages_changed_ = tree_changed_ = true;
  next_tree_ = 0;
}

}  // namespace ridge
