#include "model/builtin.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>

#include "base/embedded.h"
#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "hub/hub_cache.h"
#include "model/read.h"

namespace ridge {

namespace {

using nlohmann::json;
namespace fs = std::filesystem;

constexpr std::string_view kFolder = "models/", kExtension = ".json";

// "models/llama-3-8b.json" -> "llama-3-8b"; empty for other files of the atlas.
std::string_view stem(const EmbeddedFile& file) {
  std::string_view path = file.path;
  if (!path.starts_with(kFolder) || !path.ends_with(kExtension)) return {};
  return path.substr(kFolder.size(), path.size() - kFolder.size() - kExtension.size());
}

json parse_embedded(const EmbeddedFile& file) {
  return parse_json(file.text, std::string("atlas/") + file.path);
}

// Stems first, which needs no parsing; then the aliases inside the files.
const EmbeddedFile* find_embedded(std::string_view name) {
  std::string wanted = fold_model_name(name);
  if (wanted.empty()) return nullptr;
  for (const EmbeddedFile* file = kEmbeddedFiles; file->path != nullptr; ++file) {
    if (!stem(*file).empty() && fold_model_name(stem(*file)) == wanted) return file;
  }
  for (const EmbeddedFile* file = kEmbeddedFiles; file->path != nullptr; ++file) {
    if (stem(*file).empty()) continue;
    json entry = parse_embedded(*file);
    for (const auto& alias : entry.value("aliases", json::array())) {
      if (fold_model_name(alias.get<std::string>()) == wanted) return file;
    }
  }
  return nullptr;
}

// A release of a built-in model, perhaps quantized: "Qwen/Qwen3-8B-FP8",
// "nvidia/DeepSeek-R1-NVFP4".
struct Release {
  const EmbeddedFile* file = nullptr;  // nullptr: none
  std::string label;                   // "FP8"; empty: the model as it is
  bool nvidia = false;
};

Release find_release(std::string_view name) {
  if (const EmbeddedFile* file = find_embedded(name)) return {file, "", false};
  constexpr std::array<std::pair<std::string_view, const char*>, 3> kSuffixes = {
      {{"-fp8", "FP8"}, {"-nvfp4", "NVFP4"}, {"-fp4", "NVFP4"}}};
  const std::string folded = fold_model_name(name);
  for (const auto& [suffix, label] : kSuffixes) {
    if (folded.size() <= suffix.size() || !folded.ends_with(suffix)) continue;
    const EmbeddedFile* file = find_embedded(folded.substr(0, folded.size() - suffix.size()));
    if (file != nullptr) return {file, label, name.starts_with("nvidia/")};
  }
  return {};
}

// The quantization_config of such a release. Qwen, DeepSeek, GLM and MiniMax scale fp8 in blocks of
// 128 x 128. NVIDIA's own (Model Optimizer) scale whole tensors, hold the KV cache in fp8 and, with
// NVFP4, leave the attention of DeepSeek models in 16 bits.
json release_recipe(const Release& release, const json& config) {
  if (release.label == "FP8" && !release.nvidia) {
    return {{"quant_method", "fp8"},
            {"weight_block_size", {128, 128}},
            {"modules_to_not_convert", {"lm_head"}}};
  }
  json ignored = json::array({"lm_head"});
  if (release.label == "NVFP4" && config.contains("kv_lora_rank")) ignored.push_back("*self_attn*");
  return {{"quant_method", "modelopt"},
          {"quant_algo", release.label},
          {"kv_cache_quant_algo", "FP8"},
          {"ignore", ignored}};
}

[[noreturn]] void unknown_model(std::string_view name) {
  std::string shown(name.substr(0, 200));
  auto near = nearest_names(fold_model_name(name), builtin_model_names());
  if (near.empty()) {
    throw Error("{}: neither a built-in model (`ridge model` lists them) nor a file", shown);
  }
  throw Error("{}: neither a built-in model nor a file: did you mean {}?", shown,
              fmt::join(near, ", "));
}

}  // namespace

std::string fold_model_name(std::string_view name) {
  // An organisation stands before one slash: "Qwen/Qwen3-8B".
  if (size_t slash = name.rfind('/'); slash != std::string_view::npos)
    name.remove_prefix(slash + 1);
  std::string folded;
  for (char c : name) {
    char lower = char(std::tolower(static_cast<unsigned char>(c)));
    folded += lower == '_' || lower == '.' || lower == ' ' ? '-' : lower;
  }
  // What is tuned for chat has the base model's dimensions.
  constexpr std::array<std::string_view, 9> kSuffixes = {
      "-instruct", "-chat", "-it", "-hf", "-base", "-pt", "-bf16", "-v0-1", "-v1-0"};
  for (bool again = true; again;) {
    again = false;
    for (std::string_view suffix : kSuffixes) {
      if (folded.size() > suffix.size() && folded.ends_with(suffix)) {
        folded.resize(folded.size() - suffix.size());
        again = true;
      }
    }
  }
  return folded;
}

std::vector<std::string> builtin_model_names() {
  std::vector<std::string> names;
  for (const EmbeddedFile* file = kEmbeddedFiles; file->path != nullptr; ++file) {
    if (!stem(*file).empty()) names.emplace_back(stem(*file));
  }
  return names;
}

std::optional<Model> builtin_model(std::string_view name) {
  const Release release = find_release(name);
  if (release.file == nullptr) return std::nullopt;
  json entry = parse_embedded(*release.file);
  json& config = entry.at("config");
  std::string stored = entry.at("name").get<std::string>();
  std::string title = entry.at("title").get<std::string>();
  if (!release.label.empty()) {
    config["quantization_config"] = release_recipe(release, config);
    stored += "-" + fold_model_name(release.label);
    title += " (" + release.label + ")";
  }
  Model model = read_config(config, stored);
  model.name = stored;
  model.title = title;
  model.source = "built in";
  return model;
}

std::optional<Published> published_counts(std::string_view name) {
  const EmbeddedFile* file = find_release(name).file;
  if (file == nullptr) return std::nullopt;
  json entry = parse_embedded(*file);
  if (!entry.contains("published")) return std::nullopt;
  const json& published = entry.at("published");
  return Published{published.value("parameters", 0.0), published.value("active_parameters", 0.0),
                   published.value("source", "")};
}

std::string model_repository(std::string_view name) {
  const EmbeddedFile* file = find_embedded(name);
  return file == nullptr ? "" : parse_embedded(*file).value("repository", "");
}

json builtin_config(std::string_view name) {
  const EmbeddedFile* file = find_embedded(name);
  return file == nullptr ? json() : parse_embedded(*file).at("config");
}

namespace {

Model model_from_folder(const std::string& path) {
  for (const auto& entry : fs::directory_iterator(path)) {
    if (entry.path().extension() == ".safetensors") return model_from_safetensors(path);
  }
  std::string config = (fs::path(path) / "config.json").string();
  if (!fs::exists(config)) {
    throw Error("{}: a model's folder needs a config.json", path);
  }
  return read_config(read_json(config), config);
}

}  // namespace

Model find_model(std::string_view name_or_path) {
  if (name_or_path.empty()) throw Error("a model needs a name or a path");
  if (const std::optional<std::string> cached = find_cached_model(name_or_path)) {
    Model model = find_model(*cached);
    model.source = name_or_path;
    return model;
  }
  std::string path(name_or_path);
  std::error_code error;
  fs::file_status status = fs::status(path, error);
  bool exists = !error && fs::exists(status);
  // A path is what exists, or is written as one; a name never has a known file extension.
  std::string extension = fs::path(path).extension().string();
  if (!exists && extension != ".json" && extension != ".gguf" && extension != ".safetensors") {
    if (auto model = builtin_model(name_or_path)) return *model;
    check_pulled(name_or_path);
    unknown_model(name_or_path);
  }
  if (!exists) throw Error("{}: no such file", path);
  Model model;
  if (fs::is_directory(status)) {
    model = model_from_folder(path);
  } else if (extension == ".gguf") {
    model = model_from_gguf(path);
  } else if (extension == ".safetensors") {
    model = model_from_safetensors(path);
  } else {
    model = read_config(read_json(path), path);
  }
  if (model.name.empty()) {
    fs::path named = fs::path(path).lexically_normal();
    if (named.filename().empty() || named.filename() == "config.json") named = named.parent_path();
    model.name = snapshot_model_name(named);
    if (model.name.empty()) {
      model.name = named.stem().string().empty() ? path : named.stem().string();
    }
  }
  if (model.title.empty()) model.title = model.name;
  model.source = path;
  return model;
}

}  // namespace ridge
