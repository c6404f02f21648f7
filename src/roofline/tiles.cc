#include "roofline/tiles.h"

#include <cmath>
#include <cstdio>

#include "base/error.h"

namespace ridge {
namespace {

Json ladder_json(const Machine& machine, TileShape shape) {
  Json ladder = Json::array();
  for (const int stages : {1, 2, 3, 4, 6, 8}) {
    shape.stages = stages;
    const PipelineResult r = simulate_pipeline(machine, shape);
    ladder.push_back({{"stages", stages},
                      {"shared_bytes", r.shared_bytes},
                      {"fits", r.fits},
                      {"in_flight_bytes", r.in_flight},
                      {"memory_busy", r.memory_share},
                      {"compute_busy", r.compute_share},
                      {"seconds", r.seconds}});
  }
  return ladder;
}

Json sizes_json(const Machine& machine, DType dtype, double shared) {
  const Level* cache = machine.cache();
  const Maybe cached = cache ? cache->total_capacity() : std::nullopt;
  Json sizes = Json::array();
  for (const int side : {64, 128, 256, 512, 4096}) {
    const double bytes = double(side) * side * dtype_bits(dtype) / 8;
    sizes.push_back({{"side", side},
                     {"bytes", bytes},
                     {"in_shared", std::floor(shared / bytes)},
                     {"in_cache", cached ? Json(std::floor(*cached / bytes)) : Json()}});
  }
  return sizes;
}

}  // namespace

TileShape tile_shape(const TileOptions& o) {
  TileShape shape;
  int m = 0, n = 0, k = 0, used = 0;
  if (std::sscanf(o.tile.c_str(), "%dx%dx%d%n", &m, &n, &k, &used) != 3 ||
      used != static_cast<int>(o.tile.size())) {
    throw Error("--tile must look like 128x128x64, not '{}'", o.tile);
  }
  shape.m = m;
  shape.n = n;
  shape.k = k;
  shape.dtype = dtype_from_name(o.dtype);
  shape.stages = o.stages;
  shape.steps = o.steps;
  shape.reuse = o.reuse;
  return shape;
}

Json tiles_json(const Machine& machine, const TileShape& shape) {
  const PipelineResult r = simulate_pipeline(machine, shape);
  Json lives = Json::array();
  for (const TileLife& t : r.lives) {
    lives.push_back(Json{{"issued_s", t.issued},
                         {"started_s", t.started},
                         {"from_memory_s", t.from_hbm},
                         {"in_shared_s", t.in_shared},
                         {"computing_s", t.computing},
                         {"done_s", t.done}});
  }
  return Json{{"machine", machine.name},
              {"tile", {shape.m, shape.n, shape.k}},
              {"dtype", dtype_name(shape.dtype)},
              {"stages", shape.stages},
              {"stage_bytes", shape.stage_bytes()},
              {"shared_bytes", r.shared_bytes},
              {"capacity_bytes", r.capacity},
              {"fits", r.fits},
              {"in_flight_bytes", r.in_flight},
              {"needed_bytes", r.needed},
              {"seconds", r.seconds},
              {"memory_busy", r.memory_share},
              {"compute_busy", r.compute_share},
              {"life", Json{{"memory", r.hbm},
                            {"cache", r.cache},
                            {"waiting", r.waiting},
                            {"computing", r.computing}}},
              {"units", *machine.units},
              {"memory", machine.memory().name},
              {"cache", machine.cache() ? Json(machine.cache()->name) : Json()},
              {"ladder", ladder_json(machine, shape)},
              {"sizes", sizes_json(machine, shape.dtype, r.capacity)},
              {"notes", r.notes},
              {"steps", lives}};
}

}  // namespace ridge
