// Ridge's serving engine on a device whose steps take as long as the test says, by a clock that
// only they move, and the diagnosis of its metrics: what `ridge explain` says about
// http://.../metrics.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/random.h"
#include "base/wait_until.h"
#include "diagnose/diagnose.h"
#include "diagnose/readers/metrics_page.h"
#include "diagnose/readers/metrics_window.h"
#include "engine/sampling/logits.h"
#include "serving/metrics.h"
#include "serving/serving_engine.h"

namespace ridge {

inline constexpr int kPacedVocab = 8;  // so small that pairs of tokens recur: there are drafts

// A step takes step_s, and token_s more for every token beyond one of each sequence. The token that
// it draws is never the one that was drafted.
struct Pace {
  double step_s = 2e-3, token_s = 20e-6;
};

// The time of paced engines. A step moves it by what the step takes, and is held where it would
// pass the time up to which the test lets the engine run. So reports do not depend on the machine.
class PacedClock {
 public:
  using time_point = ServingClock::time_point;

  PacedClock() { ServingClock::replace(now); }
  ~PacedClock() { ServingClock::replace(nullptr); }
  PacedClock(const PacedClock&) = delete;
  PacedClock& operator=(const PacedClock&) = delete;

  static time_point now() { return time_point(ServingClock::duration(ticks_.load())); }

  // The engine's thread: a step of so many seconds.
  void step(double seconds) {
    std::unique_lock lock(mutex_);
    wanted_ = now() + std::chrono::duration_cast<ServingClock::duration>(
                          std::chrono::duration<double>(seconds));
    changed_.notify_all();
    changed_.wait(lock, [&] { return *wanted_ <= limit_; });
    ticks_ = wanted_->time_since_epoch().count();
    wanted_.reset();
  }
  // A request is sent: +1, or has ended: -1.
  void count(int requests) {
    const std::lock_guard lock(mutex_);
    requests_ += requests;
    changed_.notify_all();
  }
  // Lets the engine run for so long, and returns when it is held there or has nothing to do.
  void run_for(double seconds) {
    const time_point end = now() + std::chrono::duration_cast<ServingClock::duration>(
                                       std::chrono::duration<double>(seconds));
    run_until(end);
    ticks_ = std::max(ticks_.load(), end.time_since_epoch().count());
  }
  void run_until_idle() { run_until(time_point::max()); }
  void release() {  // from now on nothing holds the engine
    const std::lock_guard lock(mutex_);
    limit_ = time_point::max();
    changed_.notify_all();
  }

 private:
  void run_until(time_point end) {
    std::unique_lock lock(mutex_);
    limit_ = end;
    changed_.notify_all();
    EXPECT_TRUE(changed_.wait_for(
        lock, kPatience, [&] { return requests_ == 0 || (wanted_ && *wanted_ > limit_); }));
    limit_ = now();
  }

  static inline std::atomic<ServingClock::duration::rep> ticks_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  time_point limit_ = now();
  std::optional<time_point> wanted_;  // the end of the step that is held
  int requests_ = 0;
};

class PacedRunner final : public Runner {
 public:
  PacedRunner(const RunnerOptions& options, Pace pace, PacedClock& clock)
      : options_(options), pace_(pace), clock_(&clock) {
    weights_.architecture.vocab = kPacedVocab;
  }

  const Weights& weights() const override { return weights_; }
  const RunnerOptions& options() const override { return options_; }
  void run(std::span<const Slice> batch) override {
    check_step(batch, options_, kPacedVocab);
    logits_.clear();
    size_t extra = 0;
    for (const Slice& slice : batch) {
      extra += slice.tokens.size() - 1;
      for (size_t i = slice.tokens.size() - size_t(slice.logits); i < slice.tokens.size(); ++i) {
        const uint64_t position = uint64_t(slice.past) + i;
        auto next = Token(splitmix64(position * kPacedVocab + uint64_t(slice.tokens[i])) %
                          uint64_t(kPacedVocab));
        if (i + 1 < slice.tokens.size() && next == slice.tokens[i + 1]) {
          next = (next + 1) % kPacedVocab;
        }
        logits_.resize(logits_.size() + kPacedVocab, 0);
        logits_[logits_.size() - kPacedVocab + size_t(next)] = 9;
      }
    }
    clock_->step(pace_.step_s + pace_.token_s * double(extra));
  }
  std::span<const float> logits() override { return logits_; }
  void sample(std::span<const TopLogitsRequest> requests) override {
    top_.resize(requests.size());
    for (size_t row = 0; row < requests.size(); ++row) {
      find_top_logits(std::span(logits_).subspan(row * kPacedVocab, kPacedVocab), requests[row],
                      top_[row]);
    }
  }
  std::span<const TopLogits> fetch() override { return top_; }
  void copy_pages(std::span<const PageCopy>) override {}
  void set_profile(Profile*) override {}
  void fill_cache(uint64_t) override {}
  std::string device() const override { return "a paced device"; }
  double repacked_bytes() const override { return 0; }
  Plan plan() const override { return {}; }

