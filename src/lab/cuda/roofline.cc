// The roof of a GPU: FLOPs per byte from 1/16 to 1024, from the L2 and from HBM, with fp32
// multiply-adds and with the tensor cores.
#ifdef RIDGE_HAS_CUDA

#include "roofline/roofline.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/units.h"
#include "lab/cuda/gpu_point.h"
#include "lab/cuda/intensity.h"
#include "lab/cuda/on_cuda.h"

namespace ridge {
namespace {

constexpr IntensityWork kFloatTurns[] = {{0, 4}, {0, 2},  {0, 1},  {1, 1},  {2, 1},   {4, 1},
                                         {8, 1}, {16, 1}, {32, 1}, {64, 1}, {256, 1}, {2048, 1}};
constexpr IntensityWork kTensorTurns[] = {{0, 32}, {0, 8}, {0, 1},  {1, 1},  {2, 1},
                                          {4, 1},  {8, 1}, {16, 1}, {32, 1}, {128, 1}};
// mma.sync drives Hopper's tensor cores at no more than about 65 % of their peak (the figure
// mma.bf16 of `ridge measure`); only wgmma from shared memory reaches the rest.
constexpr double kMmaShare = 0.65;
constexpr double kLaunchSeconds = 1e-3;

struct GpuRoofSeries {
  IntensityMath math;
  std::string level;
  double bandwidth, peak, set_bytes;
  bool cached;
};

LabSeries gpu_roof_series(Lab& lab, LabGpu& gpu, const GpuRoofSeries& of, bool& right) {
  const bool floats = of.math == IntensityMath::fp32;
  LabSeries series{fmt::format("{}, {}", of.level, floats ? "fp32" : "bf16 mma"), {}};
  const double round_bytes = IntensityReads::round_bytes(gpu, of.math);
  const int all = std::max(1, int(of.set_bytes / round_bytes));
  IntensityReads reads(gpu, of.math, all);
  std::vector<IntensityWork> turns;
  if (floats) {
    turns.assign(std::begin(kFloatTurns), std::end(kFloatTurns));
  } else {
    turns.assign(std::begin(kTensorTurns), std::end(kTensorTurns));
  }
  if (lab.quick()) turns = {turns[0], turns[4], turns.back()};
  for (const IntensityWork& work : turns) {
    const double intensity = IntensityReads::flop_per_byte(of.math, work);
    lab.step(fmt::format("{}, {:g} FLOP/byte", series.name, intensity));
    right = reads.is_right(work) && right;
    // Additions run at half the FLOP/s of multiply-adds.
    const double peak = floats && work.each == 0 ? of.peak / 2 : of.peak;
    const double roof = attainable(peak, of.bandwidth, intensity);
    const double wanted = kLaunchSeconds * roof / intensity / round_bytes;  // rounds of a launch
    const int rounds = of.cached ? all : int(std::clamp(wanted, 1.0, double(all)));
    const int least = floats ? 1 : (work.group + rounds - 1) / rounds;
    const int passes = of.cached ? std::max(least, int(std::clamp(wanted / all, 1.0, 2000.0))) : 1;
    int first = 0;  // each launch takes the next rounds, which no cache holds
    const auto launch = [&] {
      if (first + rounds > all) first = 0;
      reads.launch(work, first, rounds, passes);
      first += rounds;
    };
    const double flops = reads.flops(work, rounds, passes);
    series.points.push_back(measure_on_gpu(lab, gpu, intensity, rate_under(roof / 1e12), launch,
                                           [&](double seconds) { return flops / seconds / 1e12; }));
  }
  gpu.wait();
  return series;
}

}  // namespace

LabResult roofline_on_cuda(Lab& lab) {
  LabGpu gpu;
  const double hbm = gpu_bandwidth(lab), fp32 = gpu_peak(lab, DType::fp32);
  const double mma = kMmaShare * gpu_peak(lab, DType::bf16);
  const double memory_set = lab.quick() ? 0.5e9 : 4e9;
  const Level* l2 = lab.machine().cache();
  LabResult result;
  result.x = {"FLOP/byte", true, 0, 0};
  result.y = {"TFLOP/s", true, 0, 0};
  bool right = true;
  for (const auto& [math, peak] :
       {std::pair(IntensityMath::fp32, fp32), {IntensityMath::bf16, mma}}) {
    result.series.push_back(
        gpu_roof_series(lab, gpu, {math, "HBM", hbm, peak, memory_set, false}, right));
    if (l2 == nullptr || !l2->read_bandwidth) continue;
    result.series.push_back(gpu_roof_series(
        lab, gpu, {math, l2->name, *l2->read_bandwidth, peak, 0.45 * gpu.l2_bytes(), true}, right));
  }
  const std::vector<LabPoint>& far = result.series.front().points;
  const double slope = 1e12 * far.front().measured / far.front().x;
  const double flat = 1e12 * far.back().measured;
  const double computed = fp32 / hbm, measured = flat / slope;
  const Agreement agreement = agreement_of({&result, 1});
  decide(result, agreement.share() >= 0.8 && std::abs(std::log2(measured / computed)) < 1,
         {&far.front(), &far.back()});
  double tensor = 0;
  for (const LabSeries& series : result.series) {
    if (series.name == "HBM, bf16 mma") tensor = 1e12 * series.points.back().measured;
  }
  result.sentence = fmt::format(
      "From HBM the loop reads {} at few FLOPs a byte and flattens at {} in fp32: the measured "
      "ridge lies at {:.1f} FLOP/byte, the computed one at {:.1f}. With mma.sync in bf16 it "
      "flattens at {}, {:.0f} FLOP/byte.",
      pretty_rate(slope), pretty_flop_rate(flat), measured, computed, pretty_flop_rate(tensor),
      tensor / slope);
  result.checks.push_back({"every load, multiply-add and product ran (sums)", right});
  result.notes.push_back(fmt::format(
      "{} from HBM; roof = min(peak, read bandwidth of the level x FLOP/byte); fp32 below 1/2 "
      "FLOP/byte are additions, whose peak is half; the peak of mma.sync is taken as {} of the "
      "tensor cores' {}. Band: 60 to 110 % of the roof.",
      pretty_bytes(memory_set), pretty_percent(kMmaShare), pretty_flop_rate(mma / kMmaShare)));
  result.notes.push_back(gpu.conditions());
  return result;
}

}  // namespace ridge

#endif
