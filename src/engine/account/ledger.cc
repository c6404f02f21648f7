#include "engine/account/ledger.h"

#include <algorithm>
#include <utility>

#include "base/random.h"
#include "step/lower.h"
#include "step/micro_batches.h"

namespace ridge {
namespace {

OperatorAccount& account_of(Account& sum, const char* name) {
  for (OperatorAccount& each : sum.operators) {
    if (each.name == name) return each;
  }
  return sum.operators.emplace_back(OperatorAccount{.name = name});
}

// All but the cached tokens.
bool equal_shape(std::span<const Sequences> a, std::span<const Sequences> b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const Sequences& x, const Sequences& y) {
                      return x.count == y.count && x.fresh == y.fresh && x.logits == y.logits;
                    });
}

StepEstimate repeated(StepEstimate step, double times) {
  for (double* sum :
       {&step.roof_s, &step.expected_s, &step.low_s, &step.high_s, &step.flops, &step.bytes}) {
    *sum *= times;
  }
  for (double& seconds : step.on) seconds *= times;
  for (double& seconds : step.decided) seconds *= times;
  return step;
}

}  // namespace

std::span<const Sequences> Ledger::batch_of(const Step& step) const {
  return std::span(sequences_).subspan(step.begin, step.count);
}

void Ledger::record(std::span<const Sequences> batch, double seconds) {
  while (held_.size() > 1 && sequences_.size() + batch.size() > kMaxSequences) merge_pairs();
  held_.push_back({sequences_.size(), batch.size(), 1});
  sequences_.insert(sequences_.end(), batch.begin(), batch.end());
  ++steps_;
  for (const Sequences& part : batch) tokens_ += part.count * part.fresh;
  seconds_ += seconds;
}

void Ledger::merge_pairs() {
  std::vector<Step> merged;
  std::vector<Sequences> kept;
  const auto keep = [&](std::span<const Sequences> batch, double times) {
    merged.push_back({kept.size(), batch.size(), times});
    kept.insert(kept.end(), batch.begin(), batch.end());
  };
  for (size_t i = 0; i + 1 < held_.size(); i += 2) {
    const Step &a = held_[i], &b = held_[i + 1];
    const std::span<const Sequences> first = batch_of(a), second = batch_of(b);
    const double times = a.times + b.times;
    if (equal_shape(first, second)) {
      keep(first, times);
      for (size_t s = 0; s < first.size(); ++s) {
        kept[merged.back().begin + s].past =
            (a.times * first[s].past + b.times * second[s].past) / times;
      }
    } else {
      // In proportion to how many steps each stands for.
      const double uniform = unit_interval(hash64(0, uint64_t(merges_), i));
      keep(uniform * times < a.times ? first : second, times);
    }
  }
  if (held_.size() % 2 == 1) keep(batch_of(held_.back()), held_.back().times);
  ++merges_;
  held_ = std::move(merged);
  sequences_ = std::move(kept);
}

Account Ledger::account(const Model& model, const Plan& plan, const System& system,
                        const Stack& stack, const Profile* profile) const {
  const Rank rank = make_rank(model, plan);
  Ceilings ceilings = make_ceilings(system, plan, stack, &model);
  Account sum;
  sum.steps = steps_;
  sum.tokens = tokens_;
  sum.measured_s = seconds_;
  std::vector<Op> ops;
  StepEstimate all;
  bool placed = false;
  for (const Step& step : held_) {
    const auto parts = micro_batches(batch_of(step), plan);
    StepEstimate of_step;
    for (const std::vector<Sequences>& part : parts) {
      lower(rank, part, ops);
      if (!std::exchange(placed, true)) {
        double streamed = 0;
        for (const Op& op : ops) streamed += op.count * op.work.device_bytes();
        place_working_set(ceilings, system.device, streamed);
      }
      for (const Op& op : ops) {
        const Estimate estimated = estimate(op, ceilings);
        const double calls = step.times * op.count;
        OperatorAccount& account = account_of(sum, op.name);
        account.calls += calls;
        account.flops += calls * (op.work.flops + op.work.vector_flops);
        account.bytes += calls * op.work.device_bytes();
        account.roof_s += calls * estimated.roof_s;
        account.expected_s += calls * estimated.expected_s;
        account.wall = estimated.wall;
      }
      append(of_step, estimate_step(ops, ceilings, rank.math), ceilings, rank.math);
    }
    append(all, repeated(pipelined(of_step, plan.pp, parts.size()), step.times), ceilings,
           rank.math);
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