 private:
  RunnerOptions options_;
  Pace pace_;
  PacedClock* clock_;
  Weights weights_;
  std::vector<float> logits_;
  std::vector<TopLogits> top_;
};

// Clients of prompt and output tokens; each sends its next request when it has its answer.
struct Clients {
  int count = 1, prompt = 64, output = 32;
};

class PacedEndpoint {
 public:
  struct Options {
    RunnerOptions runner{.cache_tokens = 1 << 17, .max_sequences = 64};
    Pace pace = {};
    int drafts = 0;
    std::string model = "";  // that the metrics name
  };

  explicit PacedEndpoint(const Options& options)
      : metrics_({.model_name = "served",
                  .page_tokens = options.runner.page_tokens,
                  .pages = options.runner.cache_tokens / options.runner.page_tokens,
                  .max_context = options.runner.cache_tokens,
                  .max_sequences = options.runner.max_sequences,
                  .model = options.model}),
        engine_(
            std::make_unique<PacedRunner>(options.runner, options.pace, clock_),
            serving_options(options), [this](auto&& outputs) { answer(outputs); }, &metrics_) {}
  ~PacedEndpoint() {
    stopping_ = true;
    clock_.release();
  }

  void start(const Clients& clients) {
    for (int i = 0; i < clients.count; ++i) send(clients, true);
  }
  void send(const Clients& kind, bool again = false) {
    ServingRequest request;
    request.id = engine_.new_id();
    uint64_t state = splitmix64(request.id);
    for (int i = 0; i < kind.prompt; ++i) {
      request.prompt.push_back(Token((state = splitmix64(state)) % uint64_t(kPacedVocab)));
    }
    request.generate.max_tokens = kind.output;
    request.generate.ignore_end = true;
    request.generate.sampler.temperature = 0;
    if (again) {
      const std::lock_guard lock(mutex_);
      sent_[request.id] = kind;
    }
    clock_.count(+1);
    EXPECT_TRUE(engine_.submit(std::move(request)));
  }
  void run_for(double seconds) { clock_.run_for(seconds); }
  void stop_and_wait() {
    stopping_ = true;
    clock_.run_until_idle();
  }

  int ended() const { return ended_; }  // requests

  // The text that GET /metrics answers with, now.
  MetricsPage scrape() const {
    MetricsPage page = parse_metrics(metrics_.text(), "http://127.0.0.1:8000/metrics").front();
    page.time_s = std::chrono::duration<double>(PacedClock::now().time_since_epoch()).count();
    return page;
  }

 private:
  static ServingOptions serving_options(const Options& options) {
    ServingOptions to;
    to.max_drafts = options.drafts;
    to.max_waiting = 1 << 16;
    return to;
  }
  void answer(const std::vector<RequestOutput>& outputs) {
    for (const RequestOutput& output : outputs) {
      if (!output.end) continue;
      if (output.end == EndReason::length) {
        ++ended_;
        send_again(output.id);
      }
      clock_.count(-1);
    }
  }
  void send_again(RequestId id) {
    if (stopping_) return;
    std::unique_lock lock(mutex_);
    const auto found = sent_.find(id);
    if (found == sent_.end()) return;
    const Clients kind = found->second;
    sent_.erase(found);
    lock.unlock();
    send(kind, true);
  }

  std::atomic<bool> stopping_ = false;
  std::atomic<int> ended_ = 0;
  std::mutex mutex_;
  std::map<RequestId, Clients> sent_;
  PacedClock clock_;
  ServingMetrics metrics_;
  ServingEngine engine_;  // last: its thread uses everything above
};

// From the pages alone; `machine` empty: not known.
inline Diagnosis diagnosed(const std::vector<MetricsPage>& pages, const std::string& machine = "") {
  Evidence evidence;
  evidence.files = observe_metrics(pages, 0);
  Observations seen = combine(std::move(evidence));
  RequestOptions options;
  options.model = options.machine = kAuto;
  if (!machine.empty()) options.machine = machine;
  Identified identified = identify(options, seen);
  return diagnose(std::move(seen), std::move(identified));
}

// All that a failed expectation needs.
inline std::string account(const Diagnosis& d) {
  std::string text = d.sentence + "\n";
  for (const Finding& f : d.findings) {
    text += (f.bearing == Bearing::supports ? "+ " : "- ") + f.text + "\n";
  }
  for (const QuantityInfo& about : all_quantities()) {
    if (!d.seen.has(about.quantity)) continue;
    text += std::string(about.name) + " " +
            pretty_quantity(about.quantity, *d.seen[about.quantity]) + "\n";
  }
  if (d.runner_up) text += "runner-up " + std::string(verdict_name(*d.runner_up)) + "\n";
  return text;
}

}  // namespace ridge
