#include "predict/training.h"

#include <cmath>

#include "predict/memory.h"

namespace ridge {
namespace {

constexpr double kActivationBytes = 34;  // per token, hidden column and layer

// Bytes that every device holds, whatever their number, against those that they share.
struct Split {
  double replicated = 0, shared = 0;
};

Split split(const TrainingMemory& whole, Sharding sharding) {
  // With infinitely many devices only the replicated bytes remain.
  const double replicated = shard(whole, sharding, INFINITY).total();
  return {replicated, whole.total() - replicated};
}

std::optional<double> fewest_devices(const TrainingMemory& whole, Sharding sharding,
                                     const Machine& machine, double capacity) {
  if (whole.total() + overhead_bytes(machine, 1) <= capacity) return 1;
  const Split bytes = split(whole, sharding);
  const double room = capacity - overhead_bytes(machine, 2) - bytes.replicated;
  if (room <= 0 || bytes.shared <= 0) return std::nullopt;
  return std::max(2.0, std::ceil(bytes.shared / room));
}

Json bytes_json(const TrainingMemory& m) {
  return Json{{"weights_bytes", m.weights},
              {"gradients_bytes", m.gradients},
              {"master_weights_bytes", m.master_weights},
              {"moments_bytes", m.moments},
              {"activation_bytes", m.activations},
              {"total_bytes", m.total()}};
}

Json or_null(const std::optional<double>& value) { return value ? Json(*value) : Json(); }

}  // namespace

std::string_view sharding_name(Sharding sharding) {
  static constexpr std::string_view kNames[] = {"none", "zero1", "zero2", "zero3"};
  return kNames[static_cast<int>(sharding)];
}

TrainingMemory training_memory(const Model& model, double batch, double sequence) {
  const double n = parameters(model);
  TrainingMemory m;
  m.weights = 2 * n;
  m.gradients = 2 * n;
  m.master_weights = 4 * n;
  m.moments = 8 * n;
  m.activations = kActivationBytes * sequence * batch * model.hidden * model.layers();
  return m;
}

TrainingMemory shard(const TrainingMemory& whole, Sharding sharding, double devices) {
  TrainingMemory m = whole;
  if (sharding >= Sharding::zero1) {
    m.master_weights /= devices;
    m.moments /= devices;
  }
  if (sharding >= Sharding::zero2) m.gradients /= devices;
  if (sharding >= Sharding::zero3) m.weights /= devices;
  return m;
}

TrainingFit fit_training(const Model& model, const System& system, double batch, double sequence) {
  TrainingFit fit;
  fit.batch = batch;
  fit.sequence = sequence;
  fit.whole = training_memory(model, batch, sequence);
  fit.overhead = overhead_bytes(system.device, system.devices());
  fit.capacity = system.device.memory().total_capacity();
  for (int i = 0; i < kShardingCount; ++i) {
    const Sharding sharding = static_cast<Sharding>(i);
    ShardingFit& each = fit.shardings[i];
    each.device = shard(fit.whole, sharding, system.devices());
    if (!fit.capacity) continue;
    each.fits = each.device.total() + fit.overhead <= *fit.capacity;
    each.fewest_devices = fewest_devices(fit.whole, sharding, system.device, *fit.capacity);
  }
  return fit;
}

Json training_json(const Model& model, const System& system, const TrainingFit& fit) {
  Json shardings = Json::array();
  for (int i = 0; i < kShardingCount; ++i) {
    Json each{{"sharding", sharding_name(static_cast<Sharding>(i))}};
    each.update(bytes_json(fit.shardings[i].device));
    each["fits"] = fit.shardings[i].fits;
    each["fewest_devices"] = or_null(fit.shardings[i].fewest_devices);
    shardings.push_back(std::move(each));
  }
  return Json{{"model", model.name},
              {"machine", system.name()},
              {"devices", system.devices()},
              {"parameters", parameters(model)},
              {"batch", fit.batch},
              {"sequence", fit.sequence},
              {"whole", bytes_json(fit.whole)},
              {"overhead_bytes", fit.overhead},
              {"capacity_bytes", or_null(fit.capacity)},
              {"per_device", shardings}};
}

}  // namespace ridge
