// What inference holds: weights, keys and values, activations; counted and then read from the
// process, or from the device.
#include "predict/memory.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>

#include "base/mapped_buffer.h"
#include "base/units.h"
#include "engine/account/roof_system.h"
#include "engine/cpu/matmul.h"
#include "engine/cuda/host/device_model.h"
#include "lab/catalogue.h"
#include "lab/lab_engine.h"

namespace ridge {
namespace {

// Bytes of this process in memory; 0 where the system does not tell.
double resident_bytes() {
  double size = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> size >> resident;
  return resident * double(sysconf(_SC_PAGESIZE));
}

// What the parts hold, read and not computed, and what the predictor says of them.
struct HeldMemory {
  double weights = 0, kv = 0, activations = 0, together = 0;
  double repacked = 0;  // of the weights, copied into another layout beside them
  double slack = 0;     // whole pages of an allocation, and what the allocator keeps
  MemoryFit fit;
};

MemoryFit predicted_fit(const Lab& lab, const Runner& runner, double context, double step_tokens) {
  const Rank rank = make_rank(runner.weights().model, runner.plan());
  return fit_memory(rank, {}, lab.system(), engine_stack(lab.system()).memory, 1, context,
                    step_tokens);
}

LabBand held_band(double predicted, double slack) {
  return {std::max(0.0, 0.95 * predicted - slack) / 1e6, predicted / 1e6,
          (1.05 * predicted + slack) / 1e6};
}

void announce_parts(Lab& lab, const HeldMemory& held) {
  lab.announce(held_band(held.fit.weights, held.slack), "MB of weights");
  lab.announce(held_band(held.fit.kv, held.slack), "MB of keys and values");
  lab.announce(held_band(held.fit.activations, held.slack), "MB of activations");
}

// Everything is allocated when the runner is made, so runners with wider and wider bounds differ by
// their parts.
HeldMemory held_on_device(Lab& lab, int context, int step_tokens) {
  HeldMemory held;
  held.slack = 64e6;  // about 30 arrays, in whole pages of 2 MB
  const auto growth = [&](int cache_tokens, int max_tokens) {
    const double before = cuda::find_device().free_bytes;
    const auto runner = lab_runner(lab, lab_shape(lab), lab_format(lab, Storage::bf16),
                                   {.cache_tokens = cache_tokens, .max_tokens = max_tokens});
    LabStep step(*runner, 1, cache_tokens - max_tokens, max_tokens);
    step();
    held.fit = predicted_fit(lab, *runner, cache_tokens, max_tokens);
    announce_parts(lab, held);
    return before - cuda::find_device().free_bytes;
  };
  growth(16, 16);  // loads the kernels, which stay
  lab.step("weights");
  held.weights = growth(16, 16);
  lab.step("keys and values");
  const double with_kv = growth(context, 16);
  held.kv = with_kv - held.weights;
  lab.step("a step");
  held.together = growth(context, step_tokens);
  held.activations = held.together - with_kv;
  return held;
}

// What the CPU engine allocates for a step (engine/cpu/runner.cc): f32 rows for x and its norm, the
// queries, keys, values and their mix, and the MLP's inner activations; both inputs of GEMMs in the
// type that the kernels read; a row of logits for each sequence. Each is an array of its own, of
// which the system gives whole pages.
double cpu_step_bytes(Lab& lab, const Runner& runner, double tokens) {
  const Weights& weights = runner.weights();
  const Architecture& a = weights.architecture;
  const MappedBuffer page(1);
  page.as<std::byte>()[0] = std::byte{1};
  const double page_bytes = page.huge_share() > 0.5 ? double(page.size()) : 4096;
  const auto whole = [&](double bytes) { return std::ceil(bytes / page_bytes) * page_bytes; };
  double bytes = 0;
  for (const int columns : {a.hidden, a.hidden, a.q_columns(), a.kv_columns(), a.kv_columns(),
                            a.out_columns(), a.ffn}) {
    bytes += whole(4 * tokens * columns);
  }
  const cpu::PackedMatrix w(weights.layers.front().out, lab.team());
  const double input = w.input_kind(int(tokens)) == cpu::InputKind::bf16 ? 2 : 4;
  // One more page each: the types of an input lie in one array, off the pages' edges.
  for (const int columns : {std::max(a.hidden, a.out_columns()), a.ffn}) {
    bytes += whole(input * tokens * columns) + page_bytes;
  }
  return bytes + whole(4.0 * a.vocab);
}

HeldMemory held_in_process(Lab& lab, int context, int step_tokens) {
  HeldMemory held;
  held.slack = 4e6;  // whole pages of up to 2 MB (huge pages)
  lab.step("weights");
  const double before = resident_bytes();
  Weights weights = lab_weights(lab, lab_shape(lab), Storage::bf16);
  const double with_weights = resident_bytes();
  lab.step("the runner");
  const auto runner =
      lab_runner(lab, std::move(weights), {.cache_tokens = context, .max_tokens = step_tokens});
  const double with_runner = resident_bytes();
  held.fit = predicted_fit(lab, *runner, context, step_tokens);
  held.fit.activations = cpu_step_bytes(lab, *runner, step_tokens);
  held.repacked = runner->repacked_bytes();
  announce_parts(lab, held);
  lab.step("keys and values");
  runner->fill_cache(1);
  const double with_kv = resident_bytes();
  lab.step("a step");
  LabStep step(*runner, 1, context - step_tokens, step_tokens);
  step();
  held.weights = with_weights - before;
  held.kv = with_kv - with_runner;
  held.activations = resident_bytes() - with_kv + (with_runner - with_weights) - held.repacked;
  held.together = resident_bytes() - before;
  return held;
}

LabPoint memory_point(double x, const char* label, double predicted, double measured,
                      double slack) {
  LabPoint point;
  point.x = x;
  point.label = label;
  point.band = held_band(predicted, slack);
  point.measured = measured / 1e6;
  return point;
}

LabResult run_memory(Lab& lab) {
  LabResult result;
  result.x = {"part", false, 0, 0};
  result.y = {"MB", true, 0, 0};
  result.timed = false;
  result.categories = true;
  if (!lab.on_cuda() && resident_bytes() == 0) {
    result.sentence = "This system does not tell how much memory a process holds.";
    return result;
  }
  const int context = lab.sized(1024, 16384, 65536), step_tokens = lab.sized(64, 512, 4096);
  const HeldMemory held = lab.on_cuda() ? held_on_device(lab, context, step_tokens)
                                        : held_in_process(lab, context, step_tokens);
  const MemoryFit& fit = held.fit;
  const double predicted = fit.weights + fit.kv + fit.activations + held.repacked;
  LabSeries series{"held", {}};
  series.points = {memory_point(0, "weights", fit.weights, held.weights, held.slack),
                   memory_point(1, "keys and values", fit.kv, held.kv, held.slack),
                   memory_point(2, "activations", fit.activations, held.activations, held.slack),
                   memory_point(3, "together", predicted, held.together, held.slack)};
  decide(result, series.points.back().error() < 0.15, {&series.points.back()});
  result.sentence = fmt::format(
      "Predicted {} of weights, {} of keys and values for {} tokens and {} of activations for a "
      "step of {}: together {}; the {} grew by {}.",
      pretty_bytes(fit.weights), pretty_bytes(fit.kv), context, pretty_bytes(fit.activations),
      step_tokens, pretty_bytes(predicted), lab.on_cuda() ? "device's use" : "process",
      pretty_bytes(held.together));
  if (held.repacked > 0) {
    result.notes.push_back(fmt::format("{} of weights are copied into another layout on loading.",
                                       pretty_bytes(held.repacked)));
  }
  result.notes.push_back(
      lab.on_cuda()
          ? "The CUDA context and the kernels are loaded before and not counted."
          : "The CPU engine has f32 buffers for each operator, in whole huge pages; kernels that "
            "reuse their buffers in 16 bits hold a quarter of that.");
  result.series = {std::move(series)};
  return result;
}

}  // namespace

const Experiment kMemoryExperiment{
    "memory",
    LabTopic::model,
    "What must the memory hold?",
    "Weights, keys and values, activations and overhead: 80 GB of memory do not hold a model of 80 "
    "GB.",
    "what a model must fit: weights, KV cache, activations (Kwon et al., 2023: PagedAttention)",
    "ridge predict -m llama-3-70b -M h100-sxm",
    run_memory,
    run_memory,
    1,
    {60e6, 300e6, 2e9, 28e9}};

}  // namespace ridge
