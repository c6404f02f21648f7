// Weights in fewer bits: fewer bytes per token, and what that costs in perplexity.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "base/units.h"
#include "lab/catalogue.h"
#include "lab/held_signals.h"
#include "lab/lab_engine.h"
#include "lab/lab_text.h"

namespace ridge {
namespace {

// A folder of its own that is gone at the end, with whatever lies in it.
class PassingFolder {
 public:
  PassingFolder() : path_((std::filesystem::temp_directory_path() / "ridge-lab-XXXXXX").string()) {
    if (mkdtemp(path_.data()) == nullptr) throw Error("{} cannot be made", path_);
  }
  ~PassingFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  PassingFolder(const PassingFolder&) = delete;
  PassingFolder& operator=(const PassingFolder&) = delete;
  std::string file(const char* name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

// The weights in another format. They are mapped from a file that has no name any more when this
// returns, so that nothing is left behind however the program ends afterwards.
Weights converted(const Weights& weights, Storage storage) {
  const HeldSignals until_removed;
  const PassingFolder folder;
  const std::string path = folder.file("model.gguf");
  convert_weights(weights, storage, FileKind::gguf, path);
  return load_weights(path);
}

// Of the shipped model, kept in that format, on the text. CUDA packs on loading; the CPU reads a
// converted file.
double perplexity_in(Lab& lab, const char* name, const Weights& shipped, const LabFormat& format,
                     RunnerOptions scoring, std::span<const Token> text) {
  scoring.device_format = format.device;
  Weights weights = lab.on_cuda() ? load_weights(name) : converted(shipped, format.storage);
  return text_perplexity(*lab_runner(lab, std::move(weights), scoring), text);
}

// What was seen of a format.
struct FormatSeen {
  LabFormat format;
  double bytes = 0, perplexity = 0;
  LabPoint point;  // ms per token

  double ms() const { return point.measured; }
};

// How much of the byte ratio must arrive as speed. The rest of a step (attention, norms, the KV
// cache) does not shrink with the weights.
constexpr double kLeastShare = 0.8;

FormatSeen see_format(Lab& lab, const LabFormat& format) {
  lab.step(fmt::format("time of a token in {}", format.name));
  const auto runner =
      lab_runner(lab, lab_large_shape(lab), format, {.cache_tokens = 256, .max_tokens = 16});
  LabPredictor predictor(lab, *runner);
  LabStep step(*runner, 1, 64);
  FormatSeen seen{format, weights_read(lab, *runner), 0,
                  measure_step(lab, predictor, format.bits, step, 1e3)};
  seen.point.label = fmt::format("{}: {:.2f} bits", format.name, format.bits);
  return seen;
}

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
  std::vector<FormatSeen> formats;
  for (const LabFormat& format : lab_formats(lab)) {
    lab.step(fmt::format("perplexity of {} in {}", name, format.name));
    const double perplexity = perplexity_in(lab, name, shipped, format, scoring, text);
    formats.push_back(see_format(lab, format));
    FormatSeen& seen = formats.back();
    seen.perplexity = perplexity;
    result.notes.push_back(fmt::format("{:<5} {:>5.2f} bits, {:>8}, {:>6.2f} ms, perplexity {:.3f}",
                                       format.name, format.bits, pretty_bytes(seen.bytes),
                                       seen.ms(), perplexity));
  }
  const auto named = [&](const std::string& format) -> const FormatSeen& {
    return *std::ranges::find_if(formats,
                                 [&](const FormatSeen& f) { return f.format.name == format; });
  };
  const FormatSeen &wide = named("bf16"), &four = named(lab_format(lab, Storage::q4_0).name);
  // Every format with fewer bytes than bf16 gains its share of what the bytes save.
  bool all_gain = true;
  std::string short_of;
  LabPoints deciding{&wide.point};
  for (const FormatSeen& f : formats) {
    if (f.bytes >= 0.99 * wide.bytes) continue;
    deciding.push_back(&f.point);
    const double gain = wide.ms() / f.ms(), saved = wide.bytes / f.bytes;
    if (gain >= kLeastShare * saved) continue;
    all_gain = false;
    short_of += fmt::format("{}{} {:.2f}x of {:.2f}x", short_of.empty() ? "" : ", ", f.format.name,
                            gain, saved);
  }
  decide(result, all_gain, deciding);
  result.sentence = fmt::format(
      "{} has {:.2f}x fewer bytes than bf16, its scales counted, and decode runs {:.2f}x as "
      "fast (predicted {:.2f}x). {} The perplexity of {} rises from {:.2f} to {:.2f}.",
      four.format.name, wide.bytes / four.bytes, wide.ms() / four.ms(),
      wide.point.band.expected / four.point.band.expected,
      all_gain ? "Every format gains at least 0.8 of what its bytes save."
               : fmt::format("Less than 0.8 of what the bytes save: {}.", short_of),
      name, wide.perplexity, four.perplexity);
  result.notes.push_back(fmt::format(
      "Perplexity is of {} on {} tokens that it wrote itself as shipped: the least is its own.",
      name, text.size()));
  LabSeries series{"decode of random weights", {}};
  for (FormatSeen& seen : formats) series.points.push_back(std::move(seen.point));
  result.series = {std::move(series)};
  return result;
}

}  // namespace

const Experiment kWeightsBitsExperiment{
    "weights-bits",
    LabTopic::formats,
    "What do weights in fewer bits gain, and what do they cost?",
    "4-bit weights are 4x fewer bytes less their scales, and decode gains what the bytes save.",
    "weight quantization (Frantar et al., 2022: GPTQ)",
    "ridge convert ridge-7m --to q4_k ridge-7m-q4_k.gguf",
    run_weights_bits,
    run_weights_bits,
    12,
    {60e6, 650e6, 2e9, 30e9}};

}  // namespace ridge
