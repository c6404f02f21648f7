#include "hub/repository.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <fnmatch.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <set>

#include "base/error.h"
#include "base/json.h"
#include "base/units.h"
#include "hub/hub_cache.h"

namespace ridge {
namespace {

using nlohmann::json;

constexpr int64_t kMaxFileBytes = int64_t{1} << 44;

// Hashes become file names, so they are checked like paths.
bool is_hash(std::string_view text, size_t digits) {
  return text.size() == digits && std::ranges::all_of(text, [](unsigned char c) {
           return std::isdigit(c) || (c >= 'a' && c <= 'f');
         });
}

HubFile parse_file(const json& entry, const std::string& where) {
  if (!entry.is_object()) throw Error("{}: the listing's siblings must be objects", where);
  HubFile file;
  file.name = string_field(entry, "rfilename", where).value_or("");
  if (!is_safe_relative_path(file.name)) {
    throw Error("{}: refused, the listing has the file name {}", where,
                json(file.name.substr(0, 80)).dump(-1, ' ', true, json::error_handler_t::replace));
  }
  const auto lfs = entry.find("lfs");
  const bool large = lfs != entry.end() && lfs->is_object();
  const std::string file_where = fmt::format("{}: {}", where, file.name);
  const std::optional<int64_t> size =
      integer_field(large ? *lfs : entry, "size", file_where, 0, kMaxFileBytes);
  file.hash =
      string_field(large ? *lfs : entry, large ? "sha256" : "blobId", file_where).value_or("");
  if (!size || !is_hash(file.hash, large ? 64 : 40)) {
    throw Error("{}: the server lists neither size nor hash", file_where);
  }
  file.size = static_cast<uint64_t>(*size);
  return file;
}

bool at_root(const HubFile& file) { return file.name.find('/') == file.name.npos; }

bool describes_model(const HubFile& file) {
  constexpr std::array kNames = {"config.json",
                                 "generation_config.json",
                                 "tokenizer.json",
                                 "tokenizer_config.json",
                                 "tokenizer.model",
                                 "special_tokens_map.json",
                                 "added_tokens.json",
                                 "vocab.json",
                                 "merges.txt",
                                 "vocab.txt",
                                 "chat_template.jinja",
                                 "chat_template.json",
                                 "model.safetensors.index.json"};
  return std::ranges::find(kNames, file.name) != kNames.end();
}

// Weights in the files that transformers writes: beside them some repositories hold the same
// weights in other files, such as consolidated.safetensors.
bool is_standard_weights(const HubFile& file) {
  return file.name == "model.safetensors" ||
         fnmatch("model-[0-9]*-of-[0-9]*.safetensors", file.name.c_str(), 0) == 0;
}

std::vector<HubFile> safetensors_model(const HubListing& listing) {
  const auto is_weights = [](const HubFile& file) {
    return at_root(file) && file.name.ends_with(".safetensors");
  };
  const bool standard = std::ranges::any_of(listing.files, is_standard_weights);
  std::vector<HubFile> files;
  bool weights = false;
  for (const HubFile& file : listing.files) {
    const bool taken = standard ? is_standard_weights(file) : is_weights(file);
    if (taken || describes_model(file)) files.push_back(file);
    weights = weights || taken;
  }
  return weights ? files : std::vector<HubFile>();
}

std::vector<HubFile> gguf_model(const HubListing& listing, const std::string& repo) {
  std::map<std::string, std::vector<HubFile>> models;
  for (const HubFile& file : listing.files) {
    if (file.name.ends_with(".gguf")) models[gguf_stem(file.name)].push_back(file);
  }
  if (models.empty()) {
    throw Error("{}: has neither safetensors nor GGUF files, which are what Ridge runs", repo);
  }
  if (models.size() == 1) return models.begin()->second;
  std::vector<std::string> choices;
  for (const auto& [stem, pieces] : models) {
    double bytes = 0;
    for (const HubFile& piece : pieces) bytes += double(piece.size);
    choices.push_back(fmt::format("{} ({})", pieces.front().name, pretty_bytes(bytes)));
  }
  throw Error("{} has {} GGUF models, name one: ridge pull {} FILE, where FILE is {}", repo,
              models.size(), repo, fmt::join(choices, ", "));
}

std::vector<HubFile> matching_files(const HubListing& listing, const std::string& repo,
                                    const std::vector<std::string>& patterns) {
  std::set<std::string> stems;  // of GGUF models
  std::set<std::string> names;
  for (const std::string& pattern : patterns) {
    bool found = false;
    for (const HubFile& file : listing.files) {
      if (file.name != pattern && fnmatch(pattern.c_str(), file.name.c_str(), 0) != 0) continue;
      found = true;
      names.insert(file.name);
      if (file.name.ends_with(".gguf")) stems.insert(gguf_stem(file.name));
    }
    if (!found) {
      throw Error("{}: has no file {} (ridge pull {} '*' --dry-run lists all)", repo, pattern,
                  repo);
    }
  }
  std::vector<HubFile> files;
  for (const HubFile& file : listing.files) {
    const bool piece = file.name.ends_with(".gguf") && stems.contains(gguf_stem(file.name));
    if (piece || names.contains(file.name)) files.push_back(file);
  }
  return files;
}

}  // namespace

HubListing parse_listing(std::string_view reply, const std::string& repo) {
  const json parsed = parse_json(reply, repo);
  HubListing listing;
  const auto siblings = parsed.is_object() ? parsed.find("siblings") : parsed.end();
  if (siblings == parsed.end() || !siblings->is_array()) {
    throw Error("{}: the server's reply is not a listing of a repository", repo);
  }
  listing.commit = string_field(parsed, "sha", repo).value_or("");
  if (!is_hash(listing.commit, 40)) throw Error("{}: the listing has no commit", repo);
  for (const json& entry : *siblings) listing.files.push_back(parse_file(entry, repo));
  return listing;
}

std::vector<HubFile> files_to_pull(const HubListing& listing, const std::string& repo,
                                   const std::vector<std::string>& patterns) {
  if (!patterns.empty()) return matching_files(listing, repo, patterns);
  std::vector<HubFile> files = safetensors_model(listing);
  return files.empty() ? gguf_model(listing, repo) : files;
}

}  // namespace ridge
