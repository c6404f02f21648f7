#include "serving/step_pace.h"

#include <algorithm>
#include <utility>

namespace ridge {

void StepPace::set_left(int64_t left) {
  left_.store(left);
  for (const auto& [key, changed] : watches_) changed();
}

void StepPace::hold() {
  const std::lock_guard lock(mutex_);
  ++limits_;
  set_left(0);
}

void StepPace::go() {
  const std::lock_guard lock(mutex_);
  least_s_.store(0);
  set_left(kNoLimit);
}

void StepPace::allow(int steps) {
  const std::lock_guard lock(mutex_);
  if (left_.load() == kNoLimit) ++limits_;
  set_left(std::max<int64_t>(0, left_.load()) + steps);
}

void StepPace::at_least(double s) {
  const std::lock_guard lock(mutex_);
  least_s_.store(s);
  set_left(left_.load());
}

std::optional<StepPace::Permit> StepPace::take() {
  const std::lock_guard lock(mutex_);
  const int64_t left = left_.load();
  if (left == 0) return std::nullopt;
  if (left != kNoLimit) left_.store(left - 1);
  return Permit{limits_};
}

// A permit from before a limit is none of the steps that the limit allows.
void StepPace::give_back(Permit permit) {
  const std::lock_guard lock(mutex_);
  const int64_t left = left_.load();
  if (permit.limits == limits_ && left != kNoLimit) set_left(left + 1);
}

StepPace::Watch::Watch(StepPace& pace, std::function<void()> changed) : pace_(&pace) {
  const std::lock_guard lock(pace.mutex_);
  key_ = ++pace.last_key_;
  pace.watches_.emplace(key_, std::move(changed));
}

StepPace::Watch::~Watch() {
  const std::lock_guard lock(pace_->mutex_);
  pace_->watches_.erase(key_);
}

}  // namespace ridge
