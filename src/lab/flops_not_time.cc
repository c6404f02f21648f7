// An elementwise operator over memory against GEMMs on cached operands with more and more times its
// FLOPs: FLOPs alone say nothing about time.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/mapped_buffer.h"
#include "base/units.h"
#include "cost/matmul.h"
#include "engine/cpu/matmul.h"
#include "lab/catalogue.h"
#include "lab/cuda/on_cuda.h"
#include "lab/lab.h"
#include "lab/lab_curves.h"
#include "lab/lab_kernels.h"

namespace ridge {
namespace {

constexpr int kSide = 512;                      // the weights: 512 x 512 f32, 1 MiB
constexpr size_t kAddFloats = size_t{1} << 25;  // three arrays of 134 MB: beyond any last cache

Op gemm_op(const MatmulShape& shape) {
  Op op;
  op.name = "lab";
  op.math = DType::fp32;
  op.work = matmul_work(shape);
  op.shape = shape;
  return op;
}

LabBand in_milliseconds(const LabBand& band) {
  return {1e3 * band.low, 1e3 * band.expected, std::max(1e3 * band.high, 1.5e3 * band.expected)};
}

LabResult run_flops_not_time(Lab& lab) {
  ThreadTeam& team = lab.team();
  const size_t floats = lab.quick() ? kAddFloats / 32 : kAddFloats;
  const std::vector<double> ratios =
      lab.quick() ? std::vector<double>{8, 64} : std::vector<double>{8, 16, 32, 64, 128, 256, 512};
  // 2 x 512 x 512 FLOPs a token.
  const auto tokens_of = [&](double ratio) {
    return int(ratio * double(floats) / (2.0 * kSide * kSide));
  };
  const int most = tokens_of(ratios.back());
  const MappedBuffer memory(3 * floats * 4), weights(size_t(kSide) * kSide * 4);
  const MappedBuffer activations(size_t(most) * kSide * 2 * 4);
  if (!memory || !weights || !activations) throw Error("no memory for the operands");
  float* const a = memory.as<float>();
  std::fill_n(a, 3 * floats, 1.0f);
  std::fill_n(weights.as<float>(), size_t(kSide) * kSide, 0.5f);
  std::fill_n(activations.as<float>(), size_t(most) * kSide * 2, 1.0f);

  LabResult result;
  result.x = {"FLOPs of the GEMM / FLOPs of the addition", true, 0, 0};
  result.y = {"ms", true, 0, 0};
  const auto ms = [](double seconds) { return 1e3 * seconds; };
  const auto addition = [&] {
    team.run([&](int index) {
      const size_t part =
          floats / size_t(team.size()) / lab_kernels::kLabStep * lab_kernels::kLabStep;
      float* at = a + size_t(index) * part;
      lab_kernels::add(at + 2 * floats, at, at + floats, part);
    });
  };
  lab.step("addition");
  LabSeries additions{"addition", {}}, gemms{"GEMM", {}};
  const LabBand add =
      loop_seconds(lab, LoopStores::two_inputs, 12 * double(floats), double(floats));
  const LabPoint added = lab.measure(1, in_milliseconds(add), addition, ms);
  additions.points.push_back(added);

  const cpu::PackedMatrix w(Matrix{Storage::f32, kSide, kSide, weights.as<std::byte>(), kSide * 4},
                            team);
  cpu::Input input(most, kSide);
  const cpu::InputKind kind[] = {w.input_kind(most)};
  for (const double ratio : ratios) {
    const int tokens = tokens_of(ratio);
    lab.step(fmt::format("GEMM of {:g} times the FLOPs", ratio));
    input.set(team, activations.as<float>(), kSide, tokens, kSide, kind);
    cpu::Gemm gemm;
    gemm.w = &w;
    gemm.x = &input;
    gemm.y = activations.as<float>() + size_t(most) * kSide;
    gemm.stride = kSide;
    const Op op =
        gemm_op({double(tokens), kSide, kSide, 32, 4, 4, 1, DType::fp32, CpuFormat::fp32});
    const LabBand band = expected_seconds(lab, op, op.work.device_bytes());
    gemms.points.push_back(lab.measure(
        ratio, in_milliseconds(band),
        [&] {
          cpu::multiply(team, {&gemm, 1});
        },
        ms));
  }
  const bool right =
      a[2 * floats] == 2 && activations.as<float>()[size_t(most) * kSide] == 0.5f * kSide;
  const double even = crossing(gemms, added.measured);
  result.series = {additions, gemms};
  result.checks.push_back({"both compute what they should", right});
  const bool beyond = even >= ratios.back();
  decide(result, even >= 100, LabPoints{&added} + points_around(gemms, even));
  result.sentence = fmt::format(
      "An addition of {} takes {}, as long as a GEMM with {}{:.0f} times its FLOPs{}.",
      pretty_flops(double(floats)), pretty_time(1e-3 * added.measured), beyond ? "more than " : "",
      even,
      even >= 100 ? ""
                  : "; hundreds of times would need a ridge farther right: the factor is about 12 "
                    "times the ridge");
  result.notes.push_back(fmt::format(
      "The addition moves 12 bytes for each FLOP ({} in all, in {} of memory); the GEMM's weights "
      "stay in a cache. On the roof the factor is 12 x ridge = {:.0f} here and 3500 on an H100 "
      "(bf16 tensor cores, fp32 addition).",
      pretty_bytes(12 * double(floats)), pretty_bytes(double(memory.size() + activations.size())),
      12 * lab.machine().ridge(DType::fp32).value_or(0)));
  return result;
}

}  // namespace

const Experiment kFlopsNotTimeExperiment{
    "flops-not-time",
    LabTopic::kernels,
    "Do more FLOPs take more time?",
    "An elementwise operator can take longer than a GEMM with hundreds of times its FLOPs.",
    "arithmetic intensity (Williams et al., 2009: Roofline)",
    "ridge predict -m llama-3-8b -M h200 --ops",
    run_flops_not_time,
    flops_not_time_on_cuda,
    4,
    {60e6, 750e6, 400e6, 4.5e9}};

}  // namespace ridge
