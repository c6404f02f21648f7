// Several observers of one engine.
#pragma once

#include <utility>
#include <vector>

#include "serving/observer.h"

namespace ridge {

// Calls each of `observers`, which must outlive it, in their order.
class ServingObservers final : public ServingObserver {
 public:
  explicit ServingObservers(std::vector<ServingObserver*> observers)
      : observers_(std::move(observers)) {}

  void on_step(const StepReport& report) override {
    for (ServingObserver* each : observers_) each->on_step(report);
  }
  void on_tokens(int tokens, double seconds) override {
    for (ServingObserver* each : observers_) each->on_tokens(tokens, seconds);
  }
  void on_first_token(double seconds) override {
    for (ServingObserver* each : observers_) each->on_first_token(seconds);
  }
  void on_prefix_lookup(int prompt_tokens, int cached_tokens) override {
    for (ServingObserver* each : observers_) each->on_prefix_lookup(prompt_tokens, cached_tokens);
  }
  void on_finished(const RequestReport& report) override {
    for (ServingObserver* each : observers_) each->on_finished(report);
  }
  void on_request(const RequestEvent& event) override {
    for (ServingObserver* each : observers_) each->on_request(event);
  }
  void between_steps(const Scheduler& scheduler) override {
    for (ServingObserver* each : observers_) each->between_steps(scheduler);
  }
  bool wants_profile() override {
    bool wanted = false;
    for (ServingObserver* each : observers_) wanted |= each->wants_profile();
    return wanted;
  }
  void on_profile(const StepProfile& profile) override {
    for (ServingObserver* each : observers_) each->on_profile(profile);
  }

 private:
  std::vector<ServingObserver*> observers_;
};

}  // namespace ridge
