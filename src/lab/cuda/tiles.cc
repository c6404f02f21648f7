// A GEMM with tokens off the multiple of its tile: the padding takes time and yields nothing.
#ifdef RIDGE_HAS_CUDA

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/units.h"
#include "lab/cuda/gemm.h"
#include "lab/cuda/gpu_point.h"
#include "lab/cuda/mma_tiles.h"
#include "lab/cuda/on_cuda.h"
#include "lab/lab_curves.h"

namespace ridge {
namespace {

// mma.sync reaches about 65 % of Hopper's tensor peak (roofline.cc).
constexpr double kMmaTileShare = 0.65;

// Tokens off the multiple of 8 that a tensor core's own tile has.
LabSeries mma_tile_series(Lab& lab, LabGpu& gpu, MmaTiles& tiles, bool int8, bool& right) {
  LabSeries series{int8 ? "mma.sync, int8" : "mma.sync, bf16", {}};
  const double peak = kMmaTileShare * gpu_peak(lab, int8 ? DType::int8 : DType::bf16);
  const std::vector<int> counts =
      lab.quick() ? std::vector<int>{8, 9, 16}
                  : std::vector<int>{4, 8, 9, 12, 16, 17, 20, 24, 28, 32, 33, 40, 48, 56, 57, 64};
  for (const int tokens : counts) {
    lab.step(fmt::format("{}, {} tokens", series.name, tokens));
    right = tiles.is_right(int8, tokens) && right;
    const double roof = 1e6 * tiles.padded_flops(int8, tokens) / peak;
    const LabBand rate = rate_under(1);
    series.points.push_back(measure_on_gpu(
        lab, gpu, tokens, {roof / rate.high, roof / rate.expected, roof / rate.low},
        [&] { tiles.launch(int8, tokens); }, [](double seconds) { return 1e6 * seconds; }));
  }
  return series;
}

}  // namespace

LabResult tiles_on_cuda(Lab& lab) {
  LabGpu gpu;
  constexpr int kTile = 256;
  const int rows = lab.quick() ? 2048 : 14336, columns = lab.quick() ? 2048 : 4096;
  std::vector<int> counts{kTile, kTile + 1, 2 * kTile};
  if (!lab.quick()) {
    for (int tokens = 64; tokens <= 4 * kTile; tokens += 64) counts.push_back(tokens);
    counts.insert(counts.end(), {2 * kTile + 1, 3 * kTile + 1});
    std::sort(counts.begin(), counts.end());
    counts.erase(std::unique(counts.begin(), counts.end()), counts.end());
  }
  lab.step("making weights");
  LabGemm gemm(gpu, rows, columns, counts.back());
  LabResult result;
  result.x = {"tokens", false, 0, 0};
  result.y = {"us", false, 0, 0};
  LabSeries series{"bf16", {}};
  bool right = true;
  for (const int tokens : counts) {
    lab.step(fmt::format("{} tokens", tokens));
    right = gemm.is_right(tokens) && right;
    Op op;
    op.name = "tiles";
    const MatmulShape shape{
        double(LabGemm::padded(tokens)), double(columns), double(rows), 16, 2, 4, 1, DType::bf16};
    op.work = matmul_work(shape);
    op.shape = shape;
    const LabBand s = expected_seconds(lab, op, op.work.device_bytes());
    // The stack's share of the peak was taken over whole layers, with launches between them.
    const LabBand band{1e6 * s.low, 1e6 * s.expected, 1.4e6 * s.expected};
    series.points.push_back(measure_on_gpu(
        lab, gpu, tokens, band, [&] { gemm.launch(tokens); },
        [](double seconds) { return 1e6 * seconds; }));
  }
  const double whole = measured_at(series, 2 * kTile), off = measured_at(series, kTile + 1);
  const double one = measured_at(series, kTile);
  MmaTiles tiles(gpu);
  const LabSeries halves = mma_tile_series(lab, gpu, tiles, false, right);
  const LabSeries bytes = mma_tile_series(lab, gpu, tiles, true, right);
  const auto stair = [](const LabSeries& s) { return measured_at(s, 9) / measured_at(s, 16); };
  result.series = {series, halves, bytes};
  result.checks.push_back({"outputs are those of sums in double", right});
  decide(result,
         off > 0.85 * whole && one < 0.75 * whole && stair(halves) > 0.9 && stair(bytes) > 0.9,
         {point_at(series, kTile), point_at(series, kTile + 1), point_at(series, 2 * kTile),
          point_at(halves, 9), point_at(halves, 16), point_at(bytes, 9), point_at(bytes, 16)});
  result.sentence = fmt::format(
      "With tiles of {} tokens, {} tokens take {}, {} take {} and {} take {}: {} of the time of "
      "whole tiles for {} of the tokens. In the tensor cores' own tiles of 8 tokens, 9 take {} of "
      "the time of 16 in bf16 and {} in int8.",
      kTile, kTile, pretty_time(1e-6 * one), kTile + 1, pretty_time(1e-6 * off), 2 * kTile,
      pretty_time(1e-6 * whole), pretty_percent(off / whole),
      pretty_percent(double(kTile + 1) / (2 * kTile)), pretty_percent(stair(halves)),
      pretty_percent(stair(bytes)));
  result.notes.push_back(fmt::format(
      "{} x {} weights in bf16; tiles of 128 outputs and 32, 64, 128 or 256 tokens (up to 32, 64, "
      "128, and more). Where whole tiles leave SMs idle, the sums of a tile are split over several "
      "SMs, so that the stairs are those of the tokens alone.",
      rows, columns));
  result.notes.push_back(gpu.conditions());
  return result;
}

}  // namespace ridge

#endif
