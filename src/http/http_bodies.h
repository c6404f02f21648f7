// The memory that bodies of requests take, in all connections together.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <utility>

namespace ridge {

// Counted where bodies arrive and given back where they are read, on other threads.
class BodyBudget {
 public:
  explicit BodyBudget(size_t bytes) : bytes_(bytes) {}

  bool has(size_t bytes) const { return bytes <= bytes_ - used_; }

 private:
  friend class BodyLease;
  const size_t bytes_;
  std::atomic<size_t> used_ = 0;
  std::atomic<bool> alone_taken_ = false;  // the one place for a body with HttpBodyRule::alone
};

// What one body holds of the budget.
class BodyLease {
 public:
  explicit BodyLease(std::shared_ptr<BodyBudget> budget = nullptr) : budget_(std::move(budget)) {}
  BodyLease(BodyLease&& other) noexcept { *this = std::move(other); }
  BodyLease& operator=(BodyLease&& other) noexcept {
    std::swap(budget_, other.budget_);
    std::swap(bytes_, other.bytes_);
    std::swap(alone_, other.alone_);
    return *this;
  }
  ~BodyLease() { release(); }

  // False where there is no room. The I/O thread alone takes; so the budget is never exceeded.
  bool grow_to(size_t bytes) {
    if (budget_ == nullptr || alone_ || bytes <= bytes_) return true;
    if (!budget_->has(bytes - bytes_)) return false;
    budget_->used_ += bytes - bytes_;
    bytes_ = bytes;
    return true;
  }
  bool take_alone() {
    if (budget_ != nullptr) alone_ = !budget_->alone_taken_.exchange(true);
    return budget_ == nullptr || alone_;
  }
  void release() {
    if (budget_ == nullptr) return;
    budget_->used_ -= std::exchange(bytes_, 0);
    if (std::exchange(alone_, false)) budget_->alone_taken_ = false;
  }

 private:
  std::shared_ptr<BodyBudget> budget_;
  size_t bytes_ = 0;
  bool alone_ = false;
};

}  // namespace ridge
