#include "serving/engine_inbox.h"

#include <utility>

#include "base/error.h"

namespace ridge {

bool EngineInbox::submit(std::unique_ptr<ActiveRequest> request) {
  {
    const std::lock_guard lock(mutex_);
    if (failed_) throw Error("the engine has stopped: {}", *failed_);
    if (waiting_ + int(arrivals_.size()) >= max_waiting_) return false;
    arrivals_.push_back(std::move(request));
    working_.store(true, std::memory_order_relaxed);
  }
  wake_.notify_one();
  return true;
}

void EngineInbox::cancel(RequestId id) {
  {
    const std::lock_guard lock(mutex_);
    if (failed_) return;  // nobody would take it from the list
    cancels_.push_back(id);
  }
  wake_.notify_one();
}

void EngineInbox::request_look() {
  {
    const std::lock_guard lock(mutex_);
    look_ = true;
  }
  wake_.notify_one();
}

void EngineInbox::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_one();
}

void EngineInbox::wake() {
  const std::lock_guard lock(mutex_);  // the engine's thread has looked and waits, or will look
  wake_.notify_one();
}

std::optional<std::string> EngineInbox::failure() const {
  const std::lock_guard lock(mutex_);
  return failed_;
}

bool EngineInbox::empty() const {
  const std::lock_guard lock(mutex_);
  return !has_events();
}

void EngineInbox::wait(const std::function<std::string()>& lost,
                       const std::function<bool()>& until) {
  std::unique_lock lock(mutex_);
  const auto woken = [&] { return stopping_ || has_events() || (until && until()); };
  if (!lost) return wake_.wait(lock, woken);
  while (!wake_.wait_for(lock, std::chrono::milliseconds(100), woken)) {
    if (const std::string why = lost(); !why.empty()) throw Error(why);
  }
}

void EngineInbox::wait_until(std::chrono::steady_clock::time_point at,
                             const std::function<bool()>& until) {
  std::unique_lock lock(mutex_);
  wake_.wait_until(lock, at, [&] { return stopping_ || until(); });
}

bool EngineInbox::take(Events& to) {
  const std::lock_guard lock(mutex_);
  if (stopping_) return false;
  to.arrived = std::exchange(arrivals_, {});
  waiting_ += int(to.arrived.size());
  to.cancelled = std::exchange(cancels_, {});
  to.look = std::exchange(look_, false);
  return true;
}

std::vector<std::unique_ptr<ActiveRequest>> EngineInbox::take_arrivals() {
  const std::lock_guard lock(mutex_);
  return std::exchange(arrivals_, {});
}

void EngineInbox::set_load(int waiting, bool working) {
  const std::lock_guard lock(mutex_);
  waiting_ = waiting;
  working_.store(working || !arrivals_.empty(), std::memory_order_relaxed);
}

void EngineInbox::fail(const std::string& error) {
  const std::lock_guard lock(mutex_);
  failed_ = error;
}

}  // namespace ridge
