// What a run did against what it had to do: the work of every step from the same Ops that the
// predictor times, beside the time the engine took.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "engine/runner/profile.h"
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

// The steps of one phase (prompt or generation), in bounded memory: at most kMaxSequences entries
// of 32 bytes, whatever the length of the run. The number of steps, their tokens and their seconds
// are always exact. Work and roofs are exact until the bound is reached. Then neighbouring steps
// merge in pairs, and again whenever the bound is reached:
// - two steps of equal shape (the same but for the cached tokens) become one with the mean number
// of
//   cached tokens, counted twice. Work is linear in these but for sliding windows and page ends.
// - of two steps of unequal shape a pseudo-random one stands for both. The work of n such pairs
// errs
//   by about sqrt(n) times the difference of the two.
class Ledger {
 public:
  static constexpr size_t kMaxSequences = 8192;

  void record(std::span<const Sequences> batch, double seconds);
  void add_seconds(double seconds) { seconds_ += seconds; }  // more time of the last step
  long steps() const { return steps_; }
  double tokens() const { return tokens_; }  // given or made
  double seconds() const { return seconds_; }
  size_t held() const { return sequences_.size(); }  // at most kMaxSequences, or two steps
  void clear() { *this = {}; }

  // `profile` holds the same steps' operators, or is null. With pipeline stages a step takes less
  // than its operators, where its micro-batches overlap.
  Account account(const Model& model, const Plan& plan, const System& system, const Stack& stack,
                  const Profile* profile) const;

 private:
  struct Step {
    size_t begin = 0, count = 0;  // its entries of sequences_
    double times = 1;             // how many recorded steps it stands for
  };
  std::span<const Sequences> batch_of(const Step& step) const;
  void merge_pairs();

  std::vector<Sequences> sequences_;  // of all held steps, one after the other
  std::vector<Step> held_;
  long steps_ = 0, merges_ = 0;
  double tokens_ = 0, seconds_ = 0;
};

}  // namespace ridge
