// One loop whose FLOPs per byte are turned up: its rate follows bandwidth x intensity to the ridge
// and the peak beyond it, for each memory level and for each format that the CPU multiplies.
#include "roofline/roofline.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <set>

#include "base/error.h"
#include "base/units.h"
#include "lab/catalogue.h"
#include "lab/cuda/on_cuda.h"
#include "lab/lab.h"
#include "lab/lab_dots.h"
#include "lab/lab_kernels.h"
#include "lab/levels.h"
#include "measure/cpu/bandwidth.h"
#include "measure/cpu/kernels.h"
#include "measure/cpu/timing.h"

namespace ridge {
namespace {

// How many FLOPs a float of 4 bytes gets: one addition for a group of floats, or multiply-adds.
struct Turn {
  int fmas, group;
  double flops() const { return fmas > 0 ? 2.0 * fmas : 1.0 / group; }
  double intensity() const { return flops() / 4; }
  // Additions run at half the FLOP/s of multiply-adds.
  double peak_of(double peak) const { return fmas > 0 ? peak : peak / 2; }
};
constexpr Turn kTurns[] = {{0, 4}, {0, 2},  {0, 1},  {1, 1},  {2, 1},  {4, 1},
                           {8, 1}, {16, 1}, {32, 1}, {64, 1}, {128, 1}};
constexpr Turn kQuickTurns[] = {{0, 4}, {2, 1}, {64, 1}};

constexpr double kCallSeconds = 1e-3;  // starting a parallel region costs a thousandth of it

// Each call reads the next slice, so that a set larger than the caches is never met in them.
struct Slices {
  size_t floats = 0, count = 1, next = 0;
  long repeats = 1;
};

Slices slices_of(double part_bytes, double seconds_per_byte) {
  Slices slices;
  const double call_bytes = kCallSeconds / seconds_per_byte;
  const double floats = part_bytes / 4;
  slices.count = size_t(std::max(1.0, std::floor(part_bytes / call_bytes)));
  slices.floats = size_t(floats) / slices.count / lab_kernels::kLabStep * lab_kernels::kLabStep;
  if (slices.count == 1) slices.repeats = long(std::max(1.0, std::ceil(call_bytes / part_bytes)));
  return slices;
}

// GFLOP/s under the roof. Near the ridge a core overlaps reads and arithmetic only in part.
LabBand roof_band(double peak, double bandwidth, double intensity) {
  const LabBand seconds = overlapped(1 / bandwidth, intensity / peak);  // of a byte
  const double flops = intensity / 1e9;
  return {flops / seconds.high, flops / seconds.expected, flops / seconds.low};
}

LabPoint roofline_point(Lab& lab, const WorkingSet& set, const LabLevel& level, const Turn& turn,
                        double peak, std::atomic<bool>& right) {
  const double roof = attainable(turn.peak_of(peak), level.bandwidth, turn.intensity());
  const int threads = lab.team().size();
  Slices slices = slices_of(level.part_bytes, turn.intensity() / roof * threads);
  const auto work = [&] {
    lab.team().run([&](int index) {
      const float* a = set.part(index) + slices.next * slices.floats;
      const double sum =
          lab_kernels::turn_intensity(a, slices.floats, slices.repeats, turn.fmas, turn.group);
      const double groups = double(slices.floats) * double(slices.repeats) / turn.group;
      const double expected = turn.fmas > 0 ? 2 : groups;
      if (std::abs(sum / expected - 1) > 1e-6) right = false;
    });
    slices.next = (slices.next + 1) % slices.count;
  };
  const double flops =
      turn.flops() * double(slices.floats) * double(slices.repeats) * lab.team().size();
  const LabBand band = roof_band(turn.peak_of(peak), level.bandwidth, turn.intensity());
  return lab.measure(turn.intensity(), band, work,
                     [&](double seconds) { return flops / seconds / 1e9; });
}

// Operations/s of the loop's instruction on all threads, now; 0: unknown.
double dot_peak(Lab& lab, const DotLoop& loop) {
  std::vector<std::string> closed;
  for (const DotKernel& kernel : dot_kernels(closed)) {
    if (std::string_view(kernel.isa) != loop.isa || dtype_name(loop.dtype) != kernel.id) continue;
    const Samples samples = sample(lab.team(), {5, 0.004, 0.12}, [&](int, long repeats) {
      volatile double used = kernel.run(repeats);
      (void)used;
    });
    return kernel.ops * lab.team().size() /
           *std::min_element(samples.seconds.begin(), samples.seconds.end());
  }
  return 0;
}

// Products of what is read: a multiple of 4 of them, 2, 1, or one for several kilobytes.
DotTurn dot_turn(const DotLoop& loop, double intensity) {
  const double products = intensity / loop.flop_per_byte({1, 1});
  if (products < 1) return {0, int(std::lround(1 / products))};
  return {products < 4 ? int(products) : int(products) / 4 * 4, 1};
}

// The same for a format that the CPU multiplies by dot products or in tiles.
LabSeries dot_series(Lab& lab, const WorkingSet& set, const LabLevel& level, const DotLoop& loop,
                     double peak) {
  LabSeries series{fmt::format("{}, {} ({})", level.name, dtype_name(loop.dtype), loop.isa), {}};
  const std::vector<double> intensities =
      lab.quick() ? std::vector<double>{0.5, 256}
                  : std::vector<double>{1.0 / 16, 0.5, 4, 16, 64, 256, 1024};
  const int threads = lab.team().size();
  for (const double wanted : intensities) {
    const DotTurn turn = dot_turn(loop, wanted);
    const double intensity = loop.flop_per_byte(turn);
    lab.step(fmt::format("{}, {:g} FLOP/byte", series.name, intensity));
    const double roof = attainable(peak, level.bandwidth, intensity);
    Slices slices = slices_of(level.part_bytes, intensity / roof * threads);
    const auto work = [&] {
      lab.team().run([&](int index) {
        const float* a = set.part(index) + slices.next * slices.floats;
        volatile double used = loop.run(reinterpret_cast<const std::byte*>(a), 4 * slices.floats,
                                        slices.repeats, turn);
        (void)used;
      });
      slices.next = (slices.next + 1) % slices.count;
    };
    const double flops = intensity * 4 * double(slices.floats) * double(slices.repeats) * threads;
    const LabBand band = roof_band(peak, level.bandwidth, intensity);
    series.points.push_back(
        lab.measure(intensity, band, work, [&](double seconds) { return flops / seconds / 1e9; }));
  }
  return series;
}

// Whether the loop multiplies what it should, on 8 kB.
bool dots_are_right(const DotLoop& loop, const float* operands) {
  const auto* a = reinterpret_cast<const std::byte*>(operands);
  constexpr size_t kBytes = 8 * kDotStep;
  for (const DotTurn& turn : {DotTurn{0, 4}, {1, 1}, {2, 1}, {8, 1}}) {
    const double expected = dot_loop_sum(loop, a, kBytes, turn);
    if (!(std::abs(loop.run(a, kBytes, 1, turn) / expected - 1) < 1e-3)) return false;
  }
  return true;
}

// From memory and from the second level, for each format. Returns "bf16 ... TFLOP/s" for the
// sentence.
std::string add_dot_series(Lab& lab, const WorkingSet& set, const std::vector<LabLevel>& levels,
                           LabResult& result) {
  std::string flat;
  std::set<DType> done;
  for (const DotLoop& loop : dot_loops()) {
    if (!done.insert(loop.dtype).second) continue;  // a slower one
    lab.step(fmt::format("operands in {}", dtype_name(loop.dtype)));
    lab.team().run([&](int index) {
      fill_dot_operands(loop.dtype, reinterpret_cast<std::byte*>(set.part(index)),
                        size_t(set.part_bytes()));
    });
    result.checks.push_back(
        {fmt::format("products in {} are those of plain code", dtype_name(loop.dtype)),
         dots_are_right(loop, set.part(0))});
    const double peak = dot_peak(lab, loop);
    if (peak <= 0) continue;
    for (const LabLevel& level : levels) {
      if (&level != &levels.back() && &level != &levels[std::min<size_t>(1, levels.size() - 1)]) {
        continue;
      }
      result.series.push_back(dot_series(lab, set, level, loop, peak));
    }
    flat += fmt::format("{}{} in {} ({})", flat.empty() ? "" : ", ",
                        pretty_flop_rate(1e9 * result.series.back().points.back().measured),
                        dtype_name(loop.dtype), loop.isa);
  }
  return flat;
}

LabResult run_roofline(Lab& lab) {
  const Maybe peak = lab.machine().peak_of(DType::fp32);
  if (!peak)
    throw Error("the fp32 peak of this CPU is unknown, so there is no flat part of a roof");
  const std::vector<LabLevel> levels = lab_levels(lab.machine(), lab.team().size());
  if (levels.empty()) throw Error("no memory level of this CPU has a known size");
  const WorkingSet set(lab.team(), levels.back().part_bytes * lab.team().size());
  if (!set) throw Error("no memory for the working set");
  for (int index = 0; index < lab.team().size(); ++index) {
    std::fill_n(set.part(index), size_t(set.part_bytes() / 4), 1.0f);
  }
  LabResult result;
  result.x = {"FLOP/byte", true, 0, 0};
  result.y = {"GFLOP/s", true, 0, 0};
  std::atomic<bool> right = true;
  for (const LabLevel& level : levels) {
    LabSeries series{level.name, {}};
    const std::span<const Turn> turns =
        lab.quick() ? std::span<const Turn>(kQuickTurns) : std::span<const Turn>(kTurns);
    for (const Turn& turn : turns) {
      lab.step(fmt::format("{}, {:g} FLOP/byte", level.name, turn.intensity()));
      series.points.push_back(roofline_point(lab, set, level, turn, *peak, right));
    }
    result.series.push_back(std::move(series));
  }
  const size_t floats = result.series.size() - 1;  // the series from memory in fp32
  const std::string narrow = add_dot_series(lab, set, levels, result);
  const std::vector<LabPoint>& far = result.series[floats].points;
  const double slope = 1e9 * far.front().measured / far.front().x;
  const double flat = 1e9 * far.back().measured;
  const double computed = *peak / levels.back().bandwidth, measured = flat / slope;
  const Agreement agreement = agreement_of({&result, 1});
  const bool traced = agreement.share() >= 0.8 && std::abs(std::log2(measured / computed)) < 1;
  decide(result, traced, {&far.front(), &far.back()});
  result.sentence = fmt::format(
      "From {} the loop reads {} at few FLOPs a byte and flattens at {} in fp32: the measured "
      "ridge "
      "lies at {:.1f} FLOP/byte, the computed one at {:.1f}.{}",
      levels.back().name, pretty_rate(slope), pretty_flop_rate(flat), measured, computed,
      narrow.empty() ? "" : fmt::format(" It flattens at {}.", narrow));
  result.checks.push_back({"every load and multiply-add ran (checksums)", right});
  result.notes.push_back(fmt::format(
      "{} threads, at most {}; roof = min(peak {}, read bandwidth of the level x FLOP/byte); "
      "in fp32 fewer than 1/2 FLOP/byte are additions, whose peak is half. Narrow formats multiply "
      "random operands by the instruction named, whose peak is read before. Band: 60 to 110 % of "
      "the "
      "roof.",
      lab.team().size(), pretty_bytes(set.part_bytes() * lab.team().size()),
      pretty_flop_rate(*peak)));
  return result;
}

}  // namespace

const Experiment kRooflineExperiment{
    "roofline",
    LabTopic::hardware,
    "Does the roof exist?",
    "A kernel runs at min(peak, bandwidth x FLOPs per byte): below the ridge only bytes count.",
    "claims 1, 2, 12, 13",
    "ridge measure",
    run_roofline,
    roofline_on_cuda,
    14,
    {530e6, 530e6, 700e6, 4.3e9}};

}  // namespace ridge
