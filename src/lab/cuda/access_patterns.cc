// Why kernels stay below the roof: strided and scattered loads, bank conflicts, divergent warps,
// and grids that leave SMs idle, each as a share of its own roof.
#ifdef RIDGE_HAS_CUDA

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/units.h"
#include "lab/cuda/gpu_point.h"
#include "lab/cuda/on_chip.h"
#include "lab/cuda/on_cuda.h"
#include "lab/cuda/reads.h"

namespace ridge {
namespace {

struct GpuPattern {
  const char* label;
  ReadPattern pattern;
  LabBand share;  // of the bandwidth that arrives as useful bytes, %
};

// A load fetches sectors of 32 B, and the L2 asks the memory for two of them at a time, so 4 useful
// bytes of 32 to 64 are at most 12.5 % and about 6.25 %. Scattered loads lose open rows of the
// memory besides.
constexpr LabBand kThinBand{0.6 * 6.25, 0.85 * 6.25, 1.1 * 12.5};
constexpr LabBand kScatteredBand{0.3 * 6.25, 0.6 * 6.25, 1.1 * 12.5};
constexpr LabBand kLinesBand{40, 70, 110};

std::vector<GpuPattern> gpu_patterns() {
  return {{"coalesced", {ReadPattern::strided, 1}, rate_under(100)},
          {"every 8 B", {ReadPattern::strided, 2}, rate_under(50)},
          {"every 16 B", {ReadPattern::strided, 4}, rate_under(25)},
          {"every 32 B", {ReadPattern::strided, 8}, rate_under(12.5)},
          {"every 128 B", {ReadPattern::strided, 32}, kThinBand},
          {"scattered words", {ReadPattern::words, 1}, kScatteredBand},
          {"scattered lines", {ReadPattern::lines, 1}, kLinesBand}};
}

LabSeries pattern_series(Lab& lab, LabGpu& gpu, bool& right) {
  LabSeries series{"memory: useful bytes", {}};
  LabReads reads(gpu, lab.quick() ? 26 : 30);
  const double bandwidth = gpu_bandwidth(lab);
  for (const GpuPattern& each : gpu_patterns()) {
    lab.step(each.label);
    right = reads.pattern_is_right(each.pattern) && right;
    const double useful = reads.useful_bytes(each.pattern);
    LabPoint point = measure_on_gpu(
        lab, gpu, double(series.points.size() + 1), each.share,
        [&] { reads.read_pattern(each.pattern); },
        [&](double seconds) { return 100 * useful / seconds / bandwidth; });
    point.label = each.label;
    series.points.push_back(std::move(point));
  }
  return series;
}

LabSeries bank_series(Lab& lab, LabGpu& gpu, OnChip& chip, double bandwidth, bool& right) {
  LabSeries series{"shared memory: lanes in one bank", {}};
  for (const int ways : {1, 2, 4, 8, 16, 32}) {
    lab.step(fmt::format("{} lanes in one bank", ways));
    right = chip.banks_are_right(ways) && right;
    const double share = 100.0 / ways;
    series.points.push_back(measure_on_gpu(
        lab, gpu, ways, {0.75 * share, 0.95 * share, 1.05 * share}, [&] { chip.read_banks(ways); },
        [&](double seconds) { return 100 * chip.bank_bytes() / seconds / bandwidth; }));
    series.points.back().label = fmt::format("{} lane{} in a bank", ways, ways > 1 ? "s" : "");
  }
  return series;
}

LabSeries divergence_series(Lab& lab, LabGpu& gpu, OnChip& chip, double peak, bool& right) {
  LabSeries series{"fp32: branches of a warp", {}};
  for (const int ways : {1, 2, 4, 8, 16, 32}) {
    lab.step(fmt::format("{} branches of a warp", ways));
    right = chip.diverge_is_right(ways) && right;
    series.points.push_back(measure_on_gpu(
        lab, gpu, ways, rate_under(100.0 / ways), [&] { chip.diverge(ways); },
        [&](double seconds) { return 100 * chip.diverge_flops() / seconds / peak; }));
    series.points.back().label = fmt::format("{} branch{} of a warp", ways, ways > 1 ? "es" : "");
  }
  return series;
}

LabSeries idle_series(Lab& lab, LabGpu& gpu, OnChip& chip, double peak, bool& right) {
  LabSeries series{"fp32: blocks of a grid", {}};
  const int sms = gpu.sms();
  for (const int blocks : {sms / 2, sms, sms + 1, 2 * sms, 2 * sms + 1}) {
    lab.step(fmt::format("{} blocks on {} SMs", blocks, sms));
    right = chip.blocks_are_right(blocks) && right;
    const double waves = std::ceil(double(blocks) / sms);
    const double flops = chip.block_flops() * blocks;
    LabPoint point = measure_on_gpu(
        lab, gpu, blocks, rate_under(100.0 * blocks / (waves * sms)),
        [&] { chip.run_blocks(blocks); },
        [&](double seconds) { return 100 * flops / seconds / peak; });
    point.label = fmt::format("{} blocks", blocks);
    series.points.push_back(std::move(point));
  }
  return series;
}

}  // namespace

LabResult access_patterns_on_cuda(Lab& lab) {
  LabGpu gpu;
  const double peak = gpu_peak(lab, DType::fp32);
  const Level* l1 = lab.machine().level("L1");
  if (l1 == nullptr || !l1->read_bandwidth) throw Error("the bandwidth of L1 is unknown");
  LabResult result;
  result.x = {"pattern", false, 0, 0};
  result.categories = true;
  result.y = {"% of the roof", true, 0, 0};
  bool right = true;
  result.series.push_back(pattern_series(lab, gpu, right));
  OnChip chip(gpu);
  result.series.push_back(bank_series(lab, gpu, chip, *l1->read_bandwidth, right));
  result.series.push_back(divergence_series(lab, gpu, chip, peak, right));
  result.series.push_back(idle_series(lab, gpu, chip, peak, right));
  result.checks.push_back({"every pattern reads or computes what it should (sums)", right});
  const std::vector<LabPoint>& memory = result.series[0].points;
  const double coalesced = memory.front().measured, thin = memory[4].measured;
  const double banks = result.series[1].points.back().measured;
  const double branches = result.series[2].points.back().measured;
  const std::vector<LabPoint>& blocks = result.series[3].points;
  decide(result,
         thin < coalesced / 6 && banks < 5 && branches < 5 &&
             blocks[2].measured < 0.65 * blocks[1].measured,
         {&memory.front(), &memory[4], &result.series[1].points.back(),
          &result.series[2].points.back(), &blocks[1], &blocks[2]});
  result.sentence = fmt::format(
      "Coalesced loads get {:.0f} % of the bandwidth, one word of each 128 B {:.1f} %, scattered "
      "words {:.1f} %, scattered lines {:.0f} %. 32 lanes in one bank leave {:.1f} % of the shared "
      "memory, 32 branches of a warp {:.1f} % of fp32, and {:.0f} blocks instead of {:.0f} take it "
      "from {:.0f} to {:.0f} %.",
      coalesced, thin, memory[5].measured, memory[6].measured, banks, branches, blocks[2].x,
      blocks[1].x, blocks[1].measured, blocks[2].measured);
  result.notes.push_back(
      "Roofs: HBM's read bandwidth, 128 B per clock and SM of shared memory, the fp32 peak. A "
      "block of the last series has a SM to itself.");
  result.notes.push_back(gpu.conditions());
  return result;
}

}  // namespace ridge

#endif
