#include "hub/hub_cache.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <map>
#include <vector>

#include "base/error.h"
#include "base/file.h"

namespace ridge {
namespace {

namespace fs = std::filesystem;

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// What the Hub allows in the name of an organisation or a repository.
bool is_hub_word(std::string_view word) {
  constexpr size_t kLongest = 96;
  if (word.empty() || word.size() > kLongest) return false;
  if (word.find("--") != word.npos || word.find("..") != word.npos) return false;
  const auto edge = [](char c) { return c == '-' || c == '.'; };
  if (edge(word.front()) || edge(word.back())) return false;
  return std::ranges::all_of(
      word, [](unsigned char c) { return std::isalnum(c) || c == '-' || c == '_' || c == '.'; });
}

bool has_model_extension(std::string_view name) {
  return name.ends_with(".gguf") || name.ends_with(".safetensors") || name.ends_with(".json");
}

std::optional<fs::path> find_snapshot(const HubName& name) {
  const fs::path folder = hub_repo_folder(hub_cache_folder(), name.repo);
  std::string commit = name.revision;
  std::error_code error;
  if (const fs::path ref = folder / "refs" / name.revision; fs::is_regular_file(ref, error)) {
    constexpr size_t kMaxRef = 4096;
    commit = read_file(ref.string(), kMaxRef);
    while (!commit.empty() && std::isspace(static_cast<unsigned char>(commit.back()))) {
      commit.pop_back();
    }
  }
  if (!is_commit(commit)) return std::nullopt;
  const fs::path snapshot = folder / "snapshots" / commit;
  if (!fs::is_directory(snapshot, error)) return std::nullopt;
  return snapshot;
}

// The GGUF models of a snapshot: the first file of each, by stem.
std::map<std::string, std::string> gguf_models(const fs::path& snapshot) {
  std::map<std::string, std::string> first;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(snapshot)) {
    if (entry.path().extension() != ".gguf") continue;
    const std::string file = entry.path().lexically_relative(snapshot).string();  // not of the blob
    std::string& known = first[gguf_stem(file)];
    if (known.empty() || file < known) known = file;
  }
  return first;
}

bool holds_safetensors(const fs::path& snapshot) {
  for (const fs::directory_entry& entry : fs::directory_iterator(snapshot)) {
    if (entry.path().extension() == ".safetensors") return true;
  }
  return false;
}

std::optional<std::string> model_in_snapshot(const fs::path& snapshot, const HubName& name) {
  std::error_code error;
  if (!name.file.empty()) {
    const fs::path file = snapshot / name.file;
    return fs::exists(file, error) ? std::optional(file.string()) : std::nullopt;
  }
  if (!holds_safetensors(snapshot)) {
    const std::map<std::string, std::string> models = gguf_models(snapshot);
    if (models.size() == 1) return (snapshot / models.begin()->second).string();
    if (models.size() > 1) {
      std::vector<std::string> files;
      for (const auto& [stem, file] : models) files.push_back(file);
      throw Error("{} has {} GGUF models here: {}:FILE, where FILE is {}", name.repo, files.size(),
                  name.repo, fmt::join(files, ", "));
    }
  }
  return fs::exists(snapshot / "config.json", error) ? std::optional(snapshot.string())
                                                     : std::nullopt;
}

bool is_path(std::string_view text) {
  std::error_code error;
  return fs::exists(fs::path(text), error);
}

}  // namespace

std::optional<HubName> parse_hub_name(std::string_view text) {
  HubName name;
  if (const size_t colon = text.find(':'); colon != text.npos) {
    name.file = text.substr(colon + 1);
    text = text.substr(0, colon);
    if (!is_safe_relative_path(name.file)) return std::nullopt;
  }
  if (const size_t at = text.find('@'); at != text.npos) {
    name.revision = text.substr(at + 1);
    text = text.substr(0, at);
    if (!is_safe_relative_path(name.revision)) return std::nullopt;
  }
  const size_t slash = text.find('/');
  if (slash == text.npos || has_model_extension(text)) return std::nullopt;
  if (!is_hub_word(text.substr(0, slash)) || !is_hub_word(text.substr(slash + 1))) {
    return std::nullopt;
  }
  name.repo = text;
  return name;
}

