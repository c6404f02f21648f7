// `ridge model`: what does this model need?
#include <fmt/format.h>

#include <cmath>

#include "base/error.h"
#include "base/json.h"
#include "base/json_csv.h"
#include "base/text.h"
#include "base/units.h"
#include "cli/command.h"
#include "model/builtin.h"
#include "model/describe.h"
#include "model/model_json.h"
#include "model/read.h"

namespace ridge {
namespace {

struct ModelCommandOptions {
  std::string name;
  bool csv = false;
};

constexpr const char* kModelFooter = R"(Examples:
  ridge model                                    the built-in models
  ridge model llama-3-70b                        dimensions, parameters, bytes, KV per token
  ridge model meta-llama/Llama-3.1-8B-Instruct   Hugging Face names work too
  ridge model ./config.json                      a Hugging Face config
  ridge model ~/models/Qwen3-8B                  a folder: exact bytes from its safetensors
  ridge model model-Q4_K_M.gguf                  formats and bytes from the file's own header
  ridge model --csv > models.csv

Unknown architectures are refused; the error names the field that was not understood.

JSON: the list is an array of {name, title, family, parameters, active_parameters, weight_bytes,
kv_bytes_per_token, layers, max_context}; one model adds hidden, vocab, layer_groups, parts,
formats, kv, extras, not_executed (why the engine does not run the model; null where it does), notes
and published. Bytes; kv_bytes_per_token counts every layer that keeps KV, before any window cuts
it.)";

constexpr int kPartsBarWidth = 24;
constexpr double kContexts[] = {1024, 4096, 8192, 32768, 131072};

double quoted_kv(const Model& model) { return kv_bytes_per_token_full(model, model.kv_format); }

void print_list(const ModelCommandOptions& options, const Global& global) {
  Json list = Json::array();
  Table table({"name", "parameters", "active", "weights", "KV/token", "layers", "context"});
  size_t count = 0;
  for (const std::string& name : builtin_model_names()) {
    Model model = find_model(name);
    ++count;
    if (global.json || options.csv) {
      list.push_back(model_summary(model));
      continue;
    }
    double kv = quoted_kv(model);
    table.add({name, pretty_count(parameters(model)), pretty_count(active_parameters(model)),
               pretty_bytes(weight_bytes(model)), kv > 0 ? pretty_bytes(kv) : "-",
               fmt::format("{}", model.layers()),
               model.max_context > 0 ? pretty_count(double(model.max_context)) : "?"});
  }
  if (global.json) {
    fmt::print("{}\n", list.dump(2));
  } else if (options.csv) {
    fmt::print("{}", json_csv(list));
  } else {
    fmt::print("{}\n{} models; weights as released (bf16 unless quantized).\n", table.text(),
               count);
  }
}

std::string difference(double ours, double theirs) {
  double relative = ours / theirs - 1;
  if (ours == theirs) return "exactly equal";
  if (std::abs(relative) < 5e-5) return "within 0.01 %";
  return fmt::format("{:+.2f} %", 100 * relative);
}

void print_heading(const Model& model) {
  fmt::print("{}  {}\n", paint(Colour::bold, model.title),
             paint(Colour::dim, fmt::format("{}, {}", model.family, model.source)));
  fmt::print("{} layers, hidden {}, vocabulary {}, {}{}\n\n", model.layers(), model.hidden,
             model.vocab,
             model.max_context > 0 ? fmt::format("context {}", model.max_context)
                                   : std::string("context not stated"),
             model.tied_embeddings ? ", tied embeddings" : "");
  for (const LayerGroup& group : model.groups) {
    fmt::print("  {:>3} x {}\n", group.count, describe_layer(group.layer));
  }
  fmt::print("\n");
}

void print_parts(const Model& model) {
  double total = parameters(model);
  Table table({"part", "parameters", "bytes", "share", ""});
  for (const ParameterGroup& part : parameter_groups(model)) {
    double share = part.parameters / total;
    table.add({part.name, pretty_count(part.parameters), pretty_bytes(part.bytes),
               pretty_percent(share), bar(share, kPartsBarWidth)});
  }
  table.rule();
  table.add({"total", pretty_count(total), pretty_bytes(weight_bytes(model)), "", ""});
  fmt::print("{}", table.text());
  for (const Extra& extra : model.extras) {
    if (!extra.counted) {
      fmt::print("not counted: {}, {} parameters\n", extra.name, pretty_count(extra.parameters));
    }
  }
  double active = active_parameters(model);
  if (active < 0.95 * total) {
    fmt::print("active per token: {} ({})\n", pretty_count(active), pretty_percent(active / total));
  }
  if (auto published = model.source == "built in" ? published_counts(model.name) : std::nullopt) {
    fmt::print("published: {}, {} ({})\n", pretty_count(published->parameters),
               difference(total, published->parameters), published->source);
    if (published->active_parameters > 0) {
      fmt::print("published active: {}, {}\n", pretty_count(published->active_parameters),
                 difference(active, published->active_parameters));
    }
  }
  fmt::print("\n");
}

void print_kv(const Model& model) {
  double full = quoted_kv(model), grown = kv_bytes_per_token(model, model.kv_format);
  if (full > 0) {
    fmt::print("KV cache: {} per token in {}", pretty_bytes(full), model.kv_format.name);
    if (grown < full) fmt::print(", {} beyond every window", pretty_bytes(grown));
    fmt::print("\n");
  }
  double state = sequence_bytes(model, 0, model.kv_format);
  if (state > 0) fmt::print("constant state: {} per sequence\n", pretty_bytes(state));
  Table table({"context", "per sequence", "share of weights", ""});
  for (double context : kContexts) {
    double bytes = sequence_bytes(model, context, model.kv_format);
    bool beyond = model.max_context > 0 && context > double(model.max_context);
    table.add({fmt::format("{:.0f}", context), pretty_bytes(bytes),
               pretty_percent(bytes / weight_bytes(model)),
               beyond ? "beyond the model's context" : ""});
  }
  fmt::print("{}", table.text());
}

void print_model(const Model& model) {
  print_heading(model);
  print_parts(model);
  print_kv(model);
  std::string formats;
  double total = parameters(model);
  for (const ParameterGroup& format : parameters_by_format(model)) {
    formats += fmt::format("{}{} {}", formats.empty() ? "" : ", ", format.name,
                           pretty_percent(format.parameters / total));
  }
  fmt::print("\nformats: {}\n", formats);
  fmt::print("{}\n", model.execution ? "the engine runs it: `ridge run`, `ridge serve`"
                                     : "not run by the engine: " + model.not_executed);
  for (const std::string& note : model.notes) fmt::print("note: {}\n", note);
}

void run_model(const ModelCommandOptions& options, const Global& global, bool named) {
  if (named && options.name.empty()) throw Error("the model's name is empty");
  if (options.name.empty()) return print_list(options, global);
  if (options.csv) throw Error("--csv is for the list; `ridge model --csv`, or --json here");
  Model model = find_model(options.name);
  if (global.json) {
    // Names from files may hold bytes that are not UTF-8.
    fmt::print("{}\n", model_details(model).dump(2, ' ', false, Json::error_handler_t::replace));
  } else {
    print_model(model);
  }
}

}  // namespace

void add_model_command(CLI::App& app, Global& global) {
  auto options = std::make_shared<ModelCommandOptions>();
  CLI::App* command = app.add_subcommand(
      "model", "What does this model need? Dimensions, parameters, bytes, KV per token");
  command->fallthrough();
  command->footer(kModelFooter);
  command->add_option("name", options->name,
                      "Built-in name, config.json, folder, *.gguf or *.safetensors");
  command->add_flag("--csv", options->csv,
                    "The list as comma-separated values, fields as in --json");
  command->callback(
      [options, command, &global] { run_model(*options, global, command->count("name") > 0); });
}

}  // namespace ridge
