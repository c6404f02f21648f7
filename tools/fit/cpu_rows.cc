// Times the operators of the CPU engine inside whole steps, for the figures of the stack `ridge`:
// random models whose shapes are not the lab's. One JSON object a line.
//
//     ridge_cpu_rows > rows.jsonl && tools/fit/cpu.py atlas/stacks/ridge.json rows.jsonl
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "engine/runner/profile.h"
#include "lab/lab_engine.h"
#include "step/lower.h"

namespace ridge {
namespace {

struct RowsStep {
  int batch, context, fresh;
};

struct RowsModel {
  const char* name;
  LabShape shape;
  std::vector<Storage> storages;
  std::vector<KvStorage> caches;
  std::vector<RowsStep> steps;
};

const std::vector<Storage> kAllStorages{Storage::f32,  Storage::f16,  Storage::bf16, Storage::q8_0,
                                        Storage::q6_k, Storage::q5_1, Storage::q5_0, Storage::q5_k,
                                        Storage::q4_1, Storage::q4_0, Storage::q4_k};

std::vector<RowsModel> rows_models() {
  const LabShape small{
      .hidden = 256, .layers = 6, .heads = 4, .kv_heads = 2, .ffn = 768, .vocab = 2048};
  const LabShape middle{
      .hidden = 640, .layers = 6, .heads = 10, .kv_heads = 5, .ffn = 1792, .vocab = 6016};
  const LabShape large{
      .hidden = 1280, .layers = 6, .heads = 20, .kv_heads = 4, .ffn = 3584, .vocab = 12032};
  const LabShape wide{
      .hidden = 384, .layers = 4, .heads = 6, .kv_heads = 6, .ffn = 1024, .vocab = 2048};
  const LabShape grouped{
      .hidden = 640, .layers = 4, .heads = 10, .kv_heads = 1, .ffn = 1280, .vocab = 2048};
  const LabShape narrow{.hidden = 256,
                        .layers = 6,
                        .heads = 8,
                        .kv_heads = 4,
                        .head_dim = 32,
                        .ffn = 640,
                        .vocab = 1024};
  const LabShape deep{
      .hidden = 384, .layers = 10, .heads = 6, .kv_heads = 3, .ffn = 1024, .vocab = 2048};
  // Beyond an L3 of 260 MB in 4 bits too.
  const LabShape tall{
      .hidden = 1536, .layers = 28, .heads = 24, .kv_heads = 4, .ffn = 4096, .vocab = 16000};
  const std::vector<RowsStep> decode{{1, 100, 1}};
  const std::vector<RowsStep> all{{1, 100, 1}, {2, 100, 1},  {3, 100, 1},  {5, 100, 1},
                                  {8, 100, 1}, {12, 100, 1}, {24, 100, 1}, {48, 100, 1},
                                  {1, 0, 20},  {1, 0, 96},   {1, 0, 200},  {1, 0, 400}};
  const std::vector<RowsStep> contexts{{1, 200, 1}, {1, 700, 1}, {1, 3000, 1}, {1, 10000, 1},
                                       {4, 700, 1}, {1, 700, 4}, {1, 700, 50}};
  const std::vector<RowsStep> far{{1, 1500, 1}, {1, 6000, 1}, {1, 12000, 1}, {1, 20000, 1}};
  const std::vector<RowsStep> large_steps{
      {1, 100, 1}, {4, 100, 1}, {32, 100, 1}, {1, 0, 200}, {1, 0, 500}};
  const std::vector<KvStorage> f16{KvStorage::f16};
  const std::vector<KvStorage> every{KvStorage::f32, KvStorage::f16, KvStorage::bf16,
                                     KvStorage::int8};
  return {{"small", small, kAllStorages, f16, decode},
          {"small", small, {Storage::bf16, Storage::q8_0, Storage::q4_0, Storage::f32}, f16, all},
          {"middle", middle, kAllStorages, f16, all},
          {"large", large, kAllStorages, f16, decode},
          {"wide", wide, {Storage::q8_0}, every, contexts},
          {"grouped", grouped, {Storage::q8_0}, every, contexts},
          {"narrow", narrow, {Storage::bf16}, f16, contexts},
          {"tall", tall, {Storage::bf16, Storage::q8_0, Storage::q4_0}, f16, large_steps},
          {"deep", deep, {Storage::q8_0, Storage::bf16}, every, far}};
}

double median_of(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + long(values.size() / 2), values.end());
  return values[values.size() / 2];
}

void print_step(Lab& lab, Runner& runner, const RowsModel& model, Storage storage, KvStorage kv,
                const RowsStep& what) {
  LabPredictor predictor(lab, runner);
  LabStep step(runner, what.batch, what.context, what.fresh);
  const Sequences sequences = step.sequences();
  const StepEstimate estimate = predictor.step(sequences);
  const LabTime whole = lab.time([&] { step(); }, 0.1);
  std::map<std::string, std::vector<double>> seconds;
  const int repeats = std::clamp(int(0.12 / whole.seconds), 7, 60);
  for (int r = 0; r < repeats; ++r) {
    Profile profile;
    runner.set_profile(&profile);
    step();
    runner.set_profile(nullptr);
    for (const Profile::Entry& e : profile.entries()) {
      seconds[e.name].push_back(e.seconds / double(e.calls));
    }
  }
  const Rank rank = make_rank(runner.weights().model, runner.plan());
  std::vector<Op> ops;
  lower(rank, {&sequences, 1}, ops);
  nlohmann::json list = nlohmann::json::array();
  double streamed = 0;
  for (const Op& op : ops) {
    streamed += op.count * op.work.device_bytes();
    nlohmann::json row{{"op", op.name},
                       {"kind", op_kind_name(op.kind)},
                       {"count", op.count},
                       {"flops", op.work.flops},
                       {"vector_flops", op.work.vector_flops},
                       {"weight_bytes", op.work.weight_bytes},
                       {"kv_bytes", op.work.kv_bytes},
                       {"act_bytes", op.work.act_bytes}};
    if (const auto* s = std::get_if<MatmulShape>(&op.shape)) {
      row["m"] = s->m, row["k"] = s->k, row["n"] = s->n;
    }
    if (seconds.count(op.name)) row["seconds"] = median_of(seconds[op.name]);
    list.push_back(std::move(row));
  }
  const Machine& machine = predictor.system().device;
  nlohmann::json out{{"model", model.name},
                     {"format", storage_info(storage).name},
                     {"kv", int(kv)},
                     {"batch", what.batch},
                     {"context", what.context},
                     {"fresh", what.fresh},
                     {"heads", model.shape.heads},
                     {"kv_heads", model.shape.kv_heads},
                     {"head_dim", model.shape.head_dim},
                     {"seconds", whole.seconds},
                     {"doubt", whole.doubt},
                     {"expected", estimate.expected_s},
                     {"weights", runner.weights().bytes},
                     {"repacked", runner.repacked_bytes()},
                     {"streamed", streamed},
                     {"cache", *machine.cache()->total_capacity()},
                     {"cache_rate", machine.cache()->read_bandwidth.value_or(0)},
                     {"memory_rate", machine.memory().read_bandwidth.value_or(0)},
                     {"launch", machine.launch.persistent.value_or(0)},
                     {"plain", predictor.bandwidth(sequences)},
                     {"isa", machine.isa},
                     {"cores", lab.team().size()},
                     {"peak", machine.peak_of(DType::fp32).value_or(0)},
                     {"ops", list}};
  fmt::print("{}\n", out.dump());
}

int run(const std::string& only) {
  LabOptions options;
  Lab lab(options);
  for (const RowsModel& model : rows_models()) {
    if (!only.empty() && only != model.name) continue;
    for (const Storage storage : model.storages) {
      for (const KvStorage kv : model.caches) {
        int room = 0, batch = 1, fresh = 1;
        for (const RowsStep& s : model.steps) {
          room = std::max(room, s.batch * (s.context + s.fresh + 16));
          batch = std::max(batch, s.batch);
          fresh = std::max(fresh, s.batch * s.fresh);
        }
        RunnerOptions how;
        how.cache_tokens = room;
        how.max_tokens = fresh;
        how.max_sequences = batch;
        how.kv = kv;
        const auto runner = lab_runner(lab, lab_weights(lab, model.shape, storage), how);
        runner->fill_cache(1);
        for (const RowsStep& s : model.steps) print_step(lab, *runner, model, storage, kv, s);
      }
    }
  }
  return 0;
}

}  // namespace
}  // namespace ridge

int main(int argc, char** argv) {
  try {
    return ridge::run(argc > 1 ? argv[1] : "");
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 2;
  }
}
