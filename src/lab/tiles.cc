// A GEMM with outputs off the multiple of its tile: the padding takes time and yields nothing.
#include <fmt/format.h>

#include <cmath>

#include "base/error.h"
#include "base/mapped_buffer.h"
#include "base/units.h"
#include "cost/matmul.h"
#include "engine/cpu/matmul.h"
#include "engine/cpu/pack.h"
#include "lab/catalogue.h"
#include "lab/lab.h"

namespace ridge {
namespace {

constexpr int kTileTokens = 48, kTileColumns = 512;
constexpr int kMostRows = 96;

// The engine's kernels work on groups of 16 rows (matmul_kernels.h), for weights of every format.
struct TileFormat {
  const char* name;
  Storage storage;
};
constexpr TileFormat kTileFormats[] = {{"q8_0", Storage::q8_0}, {"f32", Storage::f32}};

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

LabSeries tile_series(Lab& lab, ThreadTeam& one, const TileFormat& format, double peak) {
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
                              one);
    const cpu::InputKind kind[] = {w.input_kind()};
    input.set(one, x.data(), kTileColumns, kTileTokens, kTileColumns, kind);
    cpu::Gemm gemm;
    gemm.w = &w;
    gemm.x = &input;
    gemm.y = y.data();
    gemm.stride = rows;
    // All operands lie in the L2, so the padded FLOPs decide. The engine's GEMMs reach 75 % of the
    // fp32 peak; int8 dot products at most four times it, so the band of q8 is wide.
    const double flops = 2.0 * kTileTokens * kTileColumns * pad_to(rows, cpu::kGroup);
    const bool blocks = format.storage == Storage::q8_0;
    const double roof = 1e6 * flops / peak;
    const Band band{0.9 * roof / (blocks ? 4 : 1), roof / (blocks ? 1.5 : 0.75),
                    roof / (blocks ? 0.6 : 0.5)};
    const int repeats = 20;
    const auto work = [&] {
      for (int i = 0; i < repeats; ++i) cpu::multiply(one, {&gemm, 1});
    };
    series.points.push_back(
        lab.measure(rows, band, work, [&](double seconds) { return 1e6 * seconds / repeats; }));
  }
  return series;
}

// The point at `rows`.
double time_at(const LabSeries& series, double rows) {
  for (const LabPoint& point : series.points) {
    if (point.x == rows) return point.measured;
  }
  return 0;
}

LabResult run_tiles(Lab& lab) {
  const Maybe peak = lab.machine().peak_of(DType::fp32);
  if (!peak) throw Error("the fp32 peak of this CPU is unknown, so no GEMM can be predicted");
  ThreadTeam one(1);
  LabResult result;
  result.x = {"outputs", false, 0, 0};
  result.y = {"us", false, 0, 0};
  for (const TileFormat& format : kTileFormats) {
    result.series.push_back(tile_series(lab, one, format, *peak / lab.team().size()));
  }
  const LabSeries& q8 = result.series[0];
  const double full = time_at(q8, 64), off = time_at(q8, 52);  // four tiles of 16 both
  const double first = time_at(q8, 16);
  const bool stairs = off > 0.9 * full && first < 0.5 * full;
  result.holds = stairs;
  result.sentence = fmt::format(
      "With tiles of 16 rows, 52 outputs take {} and 64 take {}: {} of the time of whole tiles for "
      "{} of the outputs. With f32 weights it is {}.",
      pretty_time(1e-6 * off), pretty_time(1e-6 * full), pretty_percent(off / full),
      pretty_percent(52.0 / 64),
      pretty_percent(time_at(result.series[1], 52) / time_at(result.series[1], 64)));
  result.notes.push_back(fmt::format(
      "One thread, {} tokens, {} columns, operands in the L2. The stairs of a tensor core are 8 "
      "(fp16) or 16 (int8) wide.",
      kTileTokens, kTileColumns));
  return result;
}

}  // namespace

const Experiment kTilesExperiment{
    "tiles",
    LabTopic::kernels,
    "Why should dimensions be multiples of the tile?",
    "Dimensions off the tile's multiple are padded, and the padding takes time.",
    "claim 18",
    "ridge tiles",
    true,
    false,
    6,
    run_tiles};

}  // namespace ridge
