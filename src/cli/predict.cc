// ridge predict: how fast can it go, and how fast should I expect?
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <thread>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "base/units.h"
#include "cli/command.h"
#include "cli/options.h"
#include "cli/predict_text.h"
#include "cli/predict_training.h"
#include "plan/endpoint.h"
#include "predict/json.h"
#include "predict/layout.h"

namespace ridge {
namespace {

constexpr const char* kPredictExamples = R"(Examples:
  ridge predict -m llama-3-70b -M 8xh100-sxm -b 32 -c 4096 --weights fp8 --kv fp8
  ridge predict -m llama-3-8b -M h100-sxm,h200,b200 -b 1,2,4..256        a sweep
  ridge predict -m ./my-model/config.json -M this --roofline             with a plot
  ridge predict -m deepseek-v3 -M 8xh200 --ops                           per operator
  ridge predict -m llama-3-70b -M 8xh100 -b 1..64 --svg batch.svg --csv
  ridge predict -m llama-3-70b -M 8xh100 --stack vllm --clients 1,2,4..64   an endpoint
  ridge predict -m llama-3-70b -M 8xh100 --stack vllm --rate 4 --output 300  and its percentiles
  ridge predict -m llama-3-8b -M 8xh100 --training -b 1 -c 4096          memory of training
Numbers take sweeps: 1,2,4..256 doubles, 1..8 counts, 10,20..100 adds. Names take lists.)";

struct PredictOptions {
  RequestOptions request;
  bool ops = false, roofline = false, csv = false, training = false;
  std::string svg;
};

// "1234/10000" on standard error while a long sweep runs and someone watches.
std::vector<Prediction> run_all(const RequestGrid& grid) {
  std::atomic<size_t> done = 0;
  const size_t total = grid.requests.size();
  std::jthread watcher;
  if (isatty(STDERR_FILENO)) {
    watcher = std::jthread([&](const std::stop_token& stop) {
      for (int ticks = 0; !stop.stop_requested(); ++ticks) {
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        if (ticks >= 20) fmt::print(stderr, "\r{}/{} ", done.load(), total);
      }
      fmt::print(stderr, "\r\033[K");
    });
  }
  return predict_all(grid.requests, &done);
}

// With --clients the endpoint's times and rates; roof, wall and shares are the decode step's.
struct Rates {
  double ttft_s = 0, tpot_s = 0, tokens_per_s = 0;
};

std::optional<Rates> rates(const Request& r, const Prediction& p) {
  if (p.endpoint) return Rates{p.endpoint->ttft_s, p.endpoint->tpot_s, p.endpoint->tokens_per_s};
  if (r.clients || !p.memory.fits) return std::nullopt;
  return Rates{p.ttft_s(), p.tpot_s(), p.tokens_per_s};
}

using SweepRow = std::vector<std::string>;

SweepRow axis_labels(const RequestGrid& grid, size_t point) {
  SweepRow row;
  for (size_t a = 0; a < grid.axes.size(); ++a) {
    row.push_back(grid.axes[a].labels[grid.at[point][a]]);
  }
  return row;
}

void append(SweepRow& row, const SweepRow& more) {
  row.insert(row.end(), more.begin(), more.end());
}

// Each stack of a sweep once.
std::string sweep_stacks(const RequestGrid& grid) {
  std::vector<std::string> names;
  for (const Request& r : grid.requests) {
    const std::string words = stack_words(r);
    if (std::find(names.begin(), names.end(), words) == names.end()) names.push_back(words);
  }
  return fmt::format("Expected times: {}\n", fmt::join(names, "; "));
}

Table sweep_table(const RequestGrid& grid, const std::vector<Prediction>& results) {
  const bool endpoint = grid.requests.front().clients.has_value();
  SweepRow header;
  for (const SweepAxis& axis : grid.axes) header.push_back(axis.name);
  if (endpoint) header.push_back("running");
  const bool layouts = std::any_of(grid.requests.begin(), grid.requests.end(),
                                   [](const Request& r) { return r.layouts.size() > 1; });
  if (layouts) header.push_back("layout");
  append(header, {"TTFT", "per token", "tok/s", "tok/s/device", "roof", "wall", "next wall", "MFU",
                  "MBU", "memory"});
  Table table(header);
  for (size_t i = 0; i < results.size(); ++i) {
    const Prediction& p = results[i];
    SweepRow row = axis_labels(grid, i);
    if (endpoint) row.push_back(p.endpoint ? pretty_count(p.endpoint->running) : "none");
    if (layouts) row.push_back(layout_words(layout_of(grid.requests[i].plan)));
    if (const std::optional<Rates> r = rates(grid.requests[i], p)) {
      append(row, {pretty_time(r->ttft_s), pretty_time(r->tpot_s), pretty_number(r->tokens_per_s),
                   pretty_number(r->tokens_per_s / grid.requests[i].plan.devices())});
    } else {
      append(row, {"-", "-", "-", "-"});
    }
    append(row, {pretty_number(p.roof_tokens_per_s), std::string(wall_name(p.decode.wall)),
                 std::string(wall_name(p.decode.next_wall)), pretty_percent(p.decode.mfu),
                 pretty_percent(p.decode.mbu),
                 pretty_bytes(p.memory.used()) + (p.memory.fits ? "" : " (!)")});
    table.add(row);
  }
  return table;
}

// For programs: the columns keep their meaning, an endpoint's follow.
Table sweep_csv(const RequestGrid& grid, const std::vector<Prediction>& results) {
  const bool endpoint = grid.requests.front().clients.has_value();
  SweepRow header;
  for (const SweepAxis& axis : grid.axes) header.push_back(axis.name);
  append(header, {"ttft_s", "tpot_s", "tokens_per_s", "tokens_per_s_per_device",
                  "roof_tokens_per_s", "wall", "next_wall", "mfu", "mbu", "memory_bytes", "fits"});
  if (endpoint) {
    append(header, {"serving_running", "serving_ttft_s", "serving_tpot_s", "serving_tokens_per_s"});
  }
  Table table(header);
  const auto number = [](double v) { return fmt::format("{:.6g}", v); };
  for (size_t i = 0; i < results.size(); ++i) {
    const Prediction& p = results[i];
    SweepRow row = axis_labels(grid, i);
    append(row, {number(p.ttft_s()), number(p.tpot_s()), number(p.tokens_per_s),
                 number(p.tokens_per_s / grid.requests[i].plan.devices()),
                 number(p.roof_tokens_per_s), std::string(wall_name(p.decode.wall)),
                 std::string(wall_name(p.decode.next_wall)), number(p.decode.mfu),
                 number(p.decode.mbu), number(p.memory.used()), p.memory.fits ? "true" : "false"});
    if (p.endpoint) {
      append(row, {number(p.endpoint->running), number(p.endpoint->ttft_s),
                   number(p.endpoint->tpot_s), number(p.endpoint->tokens_per_s)});
    } else if (endpoint) {
      append(row, {"", "", "", ""});
    }
    table.add(row);
  }
  return table;
}

// Throughput over the last numeric axis, one line per combination of the others; points that do
// not fit the memory are left out.
std::optional<Plot> sweep_plot(const RequestGrid& grid, const std::vector<Prediction>& results) {
  size_t x_axis = grid.axes.size();
  const auto value_of = [](const std::string& label) {
    char* end = nullptr;
    const double value = std::strtod(label.c_str(), &end);
    return end && *end == 0 ? std::optional(value) : std::nullopt;
  };
  for (size_t a = 0; a < grid.axes.size(); ++a) {
    if (value_of(grid.axes[a].labels.front())) x_axis = a;
  }
  if (x_axis == grid.axes.size()) return std::nullopt;
  Plot plot;
  plot.title = fmt::format("Expected output tokens/s over {}", grid.axes[x_axis].name);
  const double first = *value_of(grid.axes[x_axis].labels.front());
  plot.x = {grid.axes[x_axis].name, first > 0, 0, 0};
  plot.y = {"tok/s", true, 0, 0};
  for (size_t i = 0; i < results.size(); ++i) {
    const std::optional<Rates> shown = rates(grid.requests[i], results[i]);
    if (!results[i].memory.fits || !shown) continue;
    std::string label;
    for (size_t a = 0; a < grid.axes.size(); ++a) {
      if (a == x_axis) continue;
      label += fmt::format("{}{}", label.empty() ? "" : " ", grid.axes[a].labels[grid.at[i][a]]);
    }
    if (label.empty())
      label = grid.requests[i].model->name + " on " + grid.requests[i].system.name();
    auto it = std::find_if(plot.series.begin(), plot.series.end(),
                           [&](const Series& s) { return s.label == label; });
    if (it == plot.series.end()) it = plot.series.insert(it, Series{label, {}, {}, false});
    it->x.push_back(*value_of(grid.axes[x_axis].labels[grid.at[i][x_axis]]));
    it->y.push_back(shown->tokens_per_s);
  }
  return plot.series.empty() ? std::nullopt : std::optional(plot);
}

// A simulation of more clients takes minutes.
constexpr double kMostSimulated = 100000;

void print_single(const Request& request, const PredictOptions& o, const Global& global) {
  const Prediction p = predict(request);
  if (!o.svg.empty()) write_file(o.svg, draw_svg(roofline_plot(request, p)));
  const std::optional<ServiceSummary> simulated =
      p.endpoint && !o.csv && *request.clients <= kMostSimulated
          ? std::optional(simulate_service(request))
          : std::nullopt;
  if (global.json) {
    Json json = to_json(request, p);
    if (simulated) json["serving"]["simulated"] = simulated_json(*simulated);
    fmt::print("{}\n", json.dump(2));
    return;
  }
  if (o.csv) {
    Table table({"phase", "op", "count", "flops", "bytes", "roof_s", "expected_s", "wall"});
    for (const OpEstimate& op : p.ops) {
      table.add({op.prefill ? "prefill" : "decode", op.name, fmt::format("{}", op.count),
                 fmt::format("{:.6g}", op.flops), fmt::format("{:.6g}", op.bytes),
                 fmt::format("{:.6g}", op.roof_s), fmt::format("{:.6g}", op.expected_s),
                 std::string(wall_name(op.wall))});
    }
    fmt::print("{}", table.csv());
    return;
  }
  fmt::print("{}\n{}\n", prediction_headline(request, p), prediction_phases(request, p));
  if (simulated) fmt::print("{}\n", simulated_text(*simulated));
  fmt::print("{}\n", prediction_memory(request, p));
  if (o.ops) fmt::print("{}", prediction_ops(p));
  if (o.roofline) fmt::print("{}\n", draw_text(roofline_plot(request, p)));
  fmt::print("{}", prediction_notes(request, p));
  if (!o.ops) fmt::print("{}", paint(Colour::dim, "--ops lists every operator.\n"));
}

void print_sweep(const RequestGrid& grid, const PredictOptions& o, const Global& global) {
  const std::vector<Prediction> results = run_all(grid);
  const std::optional<Plot> plot = sweep_plot(grid, results);
  if (!o.svg.empty()) {
    if (!plot) throw Error("--svg needs a swept number (for example --batch 1,2,4..64)");
    write_file(o.svg, draw_svg(*plot));
  }
  if (global.json) {
    Json sweep = Json::array(), points = Json::array();
    for (const SweepAxis& axis : grid.axes) sweep.push_back(axis.name);
    for (size_t i = 0; i < results.size(); ++i) {
      points.push_back(to_json(grid.requests[i], results[i]));
    }
    fmt::print("{}\n", Json{{"sweep", sweep}, {"points", points}}.dump(1));
  } else if (o.csv) {
    fmt::print("{}", sweep_csv(grid, results).csv());
  } else {
    fmt::print("{}\n{}", sweep_stacks(grid), sweep_table(grid, results).text());
    const bool all_fit = std::all_of(results.begin(), results.end(),
                                     [](const Prediction& p) { return p.memory.fits; });
    if (!all_fit) fmt::print("(!) does not fit the device's memory\n");
    if (plot) fmt::print("\n{}", draw_text(*plot));
    Prediction notes;  // each once
    for (const Prediction& p : results) {
      for (const std::string& note : p.notes) {
        if (std::find(notes.notes.begin(), notes.notes.end(), note) == notes.notes.end()) {
          notes.notes.push_back(note);
        }
      }
    }
    fmt::print("{}", prediction_notes(grid.requests.front(), notes));
  }
}

}  // namespace

