#include "plan/candidates.h"

#include <algorithm>

#include "base/error.h"
#include "machine/atlas.h"
#include "predict/layout.h"
#include "predict/step_times.h"

namespace ridge {
namespace {

bool has_experts(const Model& model) {
  return std::any_of(model.groups.begin(), model.groups.end(),
                     [](const LayerGroup& group) { return group.layer.has_moe(); });
}

bool holds_a_sequence(const Request& request) {
  try {
    return kv_pages(request, 16) > 0;
  } catch (const Error&) {
    return false;  // a plan that cannot be
  }
}

void add_layouts(const Request& base, std::vector<Request>& candidates) {
  const int node = base.system.devices_per_node;
  for (int tp = 1; tp <= node; tp *= 2) {
    if (node % tp != 0 || uneven_heads(*base.model, tp) > 0) continue;
    Request request = base;
    request.idle = 0;
    request.plan.tp = tp;
    request.plan.dp = request.plan.ep = 1;
    request.plan.pp = 1;
    const int most = std::min(base.system.devices() / tp, base.model->layers());
    while (!holds_a_sequence(request) && 2 * request.plan.pp <= most) request.plan.pp *= 2;
    candidates.push_back(request);
    if (tp > 1 && has_experts(*base.model)) {
      request.plan.ep = tp;
      candidates.push_back(request);
    }
  }
}

}  // namespace

std::string priced_machines() {
  std::string names;
  for (const Machine& machine : all_machines()) {
    const bool several = !machine.links.empty() && machine.links.front().max_devices >= 8;
    if (machine.kind != MachineKind::gpu || !machine.price_per_hour) continue;
    names += (names.empty() ? "" : ",") + std::string(several ? "8x" : "") + machine.name;
  }
  if (names.empty()) {
    throw OptionError("machine", "no machine of the atlas has a price: name some with --machine");
  }
  return names;
}

std::vector<Request> plan_candidates(RequestOptions options, Sources sources, size_t max_points) {
  if (options.machine.empty()) options.machine = priced_machines();
  if (!options.dp.empty()) {
    throw OptionError("dp", "--dp: a plan finds the number of replicas itself; leave it out");
  }
  const bool given = !options.tp.empty() || !options.pp.empty();
  if (options.tp.empty()) options.tp = "1";  // replaced below where no layout is given
  const RequestGrid grid = make_requests(options, sources, max_points);
  std::vector<Request> candidates;
  for (const Request& request : grid.requests) {
    if (given) {
      candidates.push_back(request);
    } else {
      add_layouts(request, candidates);
    }
  }
  return candidates;
}

}  // namespace ridge
