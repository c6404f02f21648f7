#include "roofline/pipeline.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"

namespace ridge {
namespace {

// What one unit gets of the machine, with all units alike.
struct UnitRates {
  double hbm_s = 0, cache_s = 0, flop_s = 0;  // seconds per byte, per operation
  double hbm_latency = 0, cache_latency = 0;
};

double require(Maybe value, const Machine& machine, std::string_view what) {
  if (!value) throw Error("{}: {} is unknown, so tiles cannot be simulated", machine.name, what);
  return *value;
}

UnitRates unit_rates(const Machine& machine, DType dtype, std::vector<std::string>& notes) {
  const double units = require(machine.units, machine, "the number of compute units");
  const Level& memory = machine.memory();
  UnitRates r;
  r.hbm_s = units / require(memory.read_bandwidth, machine, memory.name + " bandwidth");
  r.flop_s = units / require(machine.peak_of(dtype), machine,
                             fmt::format("the {} peak", dtype_name(dtype)));
  if (memory.latency) {
    r.hbm_latency = *memory.latency;
  } else {
    notes.push_back(fmt::format("latency of {} unknown: taken as zero", memory.name));
  }
  if (const Level* cache = machine.cache()) {
    if (cache->read_bandwidth) {
      r.cache_s = units / *cache->read_bandwidth;
    } else {
      notes.push_back(fmt::format("bandwidth of {} unknown: its hop is free", cache->name));
    }
    r.cache_latency = cache->latency.value_or(0);
  }
  // A load that misses pays the latency of device memory in all, the cache's part included.
  r.hbm_latency = std::max(0.0, r.hbm_latency - r.cache_latency);
  return r;
}

std::vector<TileLife> run_steps(const TileShape& shape, const UnitRates& r) {
  const double bytes = shape.stage_bytes();
  const double from_hbm = bytes * (1 - shape.reuse) * r.hbm_s;
  const double from_cache = bytes * r.cache_s;
  const double compute = shape.flops() * r.flop_s;
  std::vector<TileLife> lives(shape.steps);
  double hbm_free = 0, cache_free = 0, unit_free = 0;
  for (int i = 0; i < shape.steps; ++i) {
    TileLife& t = lives[i];
    t.issued = i < shape.stages ? 0 : lives[i - shape.stages].done;
    // Transfers queue behind each other; latencies overlap.
    t.started = std::max(hbm_free, t.issued);
    hbm_free = t.started + from_hbm;
    t.from_hbm = hbm_free + (shape.reuse < 1 ? r.hbm_latency : 0);
    cache_free = std::max(cache_free, t.from_hbm) + from_cache;
    t.in_shared = cache_free + r.cache_latency;
    t.computing = std::max(unit_free, t.in_shared);
    t.done = unit_free = t.computing + compute;
  }
  return lives;
}

}  // namespace

PipelineResult simulate_pipeline(const Machine& machine, const TileShape& shape) {
  const bool sane = shape.m >= 1 && shape.n >= 1 && shape.k >= 1 && shape.m <= 65536 &&
                    shape.n <= 65536 && shape.k <= 65536;
  if (!sane) throw Error("tile sides must be from 1 to 65536");
  if (shape.stages < 1 || shape.stages > 64) throw Error("stages must be from 1 to 64");
  if (shape.steps < 1 || shape.steps > 100000) throw Error("steps must be from 1 to 100000");
  if (!(shape.reuse >= 0 && shape.reuse <= 1)) throw Error("reuse must be from 0 to 1");

  PipelineResult result;
  const UnitRates rates = unit_rates(machine, shape.dtype, result.notes);
  const Level* shared = machine.level("L1");
  result.capacity =
      require(shared ? shared->capacity : std::nullopt, machine, "the size of shared memory");
  result.shared_bytes = shape.stages * shape.stage_bytes();
  result.fits = result.shared_bytes <= result.capacity;
  result.needed = *machine.memory().read_bandwidth * machine.memory().latency.value_or(0);

  result.lives = run_steps(shape, rates);
  result.seconds = result.lives.back().done;
  const double compute = shape.flops() * rates.flop_s;
  const double bytes = shape.stage_bytes() * (1 - shape.reuse);
  // After the pipeline has filled: from the first arithmetic to the last.
  const double steady = result.seconds - result.lives.front().computing;
  result.compute_share = compute * shape.steps / steady;
  result.memory_share = std::min(1.0, bytes * rates.hbm_s * shape.steps / steady);
  result.in_flight = result.memory_share * result.needed;
  double life = 0;
  for (const TileLife& t : result.lives) {
    result.hbm += t.from_hbm - t.issued;
    result.cache += t.in_shared - t.from_hbm;
    result.waiting += t.computing - t.in_shared;
    result.computing += t.done - t.computing;
    life += t.done - t.issued;
  }
  result.hbm /= life;
  result.cache /= life;
  result.waiting /= life;
  result.computing /= life;
  return result;
}

}  // namespace ridge
