// An intermediate stored and read again, or computed again from its input.
#ifdef RIDGE_HAS_CUDA

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/units.h"
#include "lab/cuda/elementwise.h"
#include "lab/cuda/gpu_point.h"
#include "lab/cuda/on_cuda.h"
#include "lab/lab_curves.h"

namespace ridge {
LabResult recompute_on_cuda(Lab& lab) {
  LabGpu gpu;
  lab.step("filling memory");
  LabFloats floats(gpu, size_t{1} << (lab.quick() ? 22 : 28), 2);  // x and h
  const double n = double(floats.count());
  // h = f(x) with k multiply-adds for each element, and two uses of h.
  const auto store = [&](int k) {
    floats.chain(1, 0, k);
    floats.chain_sum(1, 0);
    floats.chain_sum(1, 0);
  };
  const auto recompute = [&](int k) {
    floats.chain_sum(0, k);
    floats.chain_sum(0, k);
  };
  LabResult result;
  result.x = {"FLOPs for each byte of the intermediate", true, 0, 0};
  result.y = {"ms", true, 0, 0};
  LabSeries stored{"stored", {}}, recomputed{"recomputed", {}};
  bool equal = true;
  for (const int k :
       lab.quick() ? std::vector<int>{1, 256} : std::vector<int>{1, 4, 16, 32, 64, 128, 256, 512}) {
    lab.step(fmt::format("{} multiply-adds an element", k));
    floats.clear_sum();
    store(k);
    const uint32_t sum = floats.sum();
    floats.clear_sum();
    recompute(k);
    equal = equal && sum == floats.sum();
    const LabBand first = gpu_pass_seconds(lab, 8 * n, 2.0 * k * n);
    const LabBand again = gpu_pass_seconds(lab, 4 * n, 0),
                  fresh = gpu_pass_seconds(lab, 4 * n, 2.0 * k * n);
    const double x = 2.0 * k / 4;
    stored.points.push_back(measure_on_gpu(
        lab, gpu, x, to_ms(first + again + again), [&] { store(k); },
        [](double seconds) { return to_ms(seconds); }));
    recomputed.points.push_back(measure_on_gpu(
        lab, gpu, x, to_ms(fresh + fresh), [&] { recompute(k); },
        [](double seconds) { return to_ms(seconds); }));
  }
  gpu.wait();
  result.series = {stored, recomputed};
  result.checks.push_back({"both ways give the same numbers", equal});
  const double cheap = stored.points.front().measured / recomputed.points.front().measured;
  const double even = break_even(stored, recomputed);
  const double ridge = lab.machine().ridge(DType::fp32).value_or(0);
  decide(result, cheap > 1.2, {&stored.points.front(), &recomputed.points.front()});
  result.sentence = fmt::format(
      "At {:g} FLOP a byte, computing again takes {:.1f}x less time than storing; {}.",
      stored.points.front().x, cheap,
      even > 0 ? fmt::format("beyond about {:.0f} FLOPs for each byte of the intermediate, storing "
                             "wins (the fp32 ridge is {:.0f})",
                             even, ridge)
               : std::string("storing does not win within this sweep"));
  result.notes.push_back(fmt::format(
      "{}; two uses of the intermediate. A store moves 8 bytes an element and each load 4: on the "
      "roof storing wins beyond 2 x ridge FLOPs for each byte, less where a kernel overlaps both.",
      pretty_bytes(floats.bytes())));
  result.notes.push_back(gpu.conditions());
  return result;
}

}  // namespace ridge

#endif