void add_predict_command(CLI::App& app, Global& global) {
  auto options = std::make_shared<PredictOptions>();
  CLI::App* command = app.add_subcommand(
      "predict",
      "How fast can it go, and how fast should I expect? Latency, throughput, fit, wall");
  add_request_options(*command, options->request);
  command->add_flag("--ops", options->ops, "Print the per-operator table")->group("Output");
  command->add_flag("--roofline", options->roofline, "Draw the roofline with every operator")
      ->group("Output");
  command->add_flag("--csv", options->csv, "Comma-separated: the sweep, or the operators")
      ->group("Output");
  command->add_option("--svg", options->svg, "Write the plot (roofline or sweep) to a file")
      ->group("Output");
  CLI::Option* training =
      command
          ->add_flag("--training", options->training,
                     "Memory of training with Adam, by part and sharding; --batch sequences of "
                     "--context tokens per device")
          ->group("Output");
  for (const char* other : {"--ops", "--roofline", "--svg", "--clients", "--tp", "--pp", "--dp",
                            "--ep", "--weights", "--kv", "--activations"}) {
    training->excludes(command->get_option(other));
  }
  command->footer(kPredictExamples);
  command->callback([options, command, &global] {
    const RequestGrid grid = make_requests(options->request);
    check_experts(*command, grid.requests);
    if (options->training) {
      print_training(grid, global.json    ? TrainingOutput::json
                           : options->csv ? TrainingOutput::csv
                                          : TrainingOutput::text);
      return;
    }
    if (grid.axes.empty()) {
      print_single(grid.requests.front(), *options, global);
    } else {
      print_sweep(grid, *options, global);
    }
  });
}

}  // namespace ridge
