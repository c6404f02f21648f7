#include "predict/roofline_view.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/units.h"
#include "cost/elementwise.h"
#include "cost/matmul.h"
#include "predict/json.h"

namespace ridge {
namespace {

constexpr double kMostLandmarkBatch = 65536;
constexpr double kVisibleChange = 0.005;  // smaller effects of a technique are not told
constexpr double kDenseSide = 4096;       // the square product people know from GEMM benchmarks

Json or_json_null(const Maybe& value) { return value ? Json(*value) : Json(); }

Json machine_json(const System& system) {
  const Machine& m = system.device;
  Json roofs = Json::array(), levels = Json::array();
  for (int i = 0; i < kDTypeCount; ++i) {
    if (!m.peak[i]) continue;
    const DType dtype = static_cast<DType>(i);
    roofs.push_back({{"dtype", dtype_name(dtype)},
                     {"peak", *m.peak[i]},
                     {"sustained", or_json_null(m.sustained[i])},
                     {"ridge", or_json_null(m.ridge(dtype))}});
  }
  for (const Level& level : m.levels) {
    if (!level.read_bandwidth) continue;
    const std::string path = "levels." + level.name + ".read_bandwidth";
    const Provenance* from = provenance_of(m, path);
    levels.push_back({{"name", level.name},
                      {"bandwidth", *level.read_bandwidth},
                      {"memory", &level == &m.memory()},
                      {"measured", from && from->origin == Origin::measured}});
  }
  return {{"name", m.name}, {"title", m.title}, {"roofs", roofs}, {"levels", levels}};
}

double intensity(const Work& work) {
  return (work.flops + work.vector_flops) / work.device_bytes();
}

// Work everybody knows, to read the axis by.
Json landmarks_json(const Request& r, const Prediction& p) {
  const double hidden = r.model->hidden;
  const MatmulShape square{.m = kDenseSide, .k = kDenseSide, .n = kDenseSide};
  const auto phase = [](const char* name, const StepEstimate& step) {
    return Json{{"name", name},
                {"intensity", step.intensity()},
                {"flops_per_s", step.expected_s > 0 ? step.flops / step.expected_s : 0},
                {"wall", wall_name(step.wall)}};
  };
  return Json::array(
      {Json{{"name", "elementwise"}, {"intensity", intensity(residual_work(1, hidden, 2))}},
       phase("decode", p.decode), phase("prefill", p.prefill),
       Json{{"name", "dense 4096"}, {"intensity", intensity(matmul_work(square))}}});
}

// What the plot needs beyond the prediction's own list: where the dot is, and both times at
// full rate, from the numbers printed beside them.
void add_op_fields(Json& ops, const Request& r, const Prediction& p) {
  const Ceilings c = make_ceilings(r.system, r.plan, r.stack);
  for (size_t i = 0; i < p.ops.size(); ++i) {
    const OpEstimate& op = p.ops[i];
    Json& json = ops[i];
    const double peak = c.peak[static_cast<int>(op.math)];
    const double phase = op.prefill ? p.prefill.expected_s : p.decode.expected_s;
    json["runs_as"] = dtype_name(c.runs_as[static_cast<int>(op.math)]);
    json["flops_per_s"] = op.expected_s > 0 ? op.flops / op.expected_s : 0;
    json["share"] = phase > 0 ? op.expected_s / phase : 0;
    json["peak"] = peak > 0 ? Json(peak) : Json();
    json["weight_bytes"] = op.weight_bytes;
    json["kv_bytes"] = op.kv_bytes;
    json["act_bytes"] = op.act_bytes;
    json["chip_bytes"] = op.chip_bytes;
    json["bandwidth"] = c.bandwidth;
    json["at_peak_s"] = peak > 0 ? Json(op.flops / peak) : Json();
    json["at_bandwidth_s"] = op.bytes / c.bandwidth;
    for (int w = 0; w < kTimedWalls; ++w) {
      json["on_s"][std::string(wall_name(static_cast<Wall>(w)))] = op.on[w];
    }
  }
}

std::string_view cause(Wall wall) {
  switch (wall) {
    case Wall::compute:
      return "compute-bound";
    case Wall::memory:
      return "memory-bound";
    case Wall::launch:
      return "launch-bound";
    case Wall::interconnect:
      return "bound by communication between devices";
    case Wall::host_link:
      return "bound by the host link";
    default:
      return "bound by power";
  }
}

}  // namespace

std::optional<double> ridge_batch(const Request& request) {
  Request at = request;
  for (double batch = 1; batch <= kMostLandmarkBatch; batch *= 2) {
    at.batch = batch;
    const Prediction p = predict(at);
    // A step that does not fit has the capacity wall; the wall it would otherwise have is the next.
    if ((p.memory.fits ? p.decode.wall : p.decode.next_wall) == Wall::compute) return batch;
  }
  return std::nullopt;
}

std::string roofline_sentence(const Request& r, const Prediction& p) {
  const Ceilings c = make_ceilings(r.system, r.plan, r.stack);
  const int math = static_cast<int>(p.math);
  const Machine& machine = r.system.device;
  const std::string memory = machine.memory().name;
  if (c.peak[math] <= 0) {
    return fmt::format(
        "Decode does {} FLOP per byte of {}; the peak of {} is unknown, so "
        "there is no ridge to compare it with.",
        pretty_number(p.decode.intensity()), memory, machine.name);
  }
  const double ridge = c.peak[math] / c.bandwidth;
  const auto side = [&](const StepEstimate& s) {
    return s.intensity() < ridge ? fmt::format("left of the {} ridge at {}",
                                               dtype_name(c.runs_as[math]), pretty_number(ridge))
                                 : fmt::format("right of the {} ridge at {}",
                                               dtype_name(c.runs_as[math]), pretty_number(ridge));
  };
  std::string text;
  if (!p.memory.fits) {
    text = fmt::format("It does not fit: {} of {} per device. If it did: ",
                       pretty_bytes(p.memory.used()), pretty_bytes(*p.memory.capacity));
  }
  // A step that does not fit has the capacity wall; the wall it would otherwise have is the next.
  const auto why = [&](const StepEstimate& s) {
    return cause(p.memory.fits ? s.wall : s.next_wall);
  };
  text += fmt::format("{} does {} FLOP per byte of {}, {}: {}. Prefill does {}, {}: {}.",
                      p.memory.fits ? "Decode" : "decode", pretty_number(p.decode.intensity()),
                      memory, side(p.decode), why(p.decode), pretty_number(p.prefill.intensity()),
                      p.prefill.intensity() < ridge ? "left of it" : "right of it", why(p.prefill));
  if (p.decode.intensity() < ridge) {
    const std::optional<double> batch = ridge_batch(r);
    if (!batch) {
      text +=
          " No batch brings decode to the ridge at this context: every sequence reads its own "
          "KV cache.";
    } else if (*batch > r.batch) {
      const bool held = !p.memory.fits || !p.memory.capacity || *batch <= p.memory.max_batch;
      text += fmt::format(
          " Decode becomes compute-bound near batch {:.0f}{}.", *batch,
          held ? "" : fmt::format(", beyond the {:.0f} that fit the memory", p.memory.max_batch));
    }
  }
  return text;
}

std::string technique_sentence(const Request& r, const Prediction& p) {
  constexpr std::pair<const char*, bool Plan::*> kTechniqueFlags[] = {
      {"FlashAttention", &Plan::flash},
      {"Kernel fusion", &Plan::fusion},
      {"CUDA graphs", &Plan::graphs},
      {"Paged KV", &Plan::paging},
      {"Continuous batching", &Plan::continuous}};
  std::string text;
  for (const auto& [name, flag] : kTechniqueFlags) {
    if (r.plan.*flag) continue;
    Request with = r;
    with.plan.*flag = true;
    const Prediction q = predict(with);
    std::vector<std::string> effects;
    const auto add = [&](const char* what, double factor) {
      if (factor < 1 - kVisibleChange || factor > 1 + kVisibleChange) {
        effects.push_back(fmt::format("{} x{:.3g}", what, factor));
      }
    };
    add("time to first token", p.ttft_s() / q.ttft_s());
    add("time per token", p.tpot_s() / q.tpot_s());
    if (flag == &Plan::continuous) add("tokens per second", p.tokens_per_s / q.tokens_per_s);
    if (q.memory.max_batch > 0) {
      add("sequences that fit", p.memory.max_batch / q.memory.max_batch);
    }
    text += fmt::format("{}{} {} off", text.empty() ? "" : " ", name,
                        std::string_view(name).ends_with("graphs") ? "are" : "is");
    text += effects.empty() ? ", which changes nothing here."
                            : fmt::format(": {}.", fmt::join(effects, ", "));
  }
  return text;
}

Json roofline_json(const Request& r, const Prediction& p, std::span<const System> others) {
  Json machines = Json::array({machine_json(r.system)});
  for (const System& other : others) machines.push_back(machine_json(other));
  Json prediction = to_json(r, p);
  add_op_fields(prediction["ops"], r, p);
  return {{"machines", machines},
          {"landmarks", landmarks_json(r, p)},
          {"sentence", roofline_sentence(r, p)},
          {"techniques", technique_sentence(r, p)},
          {"prediction", prediction}};
}

}  // namespace ridge
