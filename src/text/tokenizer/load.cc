// A tokenizer from where a model lies.
#include <filesystem>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "hub/hub_cache.h"
#include "text/tokenizer/special.h"
#include "text/tokenizer/tokenizer.h"

namespace ridge {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

bool is_there(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error);
}

// "</s>" or {"content": "</s>", ...}
std::optional<Token> named_token(const json& config, const char* key, const Tokenizer& tokenizer) {
  const auto found = config.find(key);
  if (found == config.end()) return std::nullopt;
  if (found->is_string()) return tokenizer.find(found->get_ref<const std::string&>());
  if (found->is_object() && found->contains("content") && (*found)["content"].is_string()) {
    return tokenizer.find((*found)["content"].get_ref<const std::string&>());
  }
  return std::nullopt;
}

// One template, or a list of named ones: "default" and, for requests with tools, "tool_use".
void read_chat_templates(const json& config, Tokenizer& tokenizer) {
  const auto found = config.find("chat_template");
  if (found == config.end()) return;
  if (found->is_string()) tokenizer.chat_template = found->get<std::string>();
  if (!found->is_array()) return;
  for (const json& one : *found) {
    if (!one.is_object() || !one.contains("template") || !one["template"].is_string()) continue;
    const auto text = one["template"].get<std::string>();
    const json name = one.value("name", json());
    if (name == "default" || tokenizer.chat_template.empty()) tokenizer.chat_template = text;
    if (name == "tool_use") tokenizer.tool_template = text;
  }
}

void add_ends(const json& value, Tokenizer& tokenizer) {
  if (value.is_number_integer() && value >= 0 && value < tokenizer.size()) {
    add_end(tokenizer, value.get<Token>());
  }
  if (!value.is_array()) return;
  for (const json& one : value) {
    if (!one.is_array()) add_ends(one, tokenizer);
  }
}

void read_tokenizer_config(const json& config, Tokenizer& tokenizer) {
  if (const auto bos = named_token(config, "bos_token", tokenizer)) tokenizer.bos = bos;
  if (const auto eos = named_token(config, "eos_token", tokenizer)) {
    tokenizer.eos = eos;
    add_end(tokenizer, *eos);
  }
  // Llama's and Gemma's classes make their template from these; null means as the file says.
  const auto flag = [&](const char* key, bool& adds, const std::optional<Token>& token) {
    const auto found = config.find(key);
    if (found != config.end() && found->is_boolean()) adds = found->get<bool>() && token;
  };
  flag("add_bos_token", tokenizer.adds_bos, tokenizer.bos);
  flag("add_eos_token", tokenizer.adds_eos, tokenizer.eos);
  read_chat_templates(config, tokenizer);
}

std::unique_ptr<Tokenizer> load_folder(const fs::path& folder) {
  const fs::path main = folder / "tokenizer.json";
  if (!is_there(main)) throw Error("{}: has no tokenizer.json", folder.string());
  auto tokenizer = tokenizer_from_json(read_file(main.string(), kMaxJsonBytes), main.string());
  if (const fs::path path = folder / "tokenizer_config.json"; is_there(path)) {
    const json config = read_json(path.string());
    if (config.is_object()) read_tokenizer_config(config, *tokenizer);
  }
  const auto read_template = [&](const fs::path& path, std::string& into) {
    constexpr size_t kMaxTemplate = 1 << 20;
    if (is_there(path)) into = read_file(path.string(), kMaxTemplate);
  };
  read_template(folder / "chat_template.jinja", tokenizer->chat_template);
  read_template(folder / "additional_chat_templates" / "tool_use.jinja", tokenizer->tool_template);
  for (const char* name : {"generation_config.json", "config.json"}) {
    const fs::path path = folder / name;
    if (!is_there(path)) continue;
    const json config = read_json(path.string());
    if (!config.is_object() || !config.contains("eos_token_id")) continue;
    add_ends(config["eos_token_id"], *tokenizer);
  }
  return tokenizer;
}

}  // namespace

std::unique_ptr<Tokenizer> load_tokenizer(const std::string& path) {
  if (const std::optional<std::string> cached = find_cached_model(path)) {
    return load_tokenizer(*cached);
  }
  check_pulled(path);
  std::error_code error;
  if (fs::is_directory(path, error)) return load_folder(path);
  const MappedFile file(path);
  // By its first bytes: names lie.
  if (file.bytes().starts_with("GGUF")) return tokenizer_from_gguf(file.bytes(), path);
  if (path.ends_with(".gguf")) throw Error("{}: not a GGUF file", path);
  return tokenizer_from_json(file.bytes(), path);
}

}  // namespace ridge
