#include "serve/serving_json.h"

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
  Json streams_from, peak;
  if (system && stack) {
    const Ceilings ceilings = serving_ceilings(rank, *system, *stack);
    streams_from = {{"level", ceilings.memory_name},
                    {"bytes_per_s", number_or_null(ceilings.bandwidth)},
                    {"measured", is_measured(system->device, ceilings.memory_name)}};
    peak = number_or_null(ceilings.peak[size_t(rank.math)]);
  }
  const Format& kv = plan.kv ? *plan.kv : model.kv_format;
  return {{"serving", true},
          {"model", model_name},
          {"machine", system ? Json(system->name()) : Json(nullptr)},
          {"weights", (plan.weights ? *plan.weights : main_weight_format(model)).name},
          {"kv", kv.name},
          {"device", runner.device()},
          {"max_context", limits.max_context},
          {"max_sequences", limits.max_sequences},
          {"max_drafts", limits.max_drafts},
          {"page_tokens", runner.options().page_tokens},
          {"pages", runner.page_count()},
          {"streams_from", streams_from},
          {"peak_flops_per_s", peak},
          {"weight_bytes", rank.weight_bytes},
          {"kv_bytes_per_token", kv_bytes_per_token_full(model, kv)},
          {"profiles", !runner.queues_steps()}};
}

Json not_serving_json(const std::string& why) { return {{"serving", false}, {"why", why}}; }

}  // namespace ridge
