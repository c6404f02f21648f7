#include "lab/lab_results.h"

#include <filesystem>

#include "base/error.h"
#include "base/file.h"
#include "machine/user_folder.h"

namespace ridge {
namespace {

// Not beside machine files: the atlas reads every JSON file of their folder.
std::string results_path(LabDevice device) {
  const std::string folder = user_folder();
  if (folder.empty()) return "";
  return folder + (device == LabDevice::cuda ? "/lab/results-cuda.json" : "/lab/results-cpu.json");
}

bool has_points(const Json& experiment) {
  if (!experiment.contains("series") || !experiment["series"].is_array()) return false;
  for (const Json& series : experiment["series"]) {
    if (!series.is_object() || !series.contains("points") || !series["points"].is_array()) {
      return false;
    }
    for (const Json& point : series["points"]) {
      if (!point.is_object()) return false;
      for (const char* field : {"x", "measured"}) {
        if (!point.contains(field) || !point[field].is_number()) return false;
      }
    }
  }
  return true;
}

}  // namespace

Json read_results(const std::string& path) {
  Json results = Json(read_json(path));
  const bool right = results.is_object() && results.contains("experiments") &&
                     results["experiments"].is_array() && results.contains("device");
  if (!right) throw Error("{}: no results of `ridge lab --json`", path);
  for (const Json& one : results["experiments"]) {
    if (!one.is_object() || !one.contains("name") || !one["name"].is_string()) {
      throw Error("{}: an experiment has no name", path);
    }
    if (!has_points(one)) {
      throw Error("{}: {} has no series of points", path, one["name"].get<std::string>());
    }
  }
  return results;
}

LabDevice device_of_results(const Json& results) {
  return results.value("backend", "cpu") == "cuda" ? LabDevice::cuda : LabDevice::cpu;
}

void keep_results(const Json& results) {
  const std::string path = results_path(device_of_results(results));
  if (path.empty()) return;
  try {
    std::error_code ignored;
    std::filesystem::create_directories(std::filesystem::path(path).parent_path(), ignored);
    write_file(path, results.dump(1) + "\n");
  } catch (const Error&) {
    return;
  }
}

std::string kept_results_path(LabDevice device) {
  const std::string path = results_path(device);
  std::error_code none;
  return !path.empty() && std::filesystem::exists(path, none) ? path : "";
}

std::string kept_results_path() {
  const std::string cpu = kept_results_path(LabDevice::cpu);
  const std::string cuda = kept_results_path(LabDevice::cuda);
  if (cpu.empty() || cuda.empty()) return cpu.empty() ? cuda : cpu;
  std::error_code none;
  const bool cuda_later =
      std::filesystem::last_write_time(cuda, none) > std::filesystem::last_write_time(cpu, none);
  return cuda_later ? cuda : cpu;
}

}  // namespace ridge
