// Weights in fewer bits: fewer bytes per token, and what that costs in perplexity.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "base/units.h"
#include "lab/catalogue.h"
#include "lab/lab_engine.h"
#include "lab/lab_text.h"

namespace ridge {
namespace {

// A file that is gone when the experiment ends, however it ends.
class PassingFile {
 public:
  PassingFile()
      : path_((std::filesystem::temp_directory_path() / fmt::format("ridge-lab-{}.gguf", getpid()))
                  .string()) {}
  ~PassingFile() {
    std::error_code ignored;
    std::filesystem::remove(path_, ignored);
  }
  PassingFile(const PassingFile&) = delete;
  PassingFile& operator=(const PassingFile&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

LabResult run_weights_bits(Lab& lab) {
  LabResult result;
  result.x = {"bits per weight", true, 0, 0};
  result.y = {"ms per token", true, 0, 0};
  const char* name = lab.quick() ? "ridge-1m" : "ridge-7m";
  const RunnerOptions scoring{.cache_tokens = 512, .max_tokens = 128, .max_logit_rows = 128};
  const Weights shipped = load_weights(name);
  lab.step("writing a text");
  const std::vector<Token> text =
      write_text(*lab_runner(lab, load_weights(name), scoring), lab.quick() ? 32 : 384);

  std::vector<Storage> storages{Storage::bf16, Storage::q8_0, Storage::q4_0};
  if (!lab.quick()) {
    storages = {Storage::f32,  Storage::f16,  Storage::bf16, Storage::q8_0,
                Storage::q6_k, Storage::q5_1, Storage::q5_0, Storage::q5_k,
                Storage::q4_1, Storage::q4_0, Storage::q4_k};
  }
  LabSeries series{"decode of random weights", {}};
  double wide_bytes = 0, wide = 0, wide_ms = 0, four_bytes = 0, four = 0, four_ms = 0, held = 0;
  double foreseen = 0;
  for (const Storage storage : storages) {
    const StorageInfo& info = storage_info(storage);
    lab.step(fmt::format("perplexity of {} in {}", name, info.name));
    double perplexity = 0;
    {
      const PassingFile file;
      convert_weights(shipped, storage, FileKind::gguf, file.path());
      perplexity = text_perplexity(*lab_runner(lab, load_weights(file.path()), scoring), text);
    }
    lab.step(fmt::format("time of a token in {}", info.name));
    const auto runner = lab_runner(lab, lab_weights(lab, lab_large_shape(lab), storage),
                                   {.cache_tokens = 256, .max_tokens = 16});
    LabPredictor predictor(lab, *runner);
    LabStep step(*runner, 1, 64);
    LabPoint point = measure_step(lab, predictor, info.bits(), step, 1e3);
    point.label = fmt::format("{}: {:.2f} bits", info.name, info.bits());
    const double bytes = runner->weights().bytes;
    held = std::max(held, bytes + runner->repacked_bytes());
    if (storage == Storage::bf16) {
      wide_bytes = bytes, wide = perplexity, wide_ms = point.measured;
      foreseen += point.band.expected;
    }
    if (storage == Storage::q4_0) {
      four_bytes = bytes, four = perplexity, four_ms = point.measured;
      foreseen /= point.band.expected;
    }
    result.notes.push_back(fmt::format("{:<5} {:>5.2f} bits, {:>8}, {:>6.2f} ms, perplexity {:.3f}",
                                       info.name, info.bits(), pretty_bytes(bytes), point.measured,
                                       perplexity));
    series.points.push_back(std::move(point));
  }
  const double gain = wide_ms / four_ms;
  result.holds = gain > 1.5;
  result.sentence = fmt::format(
      "q4_0 has {:.2f}x fewer bytes than bf16, its scales counted, and decode runs {:.2f}x as "
      "fast (predicted {:.2f}x). The perplexity of {} rises from {:.2f} to {:.2f}.",
      wide_bytes / four_bytes, gain, foreseen, name, wide, four);
  result.notes.push_back(fmt::format(
      "Perplexity is of {} on {} tokens that it wrote itself as shipped: the least is its own.",
      name, text.size()));
  result.notes.push_back(memory_note(held));
  result.series = {std::move(series)};
  return result;
}

}  // namespace

const Experiment kWeightsBitsExperiment{
    "weights-bits",
    LabTopic::formats,
    "What do weights in fewer bits gain, and what do they cost?",
    "4-bit weights are 4x fewer bytes less their scales, and decode gains what the bytes save.",
    "claim 10; weight quantization",
    "ridge convert ridge-7m --to q4_k ridge-7m-q4_k.gguf",
    true,
    false,
    12,
    run_weights_bits};

}  // namespace ridge
