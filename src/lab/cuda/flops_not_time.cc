// An elementwise operator over memory against GEMMs on tensor cores with more and more times its
// FLOPs.
#ifdef RIDGE_HAS_CUDA

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/units.h"
#include "cost/elementwise.h"
#include "lab/cuda/elementwise.h"
#include "lab/cuda/gemm.h"
#include "lab/cuda/gpu_point.h"
#include "lab/cuda/on_cuda.h"
#include "lab/lab_curves.h"

namespace ridge {
LabResult flops_not_time_on_cuda(Lab& lab) {
  LabGpu gpu;
  const int side = lab.quick() ? 2048 : 8192;
  const size_t count = size_t{1} << (lab.quick() ? 22 : 28);
  const std::vector<int> token_counts =
      lab.quick() ? std::vector<int>{128, 512}
                  : std::vector<int>{128, 256, 512, 1024, 2048, 4096, 8192};
  const auto ratio_of = [&](int tokens) { return 2.0 * side * side * tokens / double(count); };
  lab.step("filling memory");
  LabFloats floats(gpu, count, 3);
  LabGemm gemm(gpu, side, side, token_counts.back());
  LabResult result;
  result.x = {"FLOPs of the GEMM / FLOPs of the addition", true, 0, 0};
  result.y = {"ms", true, 0, 0};
  const auto ms = [](double seconds) { return to_ms(seconds); };
  lab.step("addition");
  floats.add(2, 0, 1);
  bool right = true;
  for (const size_t at : {size_t{0}, count / 2 + 5, count - 1}) {
    right = right && floats.element(2, at) == floats.element(0, at) + floats.element(1, at);
  }
  Op add;
  add.name = "add";
  add.kind = OpKind::elementwise;
  add.work = elementwise_work(2 * double(count), double(count), 4, 1);
  LabSeries additions{"addition", {}}, gemms{"GEMM", {}};
  const LabPoint added = measure_on_gpu(
      lab, gpu, 1, to_ms(expected_seconds(lab, add, add.work.device_bytes())),
      [&] { floats.add(2, 0, 1); }, ms);
  additions.points.push_back(added);
  for (const int tokens : token_counts) {
    const double ratio = ratio_of(tokens);
    lab.step(fmt::format("GEMM of {:.0f} times the FLOPs", ratio));
    right = gemm.is_right(tokens) && right;
    Op op;
    op.name = "gemm";
    const MatmulShape shape{double(tokens), double(side), double(side), 16, 2, 4, 1, DType::bf16};
    op.work = matmul_work(shape);
    op.shape = shape;
    const LabBand s = expected_seconds(lab, op, op.work.device_bytes());
    gemms.points.push_back(measure_on_gpu(
        lab, gpu, ratio, to_ms(LabBand{s.low, s.expected, 1.4 * s.expected}),
        [&] { gemm.launch(tokens); }, ms));
  }
  const double even = crossing(gemms, added.measured);
  const bool beyond = even >= gemms.points.back().x;
  result.series = {additions, gemms};
  result.checks.push_back({"both compute what they should", right});
  decide(result, even >= 100, LabPoints{&added} + points_around(gemms, even));
  result.sentence =
      fmt::format("An addition of {} takes {}, as long as a GEMM with {}{:.0f} times its FLOPs.",
                  pretty_flops(double(count)), pretty_time(1e-3 * added.measured),
                  beyond ? "more than " : "", even);
  result.notes.push_back(fmt::format(
      "The addition moves 12 bytes for each FLOP ({} in all); the GEMM's {} x {} weights are read "
      "once. On the roof the factor is 12 x ridge = {:.0f} (bf16 tensor cores, fp32 addition).",
      pretty_bytes(12 * double(count)), side, side,
      12 * lab.machine().ridge(DType::bf16).value_or(0)));
  result.notes.push_back(gpu.conditions());
  return result;
}

}  // namespace ridge

#endif
