#include "cli/predict_training.h"

#include <fmt/format.h>

#include "base/text.h"
#include "base/units.h"
#include "predict/training.h"

namespace ridge {
namespace {

using Row = std::vector<std::string>;

TrainingFit fit_of(const Request& r) {
  return fit_training(*r.model, r.system, r.batch, r.context);
}

const char* describe(Sharding sharding) {
  static constexpr const char* kTexts[] = {"none (plain data parallel)", "ZeRO-1: optimizer",
                                           "ZeRO-2: + gradients", "ZeRO-3 (FSDP): + weights"};
  return kTexts[static_cast<int>(sharding)];
}

Table whole_table(const TrainingFit& fit) {
  Table table({"part", "type", "bytes", "share", ""});
  const double total = fit.whole.total();
  const auto add = [&](const char* name, const char* type, double bytes) {
    table.add(
        {name, type, pretty_bytes(bytes), pretty_percent(bytes / total), bar(bytes / total, 24)});
  };
  add("weights", "16 bit, 2 B/parameter", fit.whole.weights);
  add("gradients", "16 bit, 2 B/parameter", fit.whole.gradients);
  add("master weights", "fp32, 4 B/parameter", fit.whole.master_weights);
  add("Adam moments", "2 x fp32, 8 B/parameter", fit.whole.moments);
  add("activations", "34 B per token, hidden and layer", fit.whole.activations);
  table.rule();
  table.add({"total", "", pretty_bytes(total), "", ""});
  return table;
}

Table device_table(const TrainingFit& fit) {
  Table table({"sharded", "weights", "gradients", "optimizer", "activations", "overhead",
               "per device", "fits", "fewest devices"});
  for (int i = 0; i < kShardingCount; ++i) {
    const ShardingFit& each = fit.shardings[i];
    const TrainingMemory& m = each.device;
    table.add({describe(static_cast<Sharding>(i)), pretty_bytes(m.weights),
               pretty_bytes(m.gradients), pretty_bytes(m.optimizer()), pretty_bytes(m.activations),
               pretty_bytes(fit.overhead), pretty_bytes(m.total() + fit.overhead),
               !fit.capacity ? "?"
               : each.fits   ? "yes"
                             : "no",
               !fit.capacity         ? "?"
               : each.fewest_devices ? fmt::format("{:.0f}", *each.fewest_devices)
                                     : "none"});
  }
  return table;
}

void print_text(const Request& r) {
  const TrainingFit fit = fit_of(r);
  fmt::print(
      "Training {} with Adam in mixed precision: {} parameters, {:.0f} x {:.0f} tokens per "
      "device\n\n{}\n",
      paint(Colour::bold, r.model->title.empty() ? r.model->name : r.model->title),
      pretty_count(parameters(*r.model)), fit.batch, fit.sequence, whole_table(fit).text());
  fmt::print("On {}: {} data-parallel device{}, {} each\n{}\n",
             paint(Colour::bold, r.system.name()), r.system.devices(),
             r.system.devices() == 1 ? "" : "s",
             fit.capacity ? pretty_bytes(*fit.capacity) : std::string("unknown memory"),
             device_table(fit).text());
}

Table csv_table(const RequestGrid& grid) {
  Table table({"model", "machine", "devices", "batch", "sequence", "sharding", "weights_bytes",
               "gradients_bytes", "master_weights_bytes", "moments_bytes", "activation_bytes",
               "overhead_bytes", "capacity_bytes", "fits", "fewest_devices"});
  const auto number = [](double v) { return fmt::format("{:.6g}", v); };
  const auto known = [&](const std::optional<double>& v) { return v ? number(*v) : ""; };
  for (const Request& r : grid.requests) {
    const TrainingFit fit = fit_of(r);
    for (int i = 0; i < kShardingCount; ++i) {
      const ShardingFit& each = fit.shardings[i];
      const TrainingMemory& m = each.device;
      table.add({r.model->name, r.system.name(), std::to_string(r.system.devices()),
                 number(fit.batch), number(fit.sequence),
                 std::string(sharding_name(static_cast<Sharding>(i))), number(m.weights),
                 number(m.gradients), number(m.master_weights), number(m.moments),
                 number(m.activations), number(fit.overhead), known(fit.capacity),
                 each.fits ? "true" : "false", known(each.fewest_devices)});
    }
  }
  return table;
}

void print_json(const RequestGrid& grid) {
  Json sweep = Json::array(), points = Json::array();
  for (const SweepAxis& axis : grid.axes) sweep.push_back(axis.name);
  for (const Request& r : grid.requests) {
    points.push_back(training_json(*r.model, r.system, fit_of(r)));
  }
  fmt::print("{}\n", grid.axes.empty() ? points.front().dump(2)
                                       : Json{{"sweep", sweep}, {"points", points}}.dump(1));
}

}  // namespace

void print_training(const RequestGrid& grid, TrainingOutput output) {
  if (output == TrainingOutput::json) return print_json(grid);
  if (output == TrainingOutput::csv) {
    fmt::print("{}", csv_table(grid).csv());
    return;
  }
  for (const Request& r : grid.requests) print_text(r);
  fmt::print("{}",
             paint(Colour::dim,
                   "Activations assume flash attention and no recomputation. Fewest devices: the "
                   "smallest number of such devices that holds it; none: no number does, because "
                   "the unsharded part alone is too large.\n"));
}

}  // namespace ridge
