#include "predict/sweep.h"

#include <algorithm>
#include <numeric>

namespace ridge {
namespace {

double per_user(const Prediction& p) { return 1 / p.tpot_s(); }

double per_device(const Request& r, const Prediction& p) {
  return p.tokens_per_s / r.plan.devices();
}

// Sorted by speed for a user, the front is where throughput sets a new record.
std::vector<bool> pareto_front(const RequestGrid& grid, const std::vector<Prediction>& results) {
  std::vector<size_t> order(results.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    const double left = per_user(results[a]), right = per_user(results[b]);
    if (left != right) return left > right;
    return per_device(grid.requests[a], results[a]) > per_device(grid.requests[b], results[b]);
  });
  std::vector<bool> front(results.size());
  double best = 0;
  for (const size_t i : order) {
    const double throughput = per_device(grid.requests[i], results[i]);
    if (!results[i].memory.fits || throughput <= best) continue;
    best = throughput;
    front[i] = true;
  }
  return front;
}

}  // namespace

Json sweep_json(const RequestGrid& grid, const std::vector<Prediction>& results) {
  Json sweep = Json::array(), axes = Json::array(), points = Json::array();
  for (const SweepAxis& axis : grid.axes) {
    sweep.push_back(axis.name);
    axes.push_back({{"name", axis.name}, {"labels", axis.labels}});
  }
  const std::vector<bool> front = pareto_front(grid, results);
  for (size_t i = 0; i < results.size(); ++i) {
    const Request& r = grid.requests[i];
    const Prediction& p = results[i];
    Json point = Json::object();
    for (size_t a = 0; a < grid.axes.size(); ++a) {
      point[grid.axes[a].name] = grid.axes[a].labels[grid.at[i][a]];
    }
    point["ttft_s"] = p.ttft_s();
    point["tpot_s"] = p.tpot_s();
    point["tpot_low_s"] = p.decode.low_s / p.tokens_per_step;
    point["tpot_high_s"] = p.decode.high_s / p.tokens_per_step;
    point["tokens_per_s"] = p.tokens_per_s;
    point["roof_tokens_per_s"] = p.roof_tokens_per_s;
    point["tokens_per_s_per_user"] = per_user(p);
    point["tokens_per_s_per_device"] = per_device(r, p);
    point["wall"] = wall_name(p.decode.wall);
    point["next_wall"] = wall_name(p.decode.next_wall);
    point["mfu"] = p.decode.mfu;
    point["mbu"] = p.decode.mbu;
    point["memory_bytes"] = p.memory.used();
    point["fits"] = p.memory.fits;
    point["max_batch"] = p.memory.capacity ? Json(p.memory.max_batch) : Json();
    if (p.endpoint) {
      point["serving"] = {{"running", p.endpoint->running},
                          {"ttft_s", p.endpoint->ttft_s},
                          {"tpot_s", p.endpoint->tpot_s},
                          {"tokens_per_s", p.endpoint->tokens_per_s}};
    }
    point["pareto"] = bool(front[i]);
    points.push_back(std::move(point));
  }
  return {{"sweep", sweep}, {"axes", axes}, {"points", points}};
}

}  // namespace ridge
