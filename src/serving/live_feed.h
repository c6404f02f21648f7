// What the engine's thread tells the live stream, at next to no cost: one load of a flag per report
// while nobody listens, else fixed-size records in a ring. No lock, no allocation, no JSON.
//
// Pages and the prefix tree are too large for a record of each step. They are copied between two
// steps when the reader has asked (ServingEngine::request_look), into memory that is the engine's
// until the copy is done and the reader's until it asks again. A profile goes the same way.
#pragma once

#include <array>
#include <atomic>
#include <variant>
#include <vector>

#include "serving/cache_snapshot.h"
#include "serving/observer.h"
#include "serving/record_ring.h"

namespace ridge {

class LiveFeed final : public ServingObserver {
 public:
  static constexpr int kProfileEvery = 64;  // steps

  LiveFeed(int pages, int max_sequences);

  // The engine's thread.
  void on_step(const StepReport& report) override;
  void on_request(const RequestEvent& event) override;
  void between_steps(const Scheduler& scheduler) override;
  bool wants_profile() override;
  void on_profile(const StepProfile& profile) override;

  // The reader's thread: all that follows.

  // From now on reports are recorded, or no longer. What lies in the ring is forgotten.
  void listen(bool on);
  void profile(bool on) { profiling_.store(on, std::memory_order_relaxed); }

  // Calls step(const StepReport&) and request(const RequestEvent&) for what was recorded since the
  // last call, in order. A report's rows are valid during the call.
  template <typename OnStep, typename OnRequest>
  void read(OnStep step, OnRequest request) {
    bool open = false;
    const auto finish = [&] {
      if (!open) return;
      report_.rows = rows_;
      step(static_cast<const StepReport&>(report_));
      open = false;
    };
    ring_.read_all([&](const Record& record) {
      if (const auto* more = std::get_if<RowBlock>(&record)) {
        rows_.insert(rows_.end(), more->rows.begin(), more->rows.begin() + more->count);
        return;
      }
      finish();
      if (const auto* event = std::get_if<RequestEvent>(&record)) return request(*event);
      report_ = std::get<StepReport>(record);
      rows_.clear();
      open = true;
    });
    finish();
  }
  // Steps and events that found no room since the last call.
  int take_dropped_steps() { return dropped_steps_.exchange(0, std::memory_order_relaxed); }
  int take_dropped_events() { return dropped_events_.exchange(0, std::memory_order_relaxed); }

  // Asks for a snapshot, unless one is asked for or lies there unread. True: the engine must be
  // told (request_look).
  bool ask_for_cache(bool with_tree);
  // The snapshot that was asked for; null while it is not there. It is the reader's until
  // release_cache().
  const CacheSnapshot* cache() const;
  bool cache_has_tree() const { return with_tree_; }
  void release_cache() { cache_state_.store(State::free, std::memory_order_release); }

  struct TimedStep {
    ServingClock::time_point began = {};
    double measured_s = 0;
    bool mixed = false;  // with prompt tokens
    std::vector<Sequences> batch;
    std::vector<Profile::Entry> operators;
  };
  // The same for a profile.
  const TimedStep* timed_step() const;
  void release_timed_step() { profile_state_.store(State::free, std::memory_order_release); }

 private:
  // A step is its report and then its rows, in blocks that are about as large as the report.
  struct RowBlock {
    int count = 0;
    std::array<StepRow, 6> rows = {};
  };
  using Record = std::variant<StepReport, RowBlock, RequestEvent>;
  enum class State : uint8_t { free, asked, ready };

  RecordRing<Record> ring_;
  std::atomic<bool> listening_ = false, profiling_ = false;
  std::atomic<int> dropped_steps_ = 0, dropped_events_ = 0;

  std::atomic<State> cache_state_ = State::free;
  bool with_tree_ = false;  // written by the reader while free, read by the engine while asked
  CacheSnapshot cache_;

  std::atomic<State> profile_state_ = State::free;
  int since_profile_ = kProfileEvery;  // the engine's
  TimedStep timed_;

  StepReport report_;  // the reader's, in read()
  std::vector<StepRow> rows_;
};

}  // namespace ridge
