// What the experiments on whole steps share: models of random weights, runners on the lab's device,
// predicted steps and steps to time.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/runner.h"
#include "lab/lab.h"
#include "roofline/roofline.h"
#include "step/rank.h"
#include "step/step.h"

namespace ridge {

// A Llama with tied embedding.
struct LabShape {
  int hidden = 0, layers = 0, heads = 0, kv_heads = 0, head_dim = 64, ffn = 0, vocab = 0;
};
// A model of about 30 M parameters, and a tiny one for --quick.
LabShape lab_shape(const Lab& lab);
// About 116 M parameters: 66 MB in 4 bits, beyond most last caches. Tiny for --quick as well.
LabShape lab_large_shape(const Lab& lab);
Weights lab_weights(Lab& lab, const LabShape& shape, Storage storage);

// On the lab's device, with its threads.
std::unique_ptr<Runner> lab_runner(Lab& lab, Weights weights, RunnerOptions options = {});

// Predicts steps of a runner from the lab's ceilings. The level that holds the weights is as fast
// as the median of plain reads of them, before anything is measured: memory that others share gives
// another rate every minute.
class LabPredictor {
 public:
  LabPredictor(Lab& lab, Runner& runner);
  // Of ceilings that are known otherwise.
  LabPredictor(System system, Runner& runner);
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

// Seconds of a step: from its roof to the slow end of what the stack's kernels reach.
Band band_of(const StepEstimate& estimate);
Band scaled(const Band& band, double factor);
// Of a rate that is `amount` over the seconds of `band`.
Band rate_of(const Band& seconds, double amount);

// Steps in which `batch` sequences that hold `context` tokens each get `fresh` more, over and over
// at the same place.
class LabStep {
 public:
  // Throws Error where the runner's cache is too small.
  LabStep(Runner& runner, int batch, int context, int fresh = 1);
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

// Greedy continuation, one token a step.
std::vector<Token> lab_continue(Runner& runner, std::span<const Token> prompt, int count);

// What the experiment may hold at once, as a note.
std::string memory_note(double bytes);

}  // namespace ridge
