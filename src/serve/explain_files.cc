#include "serve/explain_files.h"

#include <fmt/format.h>
#include <stdlib.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <mutex>

#include "base/error.h"
#include "diagnose/explain_options.h"
#include "diagnose/json.h"
#include "serve/api.h"
#include "serve/busy_error.h"

namespace ridge {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostSentFiles = 64;
constexpr size_t kMostHeadBytes = 64u << 10;
constexpr size_t kMostNameBytes = 200;

struct SentFile {
  std::string name;
  std::string_view bytes;
  double modified_s = 0;  // Unix time; two snapshots of metrics are a window by it. 0: not known
};

struct SentFiles {
  ApiOptions options;
  std::vector<SentFile> files;
};

// A folder that is removed with what is in it.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (fs::temp_directory_path() / "ridge-explain-XXXXXX").string();
    if (!mkdtemp(name.data())) throw Error("no temporary folder can be made in {}", name);
    path_ = name;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

// The last part of a sent name, as a file of the temporary folder can be called.
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
    const double modified_s = modified.is_number() ? modified.get<double>() : 0;
    sent.files.push_back({name, rest.substr(0, bytes), modified_s});
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

// Each file in a folder of its own: two may have one name.
std::string write_file(const SentFile& file, const fs::path& folder) {
  fs::create_directory(folder);
  const fs::path path = folder / file.name;
  std::ofstream out(path, std::ios::binary);
  out.write(file.bytes.data(), std::streamsize(file.bytes.size()));
  out.close();
  if (!out)
    throw Error("{}: there is no room for it in {}", file.name, folder.parent_path().string());
  constexpr double kLatest = 1e11;  // seconds; far beyond, the clock would overflow
  if (file.modified_s > 0 && file.modified_s < kLatest) {
    const std::chrono::duration<double> since(file.modified_s);
    std::error_code ignored;
    fs::last_write_time(
        path,
        std::chrono::file_clock::from_sys(std::chrono::sys_time<std::chrono::nanoseconds>(
            std::chrono::duration_cast<std::chrono::nanoseconds>(since))),
        ignored);
  }
  return path.string();
}

using Places = std::vector<std::string>;  // "/tmp/ridge-explain-x/0/", which no one should see

std::string without_places(std::string text, const Places& places) {
  for (const std::string& place : places) {
    for (size_t at = 0; (at = text.find(place, at)) != text.npos;) text.erase(at, place.size());
  }
  return text;
}

void remove_places(Json& json, const Places& places) {
  if (json.is_string()) {
    json = without_places(json.get<std::string>(), places);
  } else if (json.is_structured()) {
    for (Json& part : json) remove_places(part, places);
  }
}

}  // namespace

Json explain_files(std::string_view body) {
  // Files may be large: the other workers are left to those who generate.
  static std::mutex one_at_a_time;
  const std::unique_lock lock(one_at_a_time, std::try_to_lock);
  if (!lock) throw BusyError("other files are being explained: try again");
  const SentFiles sent = read_sent(body);
  ExplainOptions options = explain_options_of(sent.options);
  if (!sent.options.contains("model")) options.request.model = kAuto;
  if (!sent.options.contains("machine")) options.request.machine = kAuto;
  const TemporaryFolder folder;
  Places places;
  for (const SentFile& file : sent.files) {
    const fs::path own = folder.path() / std::to_string(places.size());
    places.push_back(own.string() + "/");
    options.files.push_back(write_file(file, own));
  }
  try {
    Json json = to_json(explain(options, Sources::names_only));
    remove_places(json, places);
    return json;
  } catch (const OptionError&) {
    throw;
  } catch (const Error& error) {
    throw Error("{}", without_places(error.what(), places));
  }
}

}  // namespace ridge
