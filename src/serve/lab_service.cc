#include "serve/lab_service.h"

#include <fmt/format.h>

#include <utility>

#include "base/error.h"
#include "lab/lab_json.h"
#include "lab/lab_results.h"

namespace ridge {
namespace {

HttpReply lab_json_reply(const Json& json, int status = 200) {
  HttpReply reply;
  reply.status = status;
  reply.body = json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  return reply;
}

HttpReply lab_error_reply(int status, const std::string& message) {
  return lab_json_reply({{"error", {{"message", message}}}}, status);
}

Json known_results(const std::string& file) {
  if (!file.empty()) return read_results(file);
  try {
    const std::string kept = kept_results_path();
    return kept.empty() ? Json() : read_results(kept);
  } catch (const Error&) {
    return {};  // an older version's: as if there were none
  }
}

}  // namespace

Json lab_view(const Json& results, const std::map<std::string, Json>& fresh) {
  Json view = results.is_object() ? results : Json::object();
  Json list = Json::array();
  for (const Experiment& experiment : experiments()) {
    Json one = Json::object();
    if (const auto found = fresh.find(experiment.name); found != fresh.end()) {
      one = found->second;
    } else if (results.is_object()) {
      for (const Json& old : results["experiments"]) {
        if (old["name"] == experiment.name) one = old;
      }
    }
    one.update(to_json(experiment));
    list.push_back(std::move(one));
  }
  view["experiments"] = std::move(list);
  return view;
}

LabService::LabService(LabServiceOptions options)
    : options_(std::move(options)), results_(known_results(options_.file)) {}

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
  if (request.path == "/api/lab") {
    return reads ? lab_json_reply(state()) : lab_error_reply(405, "only GET here");
  }
  if (request.method != "POST") return lab_error_reply(405, "only POST here");
  // A type that no form of a foreign page can send.
  if (!request.content_type.starts_with("application/json")) {
    return lab_error_reply(415, "a body must be application/json");
  }
  return request.path == "/api/lab/run" ? start(request) : stop();
}

Json LabService::state() {
  const std::lock_guard hold(lock_);
  Json view = lab_view(results_, fresh_);
  view["running"] = running_.empty() ? Json() : Json{{"name", running_}, {"step", step_}};
  view["why_not"] = why_not();
  view["failure"] = failure_;
  return view;
}

HttpReply LabService::start(const HttpRequest& request) {
  const auto name = request.query.find("name");
  if (name == request.query.end()) return lab_error_reply(400, "name=EXPERIMENT is missing");
  try {
    const Experiment& experiment = find_experiment(name->second);
    const std::string cannot = why_not_on(experiment, LabDevice::cpu);
    if (!cannot.empty()) return lab_error_reply(400, cannot);
  } catch (const Error& error) {
    return lab_error_reply(400, error.what());
  }
  if (!options_.loopback) return lab_error_reply(403, why_not());
  if (options_.has_model) return lab_error_reply(409, why_not());
  const std::lock_guard hold(lock_);
  if (!running_.empty()) return lab_error_reply(409, running_ + " is running: one at a time");
  if (thread_.joinable()) thread_.join();  // it has ended: running_ is empty
  interrupted_ = false;
  running_ = name->second;
  step_ = failure_ = "";
  const auto quick = request.query.find("quick");
  const bool tiny = quick != request.query.end() && quick->second == "true";
  thread_ = std::thread([this, tiny, which = running_] { run(which, tiny); });
  return lab_json_reply({{"running", running_}}, 202);
}

HttpReply LabService::stop() {
  const std::lock_guard hold(lock_);
  interrupted_ = true;
  return lab_json_reply({{"stopped", running_}});
}

void LabService::run(const std::string& name, bool quick) {
  Json result;
  std::string failure;
  try {
    LabOptions options;
    options.quick = quick;
    options.interrupted = &interrupted_;
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
  if (failure.empty()) fresh_[name] = std::move(result);
  failure_ = failure.empty() ? "" : fmt::format("{}: {}", name, failure);
  running_ = step_ = "";
}

}  // namespace ridge
