#include "engine/account/ledger.h"

#include <algorithm>

#include "step/lower.h"

namespace ridge {
namespace {

OperatorAccount& account_of(Account& sum, const char* name) {
  for (OperatorAccount& each : sum.operators) {
    if (each.name == name) return each;
  }
  return sum.operators.emplace_back(OperatorAccount{.name = name});
}

}  // namespace

void Ledger::record(std::span<const Sequences> batch, double seconds) {
  starts_.push_back(sequences_.size());
  sequences_.insert(sequences_.end(), batch.begin(), batch.end());
  seconds_ += seconds;
}

void Ledger::clear() {
  sequences_.clear();
  starts_.clear();
  seconds_ = 0;
}

Account Ledger::account(const Model& model, const Plan& plan, const System& system,
                        const Stack& stack, const Profile* profile) const {
  const Rank rank = make_rank(model, plan);
  Ceilings ceilings = make_ceilings(system, plan, stack, model.layers());
  Account sum;
  sum.steps = steps();
  sum.measured_s = seconds_;
  std::vector<Op> ops;
  StepEstimate all;
  for (size_t s = 0; s < starts_.size(); ++s) {
    const size_t end = s + 1 < starts_.size() ? starts_[s + 1] : sequences_.size();
    const std::span<const Sequences> batch(&sequences_[starts_[s]], end - starts_[s]);
    lower(rank, batch, ops);
    if (s == 0) {
      double streamed = 0;
      for (const Op& op : ops) streamed += op.count * op.work.device_bytes();
      place_working_set(ceilings, system.device, streamed);
    }
    for (const Op& op : ops) {
      const Estimate estimated = estimate(op, ceilings);
      OperatorAccount& mine = account_of(sum, op.name);
      mine.calls += op.count;
      mine.flops += op.count * (op.work.flops + op.work.vector_flops);
      mine.bytes += op.count * op.work.device_bytes();
      mine.roof_s += op.count * estimated.roof_s;
      mine.expected_s += op.count * estimated.expected_s;
      mine.wall = estimated.wall;
    }
    append(all, estimate_step(ops, ceilings, rank.math), ceilings, rank.math);
    for (const Sequences& part : batch) sum.tokens += part.count * part.fresh;
  }
  sum.flops = all.flops;
  sum.bytes = all.bytes;
  sum.roof_s = all.roof_s;
  sum.expected_s = all.expected_s;
  sum.wall = all.wall;
  sum.next_wall = all.next_wall;
  sum.bandwidth = ceilings.bandwidth;
  sum.memory = ceilings.memory_name;
  if (profile != nullptr) {
    for (const Profile::Entry& entry : profile->entries()) {
      account_of(sum, entry.name).measured_s += entry.seconds;
    }
  }
  return sum;
}

}  // namespace ridge
