// Where other threads leave what the engine's thread is to do, and what they may know of it.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "serving/active_requests.h"
#include "serving/request.h"

namespace ridge {

class EngineInbox {
 public:
  struct Events {
    std::vector<std::unique_ptr<ActiveRequest>> arrived;
    std::vector<RequestId> cancelled;
    bool look = false;  // the observer wants between_steps()
  };

  explicit EngineInbox(int max_waiting) : max_waiting_(max_waiting) {}

  // Any thread.
  // False where max_waiting requests wait. Throws Error where the engine has failed.
  bool submit(std::unique_ptr<ActiveRequest> request);
  void cancel(RequestId id);
  void request_look();
  void stop();
  void wake();  // has the engine's thread look at what its wait ends with
  bool idle() const { return !working_.load(std::memory_order_relaxed); }
  std::optional<std::string> failure() const;
  int max_waiting() const { return max_waiting_; }

  // The engine's thread.
  bool empty() const;  // nothing has come but perhaps the end
  // Waits until something has come, the end included. `lost` (may be empty) is called every 100 ms
  // meanwhile and says why the engine cannot go on, upon which this throws Error: a rank that ends
  // while nothing runs would otherwise be noticed by the next request only.
  // `until` (may be empty) ends the wait too, where it is true now or when wake() is called.
  void wait(const std::function<std::string()>& lost, const std::function<bool()>& until = {});
  // Waits until `at`, or until the engine ends or `until` is true, now or when wake() is called.
  void wait_until(std::chrono::steady_clock::time_point at, const std::function<bool()>& until);
  // False, and takes nothing, where the engine ends. What arrived counts as waiting until
  // set_load() says what became of it.
  bool take(Events& to);
  std::vector<std::unique_ptr<ActiveRequest>> take_arrivals();
  // After each step: requests in the scheduler's queue, and whether any request waits or runs.
  void set_load(int waiting, bool working);
  void fail(const std::string& error);  // no request is taken from now on

 private:
  bool has_events() const { return !arrivals_.empty() || !cancels_.empty() || look_; }

  const int max_waiting_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<std::unique_ptr<ActiveRequest>> arrivals_;
  std::vector<RequestId> cancels_;
  bool look_ = false, stopping_ = false;
  std::optional<std::string> failed_;
  int waiting_ = 0;  // in the scheduler's queue, or on the way to it
  std::atomic<bool> working_ = false;
};

}  // namespace ridge
