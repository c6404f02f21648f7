// Models by their Hugging Face name, in the local cache that huggingface_hub keeps:
//
//   CACHE/models--ORG--NAME/refs/main                the commit that "main" was when it was pulled
//                           snapshots/COMMIT/FILE    links into blobs/
//                           blobs/HASH               contents: SHA-256 of LFS files, else git's
//                           SHA-1
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace ridge {

struct HubName {
  std::string repo;               // "Qwen/Qwen3-0.6B"
  std::string revision = "main";  // branch, tag or commit
  std::string file;               // empty: the whole repository
};

// "org/name", "org/name@revision", "org/name:file.gguf" or both; nullopt where the text has another
// form. "x/y.gguf", "x/y.safetensors" and "x/y.json" are files, not repositories.
std::optional<HubName> parse_hub_name(std::string_view text);

// The folder of Hugging Face's settings (HF_HOME, else XDG_CACHE_HOME or ~/.cache and huggingface),
// and of its cache (HF_HUB_CACHE, else hub in the former).
std::filesystem::path hub_home();
std::filesystem::path hub_cache_folder();
// CACHE/models--ORG--NAME.
std::filesystem::path hub_repo_folder(const std::filesystem::path& cache, const std::string& repo);

// A relative path that stays below its folder: no "..", no empty part, no backslash, no control
// character. What a server or a user names is checked with it before it becomes a path.
bool is_safe_relative_path(std::string_view path);
bool is_commit(std::string_view revision);  // 40 hexadecimal digits

// The snapshot's folder, or the file in it: the one that the name says, else the repository's only
// GGUF model where it has no safetensors. nullopt where the text is an existing path or no hub
// name, or nothing that describes a model is in the cache. Throws Error where a GGUF must be
// chosen.
std::optional<std::string> find_cached_model(std::string_view name);
// Throws Error with the command that downloads it, where the text is a hub name; for readers that
// found nothing under it.
void check_pulled(std::string_view name);

// "Qwen3-0.6B" for .../models--Qwen--Qwen3-0.6B/snapshots/COMMIT, whose last part is no name; empty
// for other folders.
std::string snapshot_model_name(const std::filesystem::path& folder);

// "x" for "x-00002-of-00003.gguf": the pieces of one model have one stem. Other GGUF files: the
// name without its extension.
std::string gguf_stem(std::string_view file);

}  // namespace ridge
