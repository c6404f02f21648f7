// What the experiments on whole steps share: models of random weights, runners on the lab's device,
// predicted steps and steps to time.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/runner/runner.h"
#include "lab/lab.h"
#include "roofline/roofline.h"
#include "step/rank.h"
#include "step/step.h"

namespace ridge {

// A Llama, on the CPU with tied embedding.
struct LabShape {
  int hidden = 0, layers = 0, heads = 0, kv_heads = 0, head_dim = 64, ffn = 0, vocab = 0;
};
// A model that streams from the device's memory: about 30 M parameters on a CPU, Llama-3-8B on
// CUDA, and a tiny one for --quick.
LabShape lab_shape(const Lab& lab);
// A larger one: 116 M parameters (66 MB in 4 bits, beyond most last caches), on CUDA 13 B. Tiny for
// --quick as well.
LabShape lab_large_shape(const Lab& lab);

// A format of weights: a storage on the CPU, one of the device's own on CUDA.
struct LabFormat {
  std::string name;
  double bits = 0;  // per weight, scales included
  Storage storage = Storage::bf16;
  cuda::WeightFormat device = cuda::WeightFormat::bf16;
};
// That storage; on CUDA int8 for q8_0, int4 for q4_0, and bf16 for the others.
LabFormat lab_format(const Lab& lab, Storage storage);
std::vector<LabFormat> lab_formats(const Lab& lab);  // the engine's, the widest first

// Drawn at random: on CUDA on the device, without memory of the host.
Weights lab_weights(Lab& lab, const LabShape& shape, Storage storage);

// On the lab's device, with its threads.
std::unique_ptr<Runner> lab_runner(Lab& lab, Weights weights, RunnerOptions options = {});
// With random weights; on CUDA with keys and values in bf16, as the prompt kernels read them.
std::unique_ptr<Runner> lab_runner(Lab& lab, const LabShape& shape, const LabFormat& format,
                                   RunnerOptions options = {});

// Bytes of weights that a step reads, and that the runner holds.
double weights_read(const Lab& lab, const Runner& runner);
double weights_held(const Lab& lab, const Runner& runner);

// Predicts steps of a runner from the lab's ceilings. The level that holds the weights is as fast
// as the median of plain reads of them, before anything is measured: memory that others share gives
// another rate every minute.
class LabPredictor {
 public:
  LabPredictor(Lab& lab, Runner& runner);
  // Of ceilings that are known otherwise.
  LabPredictor(Lab& lab, System system, Runner& runner);
  StepEstimate step(std::span<const Sequences> batch);
  StepEstimate step(const Sequences& sequences) { return step({&sequences, 1}); }
  const System& system() const { return system_; }
  double bandwidth(const Sequences& sequences = {});  // of what such a step streams from

 private:
  Ceilings place(std::span<const Sequences> batch);

  System system_;
  double unpacked_bytes_;  // that the kernels read beyond the bytes of the format
  Rank rank_;
  Ceilings ceilings_;
  std::vector<Op> ops_;
};

// Seconds of a step: the stack's band around the expected time (Stack::low and high).
LabBand band_of(const StepEstimate& estimate);
LabBand scaled(const LabBand& band, double factor);
// Of a rate that is `amount` over the seconds of `band`.
LabBand rate_of(const LabBand& seconds, double amount);

// Steps in which `batch` sequences that hold `context` tokens each get `fresh` more, over and over
// at the same place.
class LabStep {
 public:
  // Throws Error where the runner's cache is too small. With a seed the pages of a sequence lie in
  // random places of the cache, as in a server that has run for a while; else in order.
  LabStep(Runner& runner, int batch, int context, int fresh = 1,
          std::optional<uint64_t> page_seed = {});
  void operator()();
  Sequences sequences() const;

 private:
  Runner* runner_;
  int batch_, context_, fresh_;
  PagePool pool_;
  std::vector<KvSequence> kv_;
  std::vector<Token> tokens_;
  std::vector<Slice> slices_;
  std::vector<TopLogitsRequest> greedy_;
};

// Predicts, then times steps. `factor` turns seconds into what the axis shows.
LabPoint measure_step(Lab& lab, LabPredictor& predictor, double x, LabStep& step,
                      double factor = 1);

// Greedy continuation, one token a step; pages as in LabStep.
std::vector<Token> lab_continue(Runner& runner, std::span<const Token> prompt, int count,
                                std::optional<uint64_t> page_seed = {});

}  // namespace ridge