fs::path hub_home() {
  if (const std::string home = environment("HF_HOME"); !home.empty()) return home;
  if (const std::string cache = environment("XDG_CACHE_HOME"); !cache.empty()) {
    return fs::path(cache) / "huggingface";
  }
  return fs::path(environment("HOME")) / ".cache" / "huggingface";
}

fs::path hub_cache_folder() {
  if (const std::string cache = environment("HF_HUB_CACHE"); !cache.empty()) return cache;
  return hub_home() / "hub";
}

fs::path hub_repo_folder(const fs::path& cache, const std::string& repo) {
  const size_t slash = repo.find('/');
  return cache / fmt::format("models--{}--{}", repo.substr(0, slash), repo.substr(slash + 1));
}

bool is_safe_relative_path(std::string_view path) {
  constexpr size_t kLongestPath = 1024, kLongestPart = 255;
  if (path.empty() || path.size() > kLongestPath) return false;
  const bool plain = std::ranges::all_of(
      path, [](unsigned char c) { return c >= 0x20 && c != 0x7F && c != '\\'; });
  if (!plain) return false;
  for (size_t at = 0; at <= path.size();) {
    const size_t end = std::min(path.find('/', at), path.size());
    const std::string_view part = path.substr(at, end - at);
    if (part.empty() || part == "." || part == ".." || part.size() > kLongestPart) return false;
    at = end + 1;
  }
  return true;
}

bool is_commit(std::string_view revision) {
  constexpr size_t kSha1Digits = 40;
  return revision.size() == kSha1Digits &&
         std::ranges::all_of(revision, [](unsigned char c) { return std::isxdigit(c) != 0; });
}

std::optional<std::string> find_cached_model(std::string_view text) {
  const std::optional<HubName> name = parse_hub_name(text);
  if (!name || is_path(text)) return std::nullopt;
  const std::optional<fs::path> snapshot = find_snapshot(*name);
  return snapshot ? model_in_snapshot(*snapshot, *name) : std::nullopt;
}

void check_pulled(std::string_view text) {
  const std::optional<HubName> name = parse_hub_name(text);
  if (!name || is_path(text)) return;
  const std::string revision =
      name->revision == "main" ? "" : fmt::format(" --revision {}", name->revision);
  throw Error("{} is neither a path nor in the Hugging Face cache {}: ridge pull {}{}{}{}", text,
              hub_cache_folder().string(), name->repo, name->file.empty() ? "" : " ", name->file,
              revision);
}

std::string snapshot_model_name(const fs::path& folder) {
  const fs::path snapshots = folder.parent_path();
  const std::string repo = snapshots.parent_path().filename().string();
  constexpr std::string_view kPrefix = "models--";
  if (snapshots.filename() != "snapshots" || !repo.starts_with(kPrefix)) return "";
  return repo.substr(repo.rfind("--") + 2);
}

std::string gguf_stem(std::string_view file) {
  std::string stem(file.substr(0, file.rfind('.')));
  constexpr std::string_view kPiece = "-00001-of-00003";
  if (stem.size() <= kPiece.size()) return stem;
  const std::string_view tail = std::string_view(stem).substr(stem.size() - kPiece.size());
  for (size_t i = 0; i < kPiece.size(); ++i) {
    const bool digit = std::isdigit(static_cast<unsigned char>(kPiece[i])) != 0;
    const bool same =
        digit ? std::isdigit(static_cast<unsigned char>(tail[i])) != 0 : tail[i] == kPiece[i];
    if (!same) return stem;
  }
  stem.resize(stem.size() - kPiece.size());
  return stem;
}

}  // namespace ridge
