#include "page/lab_service.h"

#include <fmt/format.h>

#include <utility>

#include "base/error.h"
#include "lab/lab_json.h"
#include "lab/lab_results.h"
#include "page/api_http.h"
#include "page/api_options.h"

namespace ridge {
namespace {

std::map<LabDevice, Json> known_results(const std::string& file) {
  std::map<LabDevice, Json> known;
  if (!file.empty()) {
    Json results = read_results(file);
    const LabDevice device = device_of_results(results);
    known[device] = std::move(results);
    return known;
  }
  for (const LabDevice device : {LabDevice::cpu, LabDevice::cuda}) {
    try {
      const std::string kept = kept_results_path(device);
      if (!kept.empty()) known[device] = read_results(kept);
    } catch (const Error&) {
      continue;  // an older version's: as if there were none
    }
  }
  return known;
}

std::optional<LabDevice> device_option(const ApiOptions& options) {
  const std::string* name = find_option(options, "device");
  if (name == nullptr) return {};
  if (*name != "cpu" && *name != "cuda") throw OptionError("device", "device is cpu or cuda");
  return *name == "cuda" ? LabDevice::cuda : LabDevice::cpu;
}

// The device whose results are the file's, or were kept last.
LabDevice latest_of(const std::map<LabDevice, Json>& known) {
  if (known.size() == 1) return known.begin()->first;
  return kept_results_path() == kept_results_path(LabDevice::cuda) && !known.empty()
             ? LabDevice::cuda
             : LabDevice::cpu;
}

}  // namespace

Json lab_view(const Json& results, const std::map<std::string, Json>& fresh) {
  Json view = results.is_object() ? results : Json::object();
  const LabDevice device = device_of_results(view);
  Json list = Json::array(), full = Json::array();
  for (const Experiment& experiment : experiments()) {
    Json one = Json::object();
    if (const auto found = fresh.find(experiment.name); found != fresh.end()) {
      one = found->second;
    } else if (results.is_object()) {
      for (const Json& old : results["experiments"]) {
        if (old["name"] == experiment.name) one = old;
      }
    }
    if (!one.value("quick", false)) full.push_back(one);
    one.update(to_json(experiment, device));
    list.push_back(std::move(one));
  }
  view["agreement"] = agreement_json(full);
  view["experiments"] = std::move(list);
  return view;
}

LabService::LabService(LabServiceOptions options)
    : options_(std::move(options)),
      results_(known_results(options_.file)),
      latest_(latest_of(results_)) {}

LabService::~LabService() {
  interrupted_ = true;
  if (thread_.joinable()) thread_.join();
}

bool LabService::serves(const std::string& path) {
  return path == "/api/lab" || path == "/api/lab/run" || path == "/api/lab/stop";
}

std::string LabService::why_not() const {
  if (!options_.loopback) return "Experiments run only where the server listens on this machine.";
  if (options_.has_model) {
    return "A model is served by this process, and an experiment would disturb it: use ridge serve "
           "--no-model.";
  }
  return "";
}

HttpReply LabService::reply(const HttpRequest& request) {
  const bool reads = request.method == "GET" || request.method == "HEAD";
  const bool lists = request.path == "/api/lab";
  if (lists ? !reads : request.method != "POST") {
    return api_error_reply(405, lists ? "only GET here" : "only POST here");
  }
  try {
    const ApiOptions options = api_options_in(request);
    if (request.path == "/api/lab/run") return start(options);
    if (lists) {
      check_known_options(options, {"device"});
      return api_json_reply(state(device_option(options)));
    }
    check_known_options(options, {});
  } catch (const OptionError& error) {
    return api_error_reply(400, error.what(), error.option());
  } catch (const Error& error) {
    return api_error_reply(400, error.what());
  }
  return stop();
}

Json LabService::state(std::optional<LabDevice> asked) {
  const std::lock_guard hold(lock_);
  const LabDevice device = asked.value_or(latest_);
  const auto known = results_.find(device);
  const bool is_cpu = device == LabDevice::cpu;
  Json view = lab_view(known != results_.end() ? known->second
                                               : Json{{"backend", is_cpu ? "cpu" : "cuda"},
                                                      {"experiments", Json::array()}},
                       is_cpu ? fresh_ : std::map<std::string, Json>());
  view["devices"] = Json::array();
  for (const LabDevice each : {LabDevice::cpu, LabDevice::cuda}) {
    if (results_.contains(each) || (each == LabDevice::cpu && !fresh_.empty())) {
      view["devices"].push_back(lab_device_name(each));
    }
  }
  view["running"] = running_.empty() ? Json() : Json{{"name", running_}, {"step", step_}};
  view["why_not"] = why_not();
  view["failure"] = failure_;
  return view;
}

HttpReply LabService::start(const ApiOptions& options) {
  check_known_options(options, {"name", "quick"});
  const std::string* name = find_option(options, "name");
  if (name == nullptr) throw OptionError("name", "name=EXPERIMENT is missing");
  const bool quick = flag_option(options, "quick");
  try {
    const std::string cannot = why_not_on(find_experiment(*name), LabDevice::cpu);
    if (!cannot.empty()) throw Error(cannot);
  } catch (const Error& error) {
    throw OptionError("name", error.what());
  }
  if (!options_.loopback) return api_error_reply(403, why_not());
  if (options_.has_model) return api_error_reply(409, why_not());
  const std::lock_guard hold(lock_);
  if (!running_.empty()) return api_error_reply(409, running_ + " is running: one at a time");
  if (thread_.joinable()) thread_.join();  // it has ended: running_ is empty
  interrupted_ = false;
  running_ = *name;
  step_ = failure_ = "";
  thread_ = std::thread([this, quick, which = running_] { run(which, quick); });
  return api_json_reply({{"running", running_}}, 202);
}

HttpReply LabService::stop() {
  const std::lock_guard hold(lock_);
  interrupted_ = true;
  return api_json_reply({{"stopped", running_}});
}

void LabService::run(const std::string& name, bool quick) {
  Json result;
  std::string failure;
  try {
    LabOptions options;
    options.quick = quick;
    options.interrupted = &interrupted_;
    options.ceilings = find_experiment(name).ceilings;
    options.progress = [this](const std::string& step) {
      const std::lock_guard hold(lock_);
      step_ = step;
    };
    Lab lab(options);
    const LabReport report = lab_report(lab);
    result = to_json(run_experiment(lab, find_experiment(name)));
    result["date"] = report.date;
    result["device"] = report.device;
    result["quick"] = quick;
  } catch (const LabInterrupted&) {
    failure = "stopped";
  } catch (const std::exception& error) {
    failure = error.what();
  }
  const std::lock_guard hold(lock_);
  if (failure.empty()) {
    fresh_[name] = std::move(result);
    latest_ = LabDevice::cpu;
  }
  failure_ = failure.empty() ? "" : fmt::format("{}: {}", name, failure);
  running_ = step_ = "";
}

}  // namespace ridge
