// Finds and opens weights: a folder, a file, or a model embedded in the program.
#include "engine/weights/weights.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "engine/weights/embedded_model.h"
#include "engine/weights/load_tensors.h"
#include "hub/hub_cache.h"
#include "model/builtin.h"
#include "model/gguf.h"
#include "model/read.h"
#include "model/safetensors.h"

namespace ridge {

namespace {

namespace fs = std::filesystem;

using Owners = std::vector<std::shared_ptr<const void>>;

std::string_view map_file(const std::string& path, Owners& owners) {
  auto mapped = std::make_shared<MappedFile>(path);
  owners.push_back(mapped);
  return mapped->bytes();
}

bool has_vocabulary(std::string_view file, const std::string& where) {
  return parse_gguf(file, where).arrays.contains("tokenizer.ggml.tokens");
}

Weights load_gguf(const std::string& path, LateCopies* late) {
  Owners owners;
  std::vector<NamedBytes> pieces;
  const std::string_view first = map_file(path, owners);
  for (const std::string& piece : gguf_pieces(path, parse_gguf(first, path))) {
    pieces.push_back({piece == path ? first : map_file(piece, owners), piece});
  }
  Weights weights = weights_from_gguf(pieces, late);
  if (has_vocabulary(first, path)) {
    weights.tokenizer = tokenizer_from_gguf(first, path);
  }
  weights.owners.insert(weights.owners.end(), owners.begin(), owners.end());
  return weights;
}

Weights load_embedded(std::string_view name, LateCopies* late) {
  const NamedBytes file{embedded_model(name), name.empty() ? "ridge-7m" : std::string(name)};
  Weights weights = weights_from_gguf({&file, 1}, late);
  if (has_vocabulary(file.bytes, file.name)) {
    weights.tokenizer = tokenizer_from_gguf(file.bytes, file.name);
  }
  weights.source = weights.described_by = file.name;
  weights.model.name = weights.model.title = file.name;
  weights.model.source = "built in";
  return weights;
}

// `only`: one file of the folder, or empty for all files that its index lists.
Weights load_folder(const fs::path& folder, const std::string& only, LateCopies* late) {
  const std::string config_path = (folder / "config.json").string();
  std::error_code error;
  if (!fs::exists(config_path, error)) {
    if (error) throw Error("{}: {}", config_path, error.message());
    throw Error("{}: a model's folder needs a config.json", folder.string());
  }
  const nlohmann::json config = read_json(config_path);
  Owners owners;
  std::vector<NamedBytes> shards;
  for (const std::string& path :
       only.empty() ? safetensors_files(folder.string()) : std::vector<std::string>{only}) {
    shards.push_back({map_file(path, owners), path});
  }
  Weights weights = weights_from_safetensors(config, config_path, shards, late);
  weights.owners.insert(weights.owners.end(), owners.begin(), owners.end());
  const fs::path generation = folder / "generation_config.json";
  if (fs::exists(generation, error)) {
    add_generation_config(weights.architecture, read_json(generation.string()),
                          generation.string());
  }
  if (fs::exists(folder / "tokenizer.json", error)) {
    weights.tokenizer = load_tokenizer(folder.string());
  }
  return weights;
}

Weights load_with(const std::string& name, LateCopies* late) {
  if (const std::optional<std::string> cached = find_cached_model(name)) {
    Weights weights = load_with(*cached, late);
    weights.source = weights.model.source = name;
    return weights;
  }
  std::error_code error;
  const fs::file_status status = fs::status(name, error);
  const bool exists = !error && fs::exists(status);
  if (!exists && !embedded_model(name).empty()) return load_embedded(name, late);
  const fs::path path = name;
  const std::string extension = path.extension().string();
  if (!exists) {
    check_pulled(name);
    if (extension == ".gguf" || extension == ".safetensors" || builtin_config(name).is_null()) {
      throw Error("{}: no such model: a folder with config.json and safetensors, or a *.gguf",
                  name.substr(0, 200));
    }
    throw Error(
        "{} is described here, but its weights are not: name a folder or a *.gguf, or take "
        "--weights random:1",
        name);
  }
  Weights weights;
  if (fs::is_directory(status)) {
    weights = load_folder(path, "", late);
  } else if (extension == ".gguf") {
    weights = load_gguf(name, late);
  } else if (extension == ".safetensors") {
    weights = load_folder(path.parent_path(), name, late);
  } else {
    throw Error("{}: weights are read from a folder, a *.gguf or a *.safetensors", name);
  }
  fs::path named = path.lexically_normal();
  if (named.filename().empty()) named = named.parent_path();
  weights.model.name = snapshot_model_name(named);
  if (weights.model.name.empty()) {
    weights.model.name = extension.empty() ? named.filename().string() : named.stem().string();
  }
  if (weights.model.title.empty()) weights.model.title = weights.model.name;
  weights.source = weights.described_by = weights.model.source = name;
  return weights;
}

}  // namespace

Weights load_weights(const std::string& name) { return load_with(name, nullptr); }

LazyWeights lazy_weights(const std::string& name, int hosts) {
  const auto late = std::make_shared<LateCopies>(hosts);
  Weights whole = load_with(name, late.get());
  return {std::move(whole), [late](const Matrix& view) { late->fill(view); }};
}

}  // namespace ridge
