// What a run did against what it had to do: the work of every step from the same Ops that the
// predictor times, beside the time the engine took.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "engine/account/profile.h"
#include "machine/machine.h"
#include "model/model.h"
#include "roofline/roofline.h"
#include "step/step.h"

namespace ridge {

struct OperatorAccount {
  std::string name;
  double calls = 0;
  double flops = 0, bytes = 0;        // of all calls
  double roof_s = 0, expected_s = 0;  // predicted
  double measured_s = 0;              // 0 without a profile
  Wall wall = Wall::memory;
};

struct Account {
  long steps = 0;
  double tokens = 0;  // given or made
  double flops = 0, bytes = 0;
  double roof_s = 0, expected_s = 0, measured_s = 0;
  Wall wall = Wall::memory, next_wall = Wall::compute;
  double bandwidth = 0;  // of the level that the steps stream from, as measured here; bytes/s
  std::string memory;    // its name
  std::vector<OperatorAccount> operators;

  double bytes_per_s() const { return measured_s > 0 ? bytes / measured_s : 0; }
  double flops_per_s() const { return measured_s > 0 ? flops / measured_s : 0; }
  double share_of_roof() const { return measured_s > 0 ? roof_s / measured_s : 0; }
};

// The steps of one phase (prompt or generation).
class Ledger {
 public:
  void record(std::span<const Sequences> batch, double seconds);
  long steps() const { return static_cast<long>(starts_.size()); }
  double seconds() const { return seconds_; }
  void clear();

  // `profile` holds the same steps' operators, or is null.
  Account account(const Model& model, const Plan& plan, const System& system, const Stack& stack,
                  const Profile* profile) const;

 private:
  std::vector<Sequences> sequences_;  // of all steps, one after the other
  std::vector<size_t> starts_;
  double seconds_ = 0;
};

}  // namespace ridge
