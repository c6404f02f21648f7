// A GEMM with tokens off the multiple of its tile: the padding takes time and yields nothing.
#ifdef RIDGE_HAS_CUDA

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/units.h"
#include "lab/cuda/gemm.h"
#include "lab/cuda/gpu_point.h"
#include "lab/cuda/on_cuda.h"
#include "lab/lab_curves.h"

namespace ridge {
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
  result.series = {series};
  result.checks.push_back({"outputs are those of sums in double", right});
  decide(result, off > 0.85 * whole && one < 0.75 * whole,
         {point_at(series, kTile), point_at(series, kTile + 1), point_at(series, 2 * kTile)});
  result.sentence = fmt::format(
      "With tiles of {} tokens, {} tokens take {}, {} take {} and {} take {}: {} of the time of "
      "whole tiles for {} of the tokens.",
      kTile, kTile, pretty_time(1e-6 * one), kTile + 1, pretty_time(1e-6 * off), 2 * kTile,
      pretty_time(1e-6 * whole), pretty_percent(off / whole),
      pretty_percent(double(kTile + 1) / (2 * kTile)));
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
