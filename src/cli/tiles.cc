// ridge tiles: tiles on their way through the memory hierarchy, and the gain of more buffers.
#include "roofline/tiles.h"

#include <fmt/format.h>

#include <cmath>

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "base/units.h"
#include "cli/command.h"
#include "cli/options.h"
#include "machine/atlas.h"
#include "machine/summary.h"

namespace ridge {
namespace {

constexpr const char* kTilesExamples = R"(Examples:
  ridge tiles                                        128x128x64 tiles on an H100
  ridge tiles -M h200 --tile 128x256x64 --stages 4
  ridge tiles -M a100 --reuse 0.9                    most loads hit the cache, as in a large GEMM)";

// One row per step: loading from memory, from the cache, waiting in shared memory, computing.
std::string gantt(const PipelineResult& r, int width) {
  std::string text;
  const int rows = std::min<int>(8, static_cast<int>(r.lives.size()));
  const double end = r.lives[rows - 1].done;
  const auto column = [&](double t) { return static_cast<int>(std::lround(t / end * width)); };
  for (int i = 0; i < rows; ++i) {
    const TileLife& t = r.lives[i];
    std::string row;
    const auto fill = [&](double until, const char* glyph) {
      while (static_cast<int>(display_width(row)) < column(until)) row += glyph;
    };
    fill(t.issued, " ");
    fill(t.from_hbm, "░");
    fill(t.in_shared, "▒");
    fill(t.computing, "·");
    fill(t.done, "█");
    text += fmt::format("  {:2}  {}\n", i + 1, row);
  }
  return text;
}

void print_tiles(const Machine& machine, const TileShape& shape) {
  const PipelineResult r = simulate_pipeline(machine, shape);
  fmt::print("{}: {:.0f}x{:.0f}x{:.0f} {} tiles, {} per stage, on one of {:.0f} units\n\n",
             paint(Colour::bold, machine.title), shape.m, shape.n, shape.k, dtype_name(shape.dtype),
             pretty_binary(shape.stage_bytes()), *machine.units);
  fmt::print(
      "Time of a tile with {} stages: {} streaming from {}, {} through the cache, {} waiting "
      "in shared memory, {} in the matrix units\n\n",
      shape.stages, pretty_percent(r.hbm), machine.memory().name, pretty_percent(r.cache),
      pretty_percent(r.waiting), pretty_percent(r.computing));
  Table table(
      {"stages", "shared memory", "fits", "in flight", "memory busy", "matrix units busy", "time"});
  for (const int stages : {1, 2, 3, 4, 6, 8}) {
    TileShape s = shape;
    s.stages = stages;
    const PipelineResult x = simulate_pipeline(machine, s);
    table.add({std::to_string(stages), pretty_binary(x.shared_bytes), x.fits ? "yes" : "no",
               x.needed > 0 ? pretty_bytes(x.in_flight) : "?", pretty_percent(x.memory_share),
               pretty_percent(x.compute_share), pretty_time(x.seconds)});
  }
  fmt::print("{}\n", table.text());
  if (r.needed > 0) {
    fmt::print("Little's law: {} x {} latency = {} must be in flight to keep {} busy.\n\n",
               pretty_rate(*machine.memory().read_bandwidth),
               pretty_time(machine.memory().latency.value_or(0)), pretty_bytes(r.needed),
               machine.memory().name);
  }
  TileShape one = shape;
  one.stages = 1;
  fmt::print("1 stage      ░ {} ▒ cache · waiting █ matrix units\n{}", machine.memory().name,
             gantt(simulate_pipeline(machine, one), 70));
  fmt::print("{} stages\n{}\n", shape.stages, gantt(r, 70));
  Table fits({"tile", fmt::format("bytes ({})", dtype_name(shape.dtype)), "copies in shared memory",
              "copies in the cache"});
  for (const int side : {64, 128, 256, 512, 4096}) {
    const double bytes = dtype_bits(shape.dtype) / 8 * side * side;
    const Level* cache = machine.cache();
    const Maybe cached = cache ? cache->total_capacity() : std::nullopt;
    fits.add({fmt::format("{0}x{0}", side), pretty_binary(bytes),
              fmt::format("{:.0f}", std::floor(r.capacity / bytes)),
              cached ? fmt::format("{:.0f}", std::floor(*cached / bytes)) : "?"});
  }
  fmt::print("{}", fits.text());
  for (const std::string& note : r.notes) fmt::print("Note: {}.\n", note);
}

}  // namespace

void add_tiles_command(CLI::App& app, Global& global) {
  auto o = std::make_shared<TileOptions>();
  CLI::App* command = app.add_subcommand(
      "tiles", "Follow tiles from memory to the matrix units: stages, bytes in flight, bubbles");
  command->add_option("--machine,-M", o->machine, "Machine");
  command->add_option("--tile", o->tile, "Output tile and depth of a step: MxNxK");
  command->add_option("--dtype", o->dtype,
                      "Element type of both operands (default: fp16, or what there is)");
  command->add_option("--stages", o->stages, "Buffers in shared memory");
  command->add_option("--steps", o->steps, "Steps along K");
  command->add_option("--reuse", o->reuse, "Share of loads that hit the cache");
  command->footer(kTilesExamples);
  command->callback([o, command, &global] {
    const Machine machine = find_machine(o->machine);
    if (command->count("--dtype") == 0) o->dtype = dtype_name(tile_dtype(machine));
    const TileShape shape = tile_shape(*o);
    if (global.json) {
      fmt::print("{}\n", tiles_json(machine, shape).dump(2));
    } else {
      print_tiles(machine, shape);
    }
  });
}

}  // namespace ridge
