// An intermediate stored and read again, or computed again from its input: where the FLOPs begin to
// cost more than the bytes.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/mapped_buffer.h"
#include "base/units.h"
#include "lab/catalogue.h"
#include "lab/cuda/on_cuda.h"
#include "lab/lab.h"
#include "lab/lab_curves.h"
#include "lab/lab_kernels.h"

namespace ridge {
namespace {

// h = f(x) with k multiply-adds for each element, and two uses of h (sums, equal in both ways).
//   stored      read x, write h; read h; read h
//   recomputed  read x, compute; read x, compute
class TwoUses {
 public:
  TwoUses(ThreadTeam& team, size_t floats)
      : team_(team),
        floats_(floats / size_t(team.size()) / lab_kernels::kLabStep * lab_kernels::kLabStep),
        memory_(2 * floats_ * size_t(team.size()) * 4),
        sums_(size_t(team.size()) * 16) {
    if (!memory_) throw Error("no memory for {}", pretty_bytes(8 * double(floats)));
    team.run([this](int t) {
      for (size_t i = 0; i < floats_; ++i) {
        x(t)[i] = float(i % 5);
        h(t)[i] = 0;
      }
    });
  }
  double floats() const { return double(floats_) * team_.size(); }
  double bytes() const { return double(memory_.size()); }

  void stored(int k) {
    team_.run([&, k](int t) {
      lab_kernels::apply_chain(h(t), x(t), floats_, k);
      sums_[size_t(t) * 16] =
          lab_kernels::chain_sum(h(t), floats_, 0) + lab_kernels::chain_sum(h(t), floats_, 0);
    });
  }
  void recomputed(int k) {
    team_.run([&, k](int t) {
      sums_[size_t(t) * 16] =
          lab_kernels::chain_sum(x(t), floats_, k) + lab_kernels::chain_sum(x(t), floats_, k);
    });
  }
  float sum() const {
    float total = 0;
    for (int t = 0; t < team_.size(); ++t) total += sums_[size_t(t) * 16];
    return total;
  }

 private:
  float* x(int t) const { return memory_.as<float>() + 2 * size_t(t) * floats_; }
  float* h(int t) const { return x(t) + floats_; }
  ThreadTeam& team_;
  size_t floats_;  // of a thread
  MappedBuffer memory_;
  std::vector<float> sums_;  // a line of 16 floats for each thread
};

LabBand milliseconds_of(const LabBand& band) {
  return {1e3 * band.low, 1e3 * band.expected, 1e3 * band.high};
}

LabResult run_recompute(Lab& lab) {
  TwoUses uses(lab.team(), size_t{1} << (lab.quick() ? 20 : 26));
  const double n = uses.floats();
  const auto ms = [](double seconds) { return 1e3 * seconds; };
  LabResult result;
  result.x = {"FLOPs for each byte of the intermediate", true, 0, 0};
  result.y = {"ms", true, 0, 0};
  LabSeries stored{"stored", {}}, recomputed{"recomputed", {}};
  bool equal = true;
  for (const int k :
       lab.quick() ? std::vector<int>{1, 32} : std::vector<int>{1, 4, 8, 16, 32, 64, 128}) {
    lab.step(fmt::format("{} multiply-adds an element", k));
    uses.stored(k);
    const float sum = uses.sum();
    uses.recomputed(k);
    equal = equal && sum == uses.sum();
    const double x = 2.0 * k / 4;  // FLOPs a float over its bytes
    const LabBand first = loop_seconds(lab, LoopStores::one_input, 8 * n, 2.0 * k * n);
    const LabBand again = loop_seconds(lab, LoopStores::none, 4 * n, n);
    const LabBand fresh = loop_seconds(lab, LoopStores::none, 4 * n, 2.0 * k * n);
    stored.points.push_back(lab.measure(
        x, milliseconds_of(first + again + again), [&] { uses.stored(k); }, ms));
    recomputed.points.push_back(lab.measure(
        x, milliseconds_of(fresh + fresh), [&] { uses.recomputed(k); }, ms));
  }
  result.series = {stored, recomputed};
  result.checks.push_back({"both ways give the same sum", equal});
  const double cheap = stored.points.front().measured / recomputed.points.front().measured;
  const double even = break_even(stored, recomputed);
  // Storing moves 12 n + 4 n + 4 n bytes and 2 k n FLOPs; computing twice 4 n + 4 n and 4 k n. With
  // each pass on its slower ceiling, two passes of FLOPs equal one pass of FLOPs and 8 n bytes
  // where 2 k = 8 ridge, or all 20 n bytes where the stored way is memory-bound: 4 k = 20 ridge.
  const double ridge = lab.machine().ridge(DType::fp32).value_or(0);
  decide(result, cheap > 1.2, {&stored.points.front(), &recomputed.points.front()});
  result.sentence = fmt::format(
      "At {:g} FLOP a byte, computing again takes {:.1f}x less time than storing; {}.",
      stored.points.front().x, cheap,
      even > 0 ? fmt::format("beyond about {:.0f} FLOPs for each byte of the intermediate, storing "
                             "wins (the machine's ridge is {:.0f})",
                             even, ridge)
               : std::string("storing does not win within this sweep"));
  result.notes.push_back(fmt::format(
      "{}; two uses of the intermediate. On the roof storing wins beyond 2 to 2.5 x ridge FLOPs "
      "for "
      "each of its bytes: a store moves 12 bytes an element (line read, line written), and a load "
      "4.",
      pretty_bytes(uses.bytes())));
  return result;
}

}  // namespace

const Experiment kRecomputeExperiment{
    "recompute",
    LabTopic::kernels,
    "Remember or compute again?",
    "A cheap intermediate costs less to compute again than to store and read.",
    "FlashAttention's backward pass (Dao et al., 2022)",
    "ridge lab fusion",
    run_recompute,
    recompute_on_cuda,
    4,
    {20e6, 700e6, 200e6, 2.3e9}};

}  // namespace ridge
