// What bare `ridge` prints: this machine, a few words from the model inside with achieved against
// roof, the default model's prediction here and on an H100, and what to try.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/json.h"
#include "base/plot.h"
#include "base/text.h"
#include "base/units.h"
#include "cli/command.h"
#include "cli/engine_options.h"
#include "cli/machine_view.h"
#include "cli/measurement_doubt.h"
#include "cli/options.h"
#include "cli/run_report.h"
#include "engine/generate/generate.h"
#include "machine/atlas.h"
#include "machine/nvml.h"
#include "model/read.h"
#include "predict/json.h"
#include "roofline/default_stack.h"

namespace ridge {
namespace {

struct Stop {  // one machine of the tour
  Request request;
  Prediction prediction;
};

std::optional<Stop> visit(const std::shared_ptr<const Model>& model, const System& system) {
  Stop stop;
  stop.request.model = model;
  stop.request.system = system;
  stop.request.stack = find_stack(default_stack(system.device));
  if (!system.device.memory().read_bandwidth) return std::nullopt;
  stop.prediction = predict(stop.request);
  return stop;
}

std::string machine_text(const Machine& m) {
  std::string text = paint(Colour::bold, m.title.empty() ? m.name : m.title);
  if (m.units) text += fmt::format(", {:.0f} cores", *m.units);
  if (!m.isa.empty()) text += ", " + m.isa;
  if (m.clock) text += fmt::format(", {:.2f} GHz", *m.clock / 1e9);
  return text;
}

// `doubtful`: other processes disturbed the probe that read the bandwidths.
std::string pyramid_text(const Machine& m, bool doubtful) {
  double most = 0, least = INFINITY;
  for (const Level& level : m.levels) {
    if (!level.total_capacity()) continue;
    most = std::max(most, *level.total_capacity());
    least = std::min(least, *level.total_capacity());
  }
  const std::string mark = doubtful ? " (in doubt)" : "";
  Table table({"level", "size", "read bandwidth", "size, log scale"});
  for (const Level& level : m.levels) {
    const Maybe size = level.total_capacity();
    const double share =
        size && most > least ? 0.15 + 0.85 * std::log(*size / least) / std::log(most / least) : 0;
    table.add({level.name, size ? size_text(m, level, *size) : "?",
               level.read_bandwidth ? pretty_rate(*level.read_bandwidth) + mark : "?",
               bar(share, 30)});
  }
  return table.text();
}

std::string predictions_text(const std::vector<Stop>& stops) {
  Table table({"", "stack", "first token", "per token", "tok/s", "roof", "decode wall", "next wall",
               "fits"});
  for (const Stop& s : stops) {
    const Prediction& p = s.prediction;
    table.add({s.request.system.name(), s.request.stack.name, pretty_time(p.ttft_s()),
               pretty_time(p.tpot_s()), pretty_number(p.tokens_per_s),
               pretty_number(p.roof_tokens_per_s), std::string(wall_name(p.decode.wall)),
               std::string(wall_name(p.decode.next_wall)), p.memory.fits ? "yes" : "no"});
  }
  return table.text();
}

Plot tour_plot(const std::vector<Stop>& stops) {
  Plot plot;
  plot.x = {"FLOP/byte", true, 0.1, 10000};
  plot.y = {"FLOP/s", true, 1e9, 4e15};
  for (const Stop& s : stops) {
    const Machine& m = s.request.system.device;
    const double bandwidth = *m.memory().read_bandwidth;
    const Maybe peak = m.peak_of(DType::bf16) ? m.peak_of(DType::bf16) : m.peak_of(DType::fp32);
    if (peak) {
      plot.series.push_back({fmt::format("{}: {}, {}, ridge {}", m.name, pretty_flop_rate(*peak),
                                         pretty_rate(bandwidth), pretty_number(*peak / bandwidth)),
                             {0.1, *peak / bandwidth, 10000},
                             {0.1 * bandwidth, *peak, *peak},
                             false});
    }
    const auto mark = [&](const char* phase, const StepEstimate& e) {
      plot.markers.push_back(
          {fmt::format("{} on {}", phase, m.name), e.intensity(), e.flops / e.expected_s, 1});
    };
    mark("decode", s.prediction.decode);
    mark("prefill", s.prediction.prefill);
  }
  return plot;
}

struct Words {  // what the model inside wrote
  std::unique_ptr<Runner> runner;
  std::vector<Token> prompt;
  Generated made;
};

constexpr const char* kWords = "The memory of a computer";

Words write_words() {
  Words words;
  words.runner = make_runner({}, {.cache_tokens = 256});
  words.prompt = text_prompt(*words.runner->weights().tokenizer, kWords);
  GenerateOptions options;
  options.sampler.temperature = 0.7;
  options.sampler.top_p = 0.95;
  options.sampler.repetition_penalty = 1.1;
  options.max_tokens = 60;
  options.profile = true;
  PagePool pool(words.runner->page_count(), words.runner->options().page_tokens);
  KvSequence sequence(pool);
  words.made = generate(*words.runner, sequence, words.prompt, options, {});
  return words;
}

}  // namespace

void print_tour(const Global& global) {
  const Disturbance began = disturbance_now();
  const System here = find_system("this");
  const std::string probe_doubt = doubt_between(began, disturbance_now());
  const auto model = std::make_shared<const Model>(find_model(kDefaultModel));
  std::vector<Stop> stops;
  for (const System& system : {here, find_system(kDefaultMachine)}) {
    if (auto stop = visit(model, system)) stops.push_back(std::move(*stop));
  }
  const Words words = write_words();
  const System roof = roof_system({}, *words.runner);
  std::string doubt = doubt_since(began, {}, *words.runner);
  if (doubt.empty()) doubt = probe_doubt;
  if (global.json) {
    Json predictions = Json::array();
    for (const Stop& s : stops) predictions.push_back(to_json(s.request, s.prediction));
    fmt::print("{}\n", Json{{"machine", Json(machine_to_json(here.device))},
                            {"run", run_json(*words.runner, words.made, words.prompt.size(), roof)},
                            {"predictions", predictions},
                            {"doubt", doubt_json(doubt)}}
                           .dump(2));
    return;
  }
  fmt::print("{}", doubt_line(doubt));
  fmt::print("This machine: {}\n", machine_text(here.device));
  for (const GpuFound& gpu : detect_gpus()) {
    fmt::print("GPU: {}, {}\n", paint(Colour::bold, gpu.name), pretty_bytes(gpu.memory));
  }
  fmt::print("{}\n", pyramid_text(here.device, !probe_doubt.empty()));
  fmt::print("{} generates on this machine:\n{}\n",
             paint(Colour::bold, words.runner->weights().source),
             wrap(kWords + words.made.text, 100));
  fmt::print("{}{}\n\n", decode_text(*words.runner, words.made, roof),
             run_line(*words.runner, words.made, roof));
  fmt::print("{}, batch 1, 1024-token prompt, 2048 tokens of context, 16-bit weights:\n{}\n",
             paint(Colour::bold, model->title), predictions_text(stops));
  fmt::print("{}", draw_text(tour_plot(stops), 78, 13));
  fmt::print(
      "\nTry next (./run works in place of ridge):\n"
      "  ridge run \"A package manager\"          or a GGUF, or a folder of safetensors\n"
      "  ridge bench tinyllama-1.1b --weights random:1 --format q4_0\n"
      "  ridge predict -m llama-3-70b -M 8xh100-sxm -b 1,2,4..256 --weights fp8\n"
      "  ridge explain -m llama-3-70b -M 8xh100-sxm --observed 280tok/s --batch 8\n"
      "  ridge machine h100-sxm\n");
}

}  // namespace ridge
