#include "page/learn.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "cost/matmul.h"
#include "machine/atlas.h"
#include "machine/summary.h"
#include "model/read.h"
#include "page/api_options.h"
#include "predict/request.h"
#include "roofline/roofline.h"

namespace ridge {
namespace {

constexpr const char* kExampleMachine = "h200";
constexpr const char* kExampleModel = "llama-3-8b";
// A cache that holds a quarter of the weights or less serves next to none of a cyclic read.
constexpr double kBeyondCache = 4;
constexpr int64_t kLongestStop = 8192;  // tokens of context that the stops ask for
constexpr double kLargestSide = 1e7;

bool has_measured_memory(const Machine& machine) {
  return std::any_of(machine.levels.begin(), machine.levels.end(), [&](const Level& level) {
    const Provenance* from = provenance_of(machine, "levels." + level.name + ".read_bandwidth");
    return level.scope == Scope::device && level.read_bandwidth && from &&
           from->origin == Origin::measured;
  });
}

// The stops ask about attention, its cache and one weight read a token: dense models of plain
// attention answer all of them.
bool teaches(const Model& model) {
  return model.max_context >= kLongestStop &&
         std::all_of(model.groups.begin(), model.groups.end(), [](const LayerGroup& group) {
           return group.layer.mixer.kind == MixerKind::attention && group.layer.mixer.window == 0 &&
                  !group.layer.has_moe();
         });
}

// The smallest model that cannot live in the last cache; empty where none is large enough.
std::string model_beyond_cache(const Machine& machine) {
  const Level* cache = machine.cache();
  const double held = cache ? cache->total_capacity().value_or(0) : 0;
  std::string name;
  double least = 0;
  for (const std::string& candidate : builtin_model_names()) {
    const Model model = find_model(candidate);
    const double bytes = weight_bytes(model);
    if (bytes <= kBeyondCache * held || (!name.empty() && bytes >= least) || !teaches(model)) {
      continue;
    }
    name = candidate;
    least = bytes;
  }
  return name;
}

Json example_json(std::string why) {
  return {{"machine", kExampleMachine},
          {"model", kExampleModel},
          {"measured", false},
          {"streams_from", find_machine(kExampleMachine).memory().name},
          {"why", std::move(why)}};
}

double side_of(const ApiOptions& options, const char* name, double otherwise) {
  const double value = number_option(options, name, otherwise);
  if (!(value >= 1 && value <= kLargestSide)) {
    throw OptionError(name, fmt::format("{} must be from 1 to {:.0f}", name, kLargestSide));
  }
  return value;
}

Machine machine_of(const ApiOptions& options) {
  const std::string* name = find_option(options, "machine");
  try {
    return find_system(name ? *name : kExampleMachine, Sources::names_only).device;
  } catch (const Error& error) {
    throw OptionError("machine", error.what());
  }
}

DType dtype_of(const ApiOptions& options, const Machine& machine) {
  const std::string* name = find_option(options, "dtype");
  try {
    return name ? dtype_from_name(*name) : tile_dtype(machine);
  } catch (const Error& error) {
    throw OptionError("dtype", error.what());
  }
}

}  // namespace

Json learn_json() {
  const std::optional<Machine> file = user_machine("this");
  if (!file || !has_measured_memory(*file)) {
    return example_json(
        "This computer has not been measured, so the stops compute an example. `ridge measure` "
        "takes 20 s; reload the page afterwards to learn with your own machine.");
  }
  const Machine machine = find_machine("this");
  const std::string model = model_beyond_cache(machine);
  if (model.empty()) {
    return example_json(
        "No built-in model is larger than four times this computer's last cache, so the stops "
        "compute an example.");
  }
  return {{"machine", "this"},
          {"model", model},
          {"measured", true},
          {"streams_from", machine.memory().name},
          {"why", fmt::format("{}, as `ridge measure` found it. {} is the smallest built-in model "
                              "whose weights exceed four times its last cache, so they stream from "
                              "{}.",
                              machine.title, find_model(model).title, machine.memory().name)}};
}

Json work_of_product(const ApiOptions& options) {
  if (const std::string* op = find_option(options, "op"); op && *op != "matmul") {
    throw OptionError("op", fmt::format("op is matmul, not '{}'", op->substr(0, 64)));
  }
  const Machine machine = machine_of(options);
  const DType dtype = dtype_of(options, machine);
  const Maybe peak = machine.peak_of(dtype);
  const Maybe bandwidth = machine.memory().read_bandwidth;
  if (!peak || !bandwidth) {
    throw OptionError(
        "dtype", fmt::format("the {} of {} is unknown",
                             peak ? "memory bandwidth" : std::string(dtype_name(dtype)) + " peak",
                             machine.name));
  }
  const double bytes_each = dtype_bits(dtype) / 8;
  const MatmulShape shape{
      .m = side_of(options, "m", 1),
      .k = side_of(options, "k", 4096),
      .n = side_of(options, "n", 4096),
      .weight_bits = dtype_bits(dtype),
      .in_bytes = bytes_each,
      .out_bytes = std::max(2.0, bytes_each),  // results stay in 16 bits or more
      .math = dtype};
  const Work work = matmul_work(shape);
  const double ridge = *peak / *bandwidth;
  const double intensity = work.flops / work.device_bytes();
  // FLOPs and activations grow with the rows, weights do not: m f = ridge (w + m a).
  const double spare = (work.flops - ridge * work.act_bytes) / shape.m;
  return {{"op", "matmul"},
          {"machine", machine.name},
          {"dtype", dtype_name(dtype)},
          {"m", shape.m},
          {"k", shape.k},
          {"n", shape.n},
          {"flops", work.flops},
          {"bytes", work.device_bytes()},
          {"weight_bytes", work.weight_bytes},
          {"act_bytes", work.act_bytes},
          {"intensity", intensity},
          {"peak", *peak},
          {"bandwidth", *bandwidth},
          {"ridge", ridge},
          {"at_peak_s", work.flops / *peak},
          {"at_bandwidth_s", work.device_bytes() / *bandwidth},
          {"wall", wall_name(intensity < ridge ? Wall::memory : Wall::compute)},
          {"share_of_peak", attainable(*peak, *bandwidth, intensity) / *peak},
          {"rows_at_ridge", spare > 0 ? Json(ridge * work.weight_bytes / spare) : Json()}};
}

}  // namespace ridge
