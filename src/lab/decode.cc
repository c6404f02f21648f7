// A token of one sequence reads every weight once, so its time is bytes over bandwidth, whatever
// the model and whatever the format.
#include <fmt/format.h>

#include <algorithm>

#include "base/units.h"
#include "lab/catalogue.h"
#include "lab/lab_engine.h"

namespace ridge {
namespace {

struct DecodeModel {
  LabShape shape;
  std::vector<LabFormat> formats;
};

std::vector<DecodeModel> decode_models(const Lab& lab) {
  const auto formats = [&](std::initializer_list<Storage> storages) {
    std::vector<LabFormat> list;
    for (const Storage storage : storages) list.push_back(lab_format(lab, storage));
    return list;
  };
  const LabShape small = lab_shape(lab);
  if (lab.quick()) return {{small, formats({Storage::bf16, Storage::q4_0})}};
  const LabShape medium = lab_large_shape(lab);
  if (lab.on_cuda()) {
    const LabShape one_billion{
        .hidden = 2048, .layers = 16, .heads = 32, .kv_heads = 8, .ffn = 8192, .vocab = 128256};
    return {{one_billion, formats({Storage::bf16, Storage::q8_0})},
            {small, lab_formats(lab)},
            {medium, formats({Storage::bf16, Storage::q8_0, Storage::q4_0})}};
  }
  const LabShape large{
      .hidden = 1024, .layers = 16, .heads = 16, .kv_heads = 4, .ffn = 4096, .vocab = 16384};
  return {{small, formats({Storage::f32, Storage::bf16, Storage::q8_0, Storage::q4_0})},
          {medium, formats({Storage::bf16, Storage::q8_0, Storage::q4_0})},
          {large, formats({Storage::bf16, Storage::q8_0, Storage::q4_0})}};
}

LabResult run_decode(Lab& lab) {
  LabResult result;
  result.x = {"weights, MB", true, 0, 0};
  result.y = {"ms per token", true, 0, 0};
  const Level* cache = lab.machine().cache();
  const double cached = cache != nullptr ? cache->total_capacity().value_or(0) : 0;
  double slowest = 0, fastest = 0, plain = 0, least = 0, most = 0;
  LabPoint doubtful;  // the last one on the line, if any
  int streamed = 0;   // points whose weights come from memory
  for (const DecodeModel& model : decode_models(lab)) {
    LabSeries series;
    for (const LabFormat& format : model.formats) {
      lab.step(fmt::format("{} layers of {} columns, {}", model.shape.layers, model.shape.hidden,
                           format.name));
      const auto runner =
          lab_runner(lab, model.shape, format, {.cache_tokens = 256, .max_tokens = 16});
      const double bytes = weights_read(lab, *runner);
      LabPredictor predictor(lab, *runner);
      LabStep step(*runner, 1, 64);
      LabPoint point = measure_step(lab, predictor, bytes / 1e6, step, 1e3);
      point.label = fmt::format("{:.0f} MB, {}", bytes / 1e6, format.name);
      // Weights that stay in the cache are read at its rate: they are on another line.
      if (bytes > 1.5 * cached) {
        if (point.doubtful()) doubtful = point;
        const double rate = bytes / (point.measured / 1e3);
        slowest = slowest > 0 ? std::min(slowest, rate) : rate;
        fastest = std::max(fastest, rate);
        plain += predictor.bandwidth();
        ++streamed;
        least = least > 0 ? std::min(least, bytes) : bytes;
        most = std::max(most, bytes);
      }
      series.points.push_back(std::move(point));
      series.name = fmt::format("{:.0f} M parameters", parameters(runner->weights().model) / 1e6);
    }
    result.series.push_back(std::move(series));
  }
  if (slowest == 0) {
    result.sentence =
        "The weights of all models fit this machine's cache: no point streams them "
        "from memory.";
    return result;
  }
  plain /= streamed;
  // One slope for all, and the slope is the bandwidth: formats and sizes change nothing else.
  const bool line = fastest < 1.5 * slowest && slowest > 0.6 * plain;
  decide(result, line, {&doubtful});
  result.sentence = fmt::format(
      "From {} to {} of weights, in all formats, a token streams them at {} to {}; plain reads "
      "reach {}.",
      pretty_bytes(least), pretty_bytes(most), pretty_rate(slowest), pretty_rate(fastest),
      pretty_rate(plain));
  if (cached > 0) {
    result.notes.push_back(fmt::format(
        "Only weights above 1.5 x {} of {} count for the line: smaller ones stay there.",
        pretty_bytes(cached), cache->name));
  }
  return result;
}

}  // namespace

const Experiment kDecodeExperiment{
    "decode",
    LabTopic::model,
    "What does a token wait for?",
    "At batch 1 the time per token is the weight bytes over the bandwidth: fewer bits, fewer "
    "milliseconds, in proportion.",
    "weights read once a token (Pope et al., 2022: Efficiently Scaling Transformer Inference)",
    "ridge bench tinyllama-1.1b --weights random:1 --format q4_0",
    run_decode,
    run_decode,
    7,
    {60e6, 1100e6, 2e9, 30e9}};

}  // namespace ridge
