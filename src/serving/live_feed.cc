#include "serving/live_feed.h"

#include <algorithm>

#include "serving/scheduler.h"

namespace ridge {
namespace {

// The reader comes every 100 ms. A small model takes 5000 steps a second, each of two records or
// more, and the reader may be late: it has a low priority.
constexpr size_t kRecords = 8192;
constexpr size_t kOperators = 64;  // names of a step's operators; lower() has fewer

}  // namespace

LiveFeed::LiveFeed(int pages, int max_sequences) : ring_(kRecords) {
  cache_.pages.reserve(size_t(pages));
  cache_.nodes.reserve(2 * size_t(pages));  // every root has a page below it
  timed_.batch.reserve(size_t(max_sequences) + 1);
  timed_.operators.reserve(kOperators);
  rows_.reserve(size_t(max_sequences));
}

void LiveFeed::on_step(const StepReport& report) {
  if (!listening_.load(std::memory_order_acquire)) return;
  constexpr size_t kEach = std::tuple_size_v<decltype(RowBlock::rows)>;
  const std::span<const StepRow> rows = report.rows;
  const bool written =
      ring_.write(1 + (rows.size() + kEach - 1) / kEach, [&](size_t i, Record& to) {
        if (i == 0) {
          to = report;
          return;
        }
        const auto part =
            rows.subspan((i - 1) * kEach, std::min(kEach, rows.size() - (i - 1) * kEach));
        RowBlock& block = to.emplace<RowBlock>();
        block.count = int(part.size());
        std::copy(part.begin(), part.end(), block.rows.begin());
      });
  if (!written && report.measured_s > 0) dropped_steps_.fetch_add(1, std::memory_order_relaxed);
}

void LiveFeed::on_request(const RequestEvent& event) {
  if (!listening_.load(std::memory_order_acquire)) return;
  const bool written = ring_.write(1, [&](size_t, Record& to) { to = event; });
  if (!written) dropped_events_.fetch_add(1, std::memory_order_relaxed);
}

void LiveFeed::between_steps(const Scheduler& scheduler) {
  if (cache_state_.load(std::memory_order_acquire) != State::asked) return;
  scheduler.copy_pages_to(cache_);
  if (with_tree_) scheduler.copy_tree_to(cache_);
  cache_state_.store(State::ready, std::memory_order_release);
}

bool LiveFeed::wants_profile() {
  if (!profiling_.load(std::memory_order_relaxed)) return false;
  if (++since_profile_ < kProfileEvery) return false;
  if (profile_state_.load(std::memory_order_acquire) != State::free) return false;
  since_profile_ = 0;
  return true;
}

void LiveFeed::on_profile(const StepProfile& profile) {
  // Of two steps in flight both may have been asked for: the second finds the first still there.
  if (profile_state_.load(std::memory_order_acquire) != State::free) return;
  // Steps of prompts alone say little about the next: then the next step is timed.
  if (profile.decode_sequences == 0 || profile.operators.size() > kOperators) {
    since_profile_ = kProfileEvery;
    return;
  }
  timed_.began = profile.began;
  timed_.measured_s = profile.measured_s;
  timed_.mixed = profile.prefill_sequences > 0;
  timed_.batch.assign(profile.batch.begin(), profile.batch.end());
  timed_.operators.assign(profile.operators.begin(), profile.operators.end());
  profile_state_.store(State::ready, std::memory_order_release);
}

void LiveFeed::listen(bool on) {
  if (!on) listening_.store(false, std::memory_order_release);
  read([](const StepReport&) {}, [](const RequestEvent&) {});
  take_dropped_steps();
  take_dropped_events();
  if (on) listening_.store(true, std::memory_order_release);
}

bool LiveFeed::ask_for_cache(bool with_tree) {
  if (cache_state_.load(std::memory_order_acquire) != State::free) return false;
  with_tree_ = with_tree;
  cache_state_.store(State::asked, std::memory_order_release);
  return true;
}

const CacheSnapshot* LiveFeed::cache() const {
  return cache_state_.load(std::memory_order_acquire) == State::ready ? &cache_ : nullptr;
}

const LiveFeed::TimedStep* LiveFeed::timed_step() const {
  return profile_state_.load(std::memory_order_acquire) == State::ready ? &timed_ : nullptr;
}

}  // namespace ridge
