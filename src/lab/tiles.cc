// A GEMM with outputs off the multiple of its tile: the padding takes time and yields nothing.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/mapped_buffer.h"
#include "base/units.h"
#include "cost/matmul.h"
#include "engine/account/roof_system.h"
#include "engine/cpu/matmul.h"
#include "engine/cpu/pack.h"
#include "lab/catalogue.h"
#include "lab/cuda/on_cuda.h"
#include "lab/lab.h"
#include "lab/lab_curves.h"
#include "lab/levels.h"
#include "roofline/roofline.h"

namespace ridge {
namespace {

constexpr int kTileTokens = 48, kTileColumns = 512;
constexpr int kMostRows = 96;

// The engine's kernels work on groups of 16 rows (matmul_kernels.h), for weights of every format.
struct TileFormat {
  const char* name;
  Storage storage;
  CpuFormat format;
  double bits;
};
constexpr TileFormat kTileFormats[] = {{"q8_0", Storage::q8_0, CpuFormat::q8_0, 8.5},
                                       {"f32", Storage::f32, CpuFormat::fp32, 32}};

// A GEMM of whole groups of rows on one core, as the stack has it. All operands lie in the L2,
// whose rate the last cache's stands for. Integer products are predicted only where the stack has
// figures for this CPU's instructions: without them they may be anything from 1 to 4 times the fp32
// peak.
LabBand tile_seconds(const Lab& lab, const TileFormat& format, int rows) {
  const double padded = pad_to(rows, cpu::kGroup);
  const MatmulShape shape{kTileTokens, kTileColumns, padded,       format.bits, 4, 4,
                          1,           DType::fp32,  format.format};
  Op op;
  op.name = "tiles";
  op.math = DType::fp32;
  op.work = matmul_work(shape);
  op.shape = shape;
  const System core = with_share_of_peak(lab.system(), 1);
  Ceilings ceilings = make_ceilings(core, Plan(), engine_stack(core));
  place_working_set(ceilings, core.device, op.work.device_bytes());
  if (!ceilings.cpu && format.format != CpuFormat::fp32) return {};
  ceilings.cores = 1;
  ceilings.launch_s = 0;  // a team of one thread starts nothing
  const Estimate e = estimate(op, ceilings);
  return {std::min(e.low_s, 0.75 * e.expected_s), e.expected_s,
          std::max(e.high_s, 1.33 * e.expected_s)};
}

// Rows of whole blocks, each valid in its format.
std::vector<std::byte> tile_weights(Storage storage) {
  const size_t bytes = size_t(kMostRows) * size_t(storage_bytes(storage, kTileColumns));
  std::vector<std::byte> data(bytes);
  if (storage == Storage::f32) {
    for (size_t i = 0; i < bytes / 4; ++i) {
      reinterpret_cast<float*>(data.data())[i] = float(i % 7) - 3;
    }
    return data;
  }
  for (size_t i = 0; i < bytes; i += 34) {  // a block: a scale of 1 in f16, 32 integers
    data[i + 1] = std::byte{0x3c};
    for (size_t j = 2; j < 34; ++j) data[i + j] = std::byte(uint8_t((i + j) % 7));
  }
  return data;
}

LabSeries tile_series(Lab& lab, ThreadTeam& one, const TileFormat& format) {
  const std::vector<std::byte> data = tile_weights(format.storage);
  std::vector<float> x(size_t(kTileTokens) * kTileColumns, 0.5f);
  std::vector<float> y(size_t(kTileTokens) * kMostRows);
  cpu::Input input(kTileTokens, kTileColumns);
  LabSeries series{format.name, {}};
  const int step = lab.quick() ? 12 : 4;
  for (int rows = 16; rows <= (lab.quick() ? 64 : kMostRows); rows += step) {
    lab.step(fmt::format("{}: {} outputs", format.name, rows));
    const cpu::PackedMatrix w(Matrix{format.storage, rows, kTileColumns, data.data(),
                                     int64_t(storage_bytes(format.storage, kTileColumns))},
                              one, true);  // not in AMX's tiles, which pad tokens as well
    const cpu::InputKind kind[] = {w.input_kind(kTileTokens)};
    input.set(one, x.data(), kTileColumns, kTileTokens, kTileColumns, kind);
    cpu::Gemm gemm;
    gemm.w = &w;
    gemm.x = &input;
    gemm.y = y.data();
    gemm.stride = rows;
    const LabBand s = tile_seconds(lab, format, rows);
    const LabBand band{1e6 * s.low, 1e6 * s.expected, 1e6 * s.high};
    const int repeats = 20;
    const auto work = [&] {
      for (int i = 0; i < repeats; ++i) cpu::multiply(one, {&gemm, 1});
    };
    series.points.push_back(
        lab.measure(rows, band, work, [&](double seconds) { return 1e6 * seconds / repeats; }));
  }
  return series;
}

LabResult run_tiles(Lab& lab) {
  if (!lab.machine().peak_of(DType::fp32))
    throw Error("the fp32 peak of this CPU is unknown, so no GEMM can be predicted");
  ThreadTeam one(1);
  LabResult result;
  result.x = {"outputs", false, 0, 0};
  result.on_memory = false;
  result.y = {"us", false, 0, 0};
  for (const TileFormat& format : kTileFormats) {
    result.series.push_back(tile_series(lab, one, format));
  }
  const LabSeries& q8 = result.series[0];
  const double full = measured_at(q8, 64), off = measured_at(q8, 52);  // four tiles of 16 both
  const double first = measured_at(q8, 16);
  const bool stairs = off > 0.9 * full && first < 0.5 * full;
  decide(result, stairs, {point_at(q8, 16), point_at(q8, 52), point_at(q8, 64)});
  result.sentence = fmt::format(
      "With tiles of 16 rows, 52 outputs take {} and 64 take {}: {} of the time of whole tiles for "
      "{} of the outputs. With f32 weights it is {}.",
      pretty_time(1e-6 * off), pretty_time(1e-6 * full), pretty_percent(off / full),
      pretty_percent(52.0 / 64),
      pretty_percent(measured_at(result.series[1], 52) / measured_at(result.series[1], 64)));
  result.notes.push_back(fmt::format(
      "One thread, {} tokens, {} columns, operands in the L2. q8_0 is predicted where the stack "
      "has "
      "figures for this CPU's instructions. The stairs of a tensor core are 8 (fp16) or 16 (int8) "
      "wide.",
      kTileTokens, kTileColumns));
  return result;
}

}  // namespace

const Experiment kTilesExperiment{
    "tiles",
    LabTopic::kernels,
    "Why should dimensions be multiples of the tile?",
    "Dimensions off the tile's multiple are padded, and the padding takes time.",
    "tile quantization (NVIDIA: Matrix Multiplication Background)",
    "ridge tiles",
    run_tiles,
    tiles_on_cuda,
    6,
    {16e6, 16e6, 200e6, 600e6}};

}  // namespace ridge
