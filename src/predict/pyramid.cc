#include "predict/pyramid.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "machine/atlas.h"
#include "roofline/pipeline.h"

namespace ridge {
namespace {

constexpr double kTileBytes = 128 * 128 * 2;  // a 128 x 128 tile of 16-bit elements
constexpr double kPageTokens = 16;            // what inference engines allocate at once
double layer_bytes(const Model& model) {      // mean over the layers, for hybrids
  double bytes = 0;
  for (const LayerGroup& group : model.groups) {
    for (const Linear& linear : group.layer.linears) bytes += group.count * linear.bytes();
  }
  return bytes / std::max(1, model.layers());
}

class Residents {
 public:
  explicit Residents(const Machine& machine) : machine_(machine) {}

  void add(const Level* level, const char* name, double bytes, std::string note) {
    if (!level || bytes <= 0) return;
    list_.push_back({{"level", level->name},
                     {"name", name},
                     {"bytes", bytes},
                     {"capacity", level->capacity ? Json(*level->capacity) : Json()},
                     {"note", std::move(note)}});
  }
  void add(const char* level, const char* name, double bytes, std::string note) {
    add(machine_.level(level), name, bytes, std::move(note));
  }
  Json take() { return std::move(list_); }

 private:
  const Machine& machine_;
  Json list_ = Json::array();
};

}  // namespace

std::vector<PyramidPiece> pieces_of(const Model& model) {
  return {{"tile", kTileBytes},
          {"KV page", kPageTokens * kv_bytes_per_token_full(model, model.kv_format)},
          {"layer", layer_bytes(model)},
          {"model", weight_bytes(model)}};
}

Maybe count_in(const Level& level, const PyramidPiece& piece) {
  if (!level.capacity || piece.bytes <= 0) return std::nullopt;
  return std::floor(*level.capacity / piece.bytes) * level.instances;
}

Json pyramid_json(const System& system, const Model& model) {
  const Machine& machine = system.device;
  Json out;
  out["system"] = {{"name", system.name()},
                   {"devices", system.devices()},
                   {"devices_per_node", system.devices_per_node},
                   {"nodes", system.nodes}};
  out["machine"] = machine_to_json(machine);
  out["ridge"] = Json::object();
  for (int i = 0; i < kDTypeCount; ++i) {
    const DType dtype = static_cast<DType>(i);
    if (const Maybe ridge = machine.ridge(dtype))
      out["ridge"][std::string(dtype_name(dtype))] = *ridge;
  }
  out["fits"] = {{"model", model.name}, {"pieces", Json::array()}};
  for (const PyramidPiece& piece : pieces_of(model)) {
    Json counts = Json::object();
    for (const Level& level : machine.levels) {
      const Maybe count = count_in(level, piece);
      counts[level.name] = count ? Json(*count) : Json();
    }
    out["fits"]["pieces"].push_back(
        {{"name", piece.name}, {"bytes", piece.bytes}, {"count", std::move(counts)}});
  }
  return out;
}

Json residents_json(const Request& r, const Prediction& p) {
  const Machine& machine = r.system.device;
  Residents residents(machine);
  // A GEMM as kernels run it: the default tile in the type that most GEMMs run in.
  TileShape tile;
  tile.dtype = p.math;
  residents.add("registers", "accumulators", tile.m * tile.n * 4,
                fmt::format("{:.0f} x {:.0f} sums in fp32, in each unit", tile.m, tile.n));
  residents.add("L1", "tiles", tile.stages * tile.stage_bytes(),
                fmt::format("{} stages of {:.0f} x {:.0f} x {:.0f} operands in {}, in each unit",
                            tile.stages, tile.m, tile.n, tile.k, dtype_name(tile.dtype)));
  const double rows = std::max(1.0, r.batch / r.plan.dp / r.plan.pp) * (1 + r.plan.speculate);
  residents.add(machine.cache(), "hidden state", rows * r.model->hidden * 2,
                fmt::format("{:.0f} rows of {} between two operators", rows, r.model->hidden));
  const Level* memory = &machine.memory();
  residents.add(memory, "weights", p.memory.weights, "read once per step");
  residents.add(
      memory, "KV cache", p.memory.kv,
      fmt::format("{:.0f} sequences of {:.0f} tokens", std::ceil(r.batch / r.plan.dp), r.context));
  residents.add(memory, "activations", p.memory.activations, "the most within a step");
  residents.add(memory, "overhead", p.memory.overhead, "context, graphs, workspaces");
  residents.add("host", "offloaded weights",
                r.plan.offload * make_rank(*r.model, r.plan).weight_bytes,
                "cross the host link every step");
  return residents.take();
}

}  // namespace ridge
