#include "live/serving_json.h"

#include "roofline/ceilings.h"
#include "step/lower.h"
#include "step/rank.h"

namespace ridge {
namespace {

Json number_or_null(double value) { return value > 0 ? Json(value) : Json(nullptr); }

bool is_measured(const Machine& machine, const std::string& level) {
  if (machine.kind == MachineKind::cpu)
    return true;  // cpu_roof_system() times reads of the weights
  const Provenance* source = provenance_of(machine, "levels." + level + ".read_bandwidth");
  return source != nullptr && source->origin == Origin::measured;
}

// The same roof by three sources, null where one does not know it: what the vendor states (or the
// clock and the lanes give), what was measured, and what the stack is expected to reach in a decode
// step. The bandwidth is of the level that the weights stream from.
Json roofs_json(const Machine& machine, const Ceilings& ceilings, DType math) {
  const auto type = size_t(math);
  const DType runs = ceilings.runs_as[type];
  const Level* level = machine.level(ceilings.memory_name);
  const auto* bandwidth_source =
      provenance_of(machine, "levels." + ceilings.memory_name + ".read_bandwidth");
  const bool stated = level != nullptr && machine.kind != MachineKind::cpu &&
                      (bandwidth_source == nullptr || bandwidth_source->origin != Origin::measured);
  const double nominal = stated ? level->read_bandwidth.value_or(0) : 0;
  const double measured = is_measured(machine, ceilings.memory_name) ? ceilings.bandwidth : 0;
  const Factors& decode = ceilings.factors_of(1);
  const auto matmul = size_t(OpKind::matmul);
  const auto roof = [](const char* kind, double bandwidth, double peak) {
    return Json{{"kind", kind},
                {"bytes_per_s", number_or_null(bandwidth)},
                {"flops_per_s", number_or_null(peak)}};
  };
  return Json::array({roof("datasheet", nominal, ceilings.peak[type]),
                      roof("measured", measured, machine.sustained[size_t(runs)].value_or(0)),
                      roof("predicted", ceilings.bandwidth / decode.memory[matmul],
                           ceilings.peak[type] / ceilings.factors.compute[matmul])});
}

// The ceilings that StepPredictor uses.
Ceilings serving_ceilings(const Rank& rank, const System& system, const Stack& stack) {
  Ceilings ceilings = make_ceilings(system, rank.plan, stack, rank.model);
  std::vector<Op> ops;
  const Sequences one;
  lower(rank, {&one, 1}, ops);
  double streamed = 0;
  for (const Op& op : ops) streamed += op.count * op.work.device_bytes();
  place_working_set(ceilings, system.device, streamed);
  return ceilings;
}

}  // namespace

Json serving_json(const std::string& model_name, const Runner& runner, const ServedLimits& limits,
                  const std::optional<System>& system, const std::optional<Stack>& stack) {
  const Model& model = runner.weights().model;
  const Plan plan = runner.plan();
  const Rank rank = make_rank(model, plan);
  Plan whole = plan;  // as if one rank had all of it
  whole.tp = whole.pp = whole.ep = 1;
  Json streams_from, peak, roofs = Json::array();
  if (system && stack) {
    const Ceilings ceilings = serving_ceilings(rank, *system, *stack);
    streams_from = {{"level", ceilings.memory_name},
                    {"bytes_per_s", number_or_null(ceilings.bandwidth)},
                    {"measured", is_measured(system->device, ceilings.memory_name)}};
    peak = number_or_null(ceilings.peak[size_t(rank.math)]);
    roofs = roofs_json(system->device, ceilings, rank.math);
  }
  const Format& kv = plan.kv ? *plan.kv : model.kv_format;
  return {{"serving", true},
          {"model", model_name},
          {"machine", system ? Json(system->name()) : Json(nullptr)},
          {"weights", (plan.weights ? *plan.weights : main_weight_format(model)).name},
          {"kv", kv.name},
          {"device", runner.device()},
          {"replicas", limits.replicas},
          {"max_context", limits.max_context},
          {"max_sequences", limits.max_sequences},
          {"max_drafts", limits.max_drafts},
          {"page_tokens", runner.options().page_tokens},
          {"pages", limits.replicas * runner.page_count()},
          {"streams_from", streams_from},
          {"peak_flops_per_s", peak},
          {"roofs", roofs},
          {"weight_bytes", make_rank(model, whole).weight_bytes},
          {"kv_bytes_per_token", kv_bytes_per_token_full(model, kv)},
          {"profiles", !runner.queues_steps()}};
}

Json not_serving_json(const std::string& why) { return {{"serving", false}, {"why", why}}; }

}  // namespace ridge
