#include "page/explain_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/error.h"
#include "diagnose/explain_options.h"
#include "diagnose/json.h"
#include "page/api.h"

namespace ridge {
namespace {

constexpr size_t kMostSentFiles = 64;
constexpr size_t kMostHeadBytes = 64u << 10;
constexpr size_t kMostNameBytes = 200;

struct SentFiles {
  ApiOptions options;
  std::vector<EvidenceInput> files;  // their bytes are the body's
};

// The last part of a sent name, without control characters.
std::string safe_name(std::string name) {
  name = name.substr(name.find_last_of("/\\") + 1);  // npos + 1 is 0
  std::replace_if(
      name.begin(), name.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; }, '_');
  if (name.empty() || name == "." || name == ".." || name.size() > kMostNameBytes) {
    throw Error("a file needs a name of at most {} bytes", kMostNameBytes);
  }
  return name;
}

SentFiles read_sent(std::string_view body) {
  const size_t end = body.substr(0, kMostHeadBytes).find('\n');
  if (end == body.npos) {
    throw Error("the body must begin with one line of JSON, then the bytes of the files");
  }
  const nlohmann::json head = parse_json(body.substr(0, end), "the first line");
  if (!head.is_object() || !head.value("files", nlohmann::json()).is_array()) {
    throw Error("the first line must be an object with a list of files");
  }
  std::string_view rest = body.substr(end + 1);
  SentFiles sent;
  for (const nlohmann::json& file : head["files"]) {
    const bool sound = file.is_object() && file.value("name", nlohmann::json()).is_string() &&
                       file.value("bytes", nlohmann::json()).is_number_unsigned();
    if (!sound) throw Error("a file needs a name and its number of bytes");
    const std::string name = safe_name(file["name"].get<std::string>());
    const size_t bytes = file["bytes"].get<size_t>();
    if (bytes > rest.size()) throw Error("{}: the body ends before the file does", name);
    const nlohmann::json modified = file.value("modified_s", nlohmann::json());
    constexpr double kLatest = 1e11;  // Unix time; two snapshots of metrics are a window by it
    const double given_s = modified.is_number() ? modified.get<double>() : 0;
    const double modified_s = given_s > 0 && given_s < kLatest ? given_s : 0;
    sent.files.emplace_back(name, rest.substr(0, bytes), modified_s);
    rest.remove_prefix(bytes);
  }
  if (!rest.empty()) throw Error("{} bytes follow the last file", rest.size());
  if (sent.files.empty()) throw Error("no file was sent");
  if (sent.files.size() > kMostSentFiles) throw Error("at most {} files at once", kMostSentFiles);
  const nlohmann::json options = head.value("options", nlohmann::json::object());
  if (!options.is_object()) throw Error("options must be an object");
  for (const auto& [name, value] : options.items()) {
    if (!value.is_string()) throw OptionError(name, fmt::format("{} must be text", name));
    sent.options[name] = value.get<std::string>();
  }
  return sent;
}

}  // namespace

Json explain_files(std::string_view body) {
  const SentFiles sent = read_sent(body);
  ExplainOptions options = explain_options_of(sent.options);
  if (!sent.options.contains("model")) options.request.model = kAuto;
  if (!sent.options.contains("machine")) options.request.machine = kAuto;
  options.sent = sent.files;
  options.most_unpacked_bytes = explain_unpacked_bytes(body.size());
  return to_json(explain(options, Sources::names_only));
}

}  // namespace ridge
