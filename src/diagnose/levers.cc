#include "diagnose/levers.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/units.h"
#include "machine/atlas.h"

namespace ridge {
namespace {

constexpr double kLeastGain = 1.005;  // less is printed as x1.00

class Levers {
 public:
  Levers(const Request& request, const Prediction& now, Phase phase)
      : request_(request), now_(now), phase_(phase) {}

  // `change` edits a copy of the request. A change that the plan refuses is no lever.
  template <typename Change>
  void consider(std::string name, std::string note, Change change) {
    Request changed = request_;
    try {
      change(changed);
      const Prediction p = predict(changed);
      Lever lever;
      lever.name = std::move(name);
      lever.note = std::move(note);
      // Throughput per device, so that more hardware is not a gain by itself.
      const double scale = double(request_.plan.devices()) / changed.plan.devices();
      lever.gain = p.tokens_per_s / now_.tokens_per_s * scale;
      lever.ttft_gain = now_.ttft_s() / p.ttft_s();
      lever.tpot_s = p.tpot_s();
      lever.predicted = true;
      lever.next_wall = (phase_ == Phase::prefill ? p.prefill : p.decode).wall;
      const double faster = now_.tpot_s() / lever.tpot_s;
      const bool gains = std::max({lever.gain, lever.ttft_gain, faster}) >= kLeastGain;
      if (p.memory.fits && gains) levers_.push_back(std::move(lever));
    } catch (const Error&) {
    }
  }

  std::vector<Lever> ranked() {
    sort_levers(levers_, phase_);
    return std::move(levers_);
  }

 private:
  const Request& request_;
  const Prediction& now_;
  const Phase phase_;
  std::vector<Lever> levers_;
};

void consider_batch(Levers& levers, const Request& r, const Prediction& now) {
  const double most = now.memory.capacity ? now.memory.max_batch : r.batch * 64;
  for (const double factor : {2.0, 8.0, 32.0}) {
    const double batch = std::floor(r.batch * factor);
    if (batch > most) break;
    levers.consider(fmt::format("batch {:.0f} -> {:.0f}", r.batch, batch),
                    "one read of the weights serves more tokens",
                    [=](Request& c) { c.batch = batch; });
  }
  if (now.memory.capacity && most > r.batch && most < r.batch * 32) {
    levers.consider(fmt::format("batch {:.0f} -> {:.0f} (all that fits)", r.batch, most),
                    "the largest batch that fits; KV capacity is the next wall",
                    [=](Request& c) { c.batch = most; });
  }
}

void consider_precision(Levers& levers, const Request& r) {
  const double bits = (r.plan.weights ? *r.plan.weights : main_weight_format(*r.model)).bits;
  const auto weights = [&](const char* name, const char* note) {
    const Format format = format_from_name(name);
    if (format.bits < bits * 0.9) {
      levers.consider(
          fmt::format("weights {}", name),
          fmt::format("{} of the weight bytes{}", pretty_percent(format.bits / bits), note),
          [=](Request& c) { c.plan.weights = format; });
    }
  };
  weights("fp8", "; decode gains from fewer bytes, not from more FLOP/s");
  weights("int4", ", scales counted; GEMMs run in 16 bits");
  const Format kv = r.plan.kv.value_or(r.model->kv_format);
  if (kv.bits > 8.9) {
    levers.consider("kv fp8", "half the cache bytes: longer contexts, larger batches",
                    [](Request& c) { c.plan.kv = format_from_name("fp8"); });
  }
}

void consider_techniques(Levers& levers, const Request& r) {
  if (!r.plan.graphs) {
    levers.consider("CUDA graphs", "no host work between kernels",
                    [](Request& c) { c.plan.graphs = true; });
  }
  if (!r.plan.flash) {
    levers.consider("FlashAttention", "attention scores stay on chip",
                    [](Request& c) { c.plan.flash = true; });
  }
  if (!r.plan.fusion) {
    levers.consider("kernel fusion", "fewer passes over activations, fewer kernels",
                    [](Request& c) { c.plan.fusion = true; });
  }
  if (r.plan.speculate == 0) {
    levers.consider("speculation, 3 drafts at 70 % acceptance",
                    "cost of drafting not counted; gains while decode is memory-bound",
                    [](Request& c) {
                      c.plan.speculate = 3;
                      c.plan.acceptance = 0.7;
                    });
  }
  if (r.plan.prefix_hit < 0.5) {
    levers.consider("prefix reuse, half of each prompt",
                    "shortens the time to first token, not decode",
                    [](Request& c) { c.plan.prefix_hit = 0.5; });
  }
}

void consider_parallelism(Levers& levers, const Request& r) {
  if (r.plan.tp > 1) {
    levers.consider(fmt::format("tp {} -> {} with twice the replicas", r.plan.tp, r.plan.tp / 2),
                    "less communication; each device reads more weights", [](Request& c) {
                      c.plan.tp /= 2;
                      c.plan.dp *= 2;
                    });
  }
  levers.consider(fmt::format("tp {} -> {}", r.plan.tp, r.plan.tp * 2),
                  "throughput is per device; latency falls more", [](Request& c) {
                    c.plan.tp *= 2;
                    const int most = c.system.device.links.empty()
                                         ? c.system.devices_per_node
                                         : c.system.device.links.front().max_devices;
                    if (c.plan.devices() > c.system.devices()) {
                      if (c.plan.tp > most) throw Error("more devices than the link joins");
                      c.system.devices_per_node = c.plan.devices();
                      c.system.nodes = 1;
                    }
                  });
}

void consider_machines(Levers& levers, const Request& r) {
  for (const char* name : {"h200", "b200", "mi300x", "l40s"}) {
    Machine other;
    try {
      other = find_machine(name);
    } catch (const Error&) {
      continue;  // the user's own atlas may lack it
    }
    const Machine& current = r.system.device;
    if (other.name == current.name || current.kind != other.kind) continue;
    const Maybe bandwidth = other.memory().read_bandwidth, peak = other.peak_of(DType::bf16);
    if (!bandwidth || !peak || !current.peak_of(DType::bf16)) continue;
    std::string note = fmt::format("bandwidth x{:.2f}, 16-bit peak x{:.2f}",
                                   *bandwidth / *current.memory().read_bandwidth,
                                   *peak / *current.peak_of(DType::bf16));
    levers.consider(fmt::format("machine {}", other.name), std::move(note),
                    [&](Request& c) { c.system.device = other; });
  }
}

}  // namespace

void sort_levers(std::vector<Lever>& levers, Phase phase) {
  const auto key = [&](const Lever& l) {
    return phase == Phase::prefill ? std::pair(l.ttft_gain, l.gain)
                                   : std::pair(l.gain, l.ttft_gain);
  };
  std::stable_sort(levers.begin(), levers.end(),
                   [&](const Lever& a, const Lever& b) { return key(a) > key(b); });
}

std::vector<Lever> rank_levers(const Request& request, const Prediction& now, Phase phase) {
  Levers levers(request, now, phase);
  consider_batch(levers, request, now);
  consider_precision(levers, request);
  consider_techniques(levers, request);
  consider_parallelism(levers, request);
  consider_machines(levers, request);
  return levers.ranked();
}

}  // namespace ridge
