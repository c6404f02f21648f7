// `ridge convert`: the same model in another storage or file.
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>

#include "base/error.h"
#include "base/json.h"
#include "base/units.h"
#include "cli/command.h"
#include "cli/engine_options.h"
#include "engine/weights/weights.h"

namespace ridge {
namespace {

struct ConvertCommandOptions {
  std::string model, out, to, format, weights;
};

constexpr const char* kConvertFooter = R"(Examples:
  ridge convert ~/models/Qwen3-8B --to q4_k qwen3-8b-q4_k.gguf
  ridge convert model-f16.gguf --to q8_0 model-q8_0.gguf
  ridge convert ~/models/Llama-3.2-1B --to bf16 --format safetensors llama-bf16
  ridge convert ridge-7m --to q4_0 ridge-7m-q4_0.gguf      the model inside the program
  ridge convert tinyllama-1.1b --weights random:1 --to bf16 tinyllama-random.gguf

Layer matrices, embedding and head take the storage; norms and routers stay f32. Rows that do not
fill its blocks take the next one that fits (q4_k: q5_0, q5_k: q5_1, q6_k: q8_0), or bf16. A GGUF has
tokenizer and metadata inside, as llama.cpp reads them; a tokenizer that GGUF cannot say faithfully
is refused. Safetensors hold f32, f16 or bf16 and are made from a folder.

JSON: {source, path, storage, format, source_bytes, bytes, bits_per_weight, seconds}.)";

FileKind kind_of(const ConvertCommandOptions& options) {
  if (options.format == "gguf") return FileKind::gguf;
  if (options.format == "safetensors") return FileKind::safetensors;
  if (!options.format.empty()) {
    throw Error("--format is gguf or safetensors, not \"{}\"", options.format.substr(0, 40));
  }
  if (options.out.ends_with(".gguf")) return FileKind::gguf;
  throw Error("{}: name it *.gguf, or say --format safetensors for a folder", options.out);
}

Weights weights_of(const ConvertCommandOptions& options, Storage storage) {
  if (options.weights.empty()) return load_weights(options.model);
  return random_weights(options.model, storage, random_seed(options.weights), 0);
}

void run_convert(const ConvertCommandOptions& options, const Global& global) {
  const FileKind kind = kind_of(options);
  const Storage storage = storage_from_name(options.to);
  const Weights weights = weights_of(options, storage);
  const auto start = std::chrono::steady_clock::now();
  auto seconds = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  bool shown = false;
  const bool terminal = ::isatty(STDERR_FILENO) != 0;
  auto progress = [&](double done, double total) {
    if (!terminal || seconds() < 1) return;  // short work needs none
    fmt::print(stderr, "\r{:3.0f} %  {} of {} ", std::floor(100 * done / total), pretty_bytes(done),
               pretty_bytes(total));
    std::fflush(stderr);
    shown = true;
  };
  const Converted made = convert_weights(weights, storage, kind, options.out, progress);
  if (shown) fmt::print(stderr, "\r\033[K");
  const std::string_view name = storage_info(storage).name;
  if (global.json) {
    const Json report = {{"source", weights.source},
                         {"path", options.out},
                         {"storage", name},
                         {"format", kind == FileKind::gguf ? "gguf" : "safetensors"},
                         {"source_bytes", weights.bytes},
                         {"bytes", made.bytes},
                         {"bits_per_weight", made.bits},
                         {"seconds", seconds()}};
    fmt::print("{}\n", report.dump(2));
    return;
  }
  std::string kept;
  if (made.kept_bytes > 0) {
    kept = fmt::format(", {} in another storage: rows do not fill its blocks",
                       pretty_bytes(made.kept_bytes));
  }
  fmt::print("{}: {} -> {} in {}, {:.2f} bits a weight{}, {:.1f} s\n", options.out,
             pretty_bytes(weights.bytes), pretty_bytes(made.bytes), name, made.bits, kept,
             seconds());
}

}  // namespace

void add_convert_command(CLI::App& app, Global& global) {
  auto options = std::make_shared<ConvertCommandOptions>();
  CLI::App* command = app.add_subcommand(
      "convert", "Write a model's weights in another storage, as GGUF or safetensors");
  command->fallthrough();
  command->footer(kConvertFooter);
  command->add_option("model", options->model, "Folder, *.gguf, ridge-7m or ridge-1m")->required();
  command->add_option("out", options->out, "File (*.gguf) or folder to write")->required();
  command
      ->add_option("--to", options->to,
                   "bf16, f16, f32, q8_0, q4_0, q4_1, q5_0, q5_1, q4_k, q5_k or q6_k")
      ->required();
  command->add_option("--format", options->format, "gguf or safetensors (default: by the name)");
  command->add_option("--weights", options->weights,
                      "random:SEED writes a described model that has no files");
  command->callback([options, &global] { run_convert(*options, global); });
}

}  // namespace ridge
