// The lab behind the page: the experiments with the results that are known, and one at a time that
// runs here.
//   GET  /api/lab                 everything, with what runs now; device=cpu or cuda where results
//                                 of both are known
//   POST /api/lab/run?name=NAME   starts one (quick=true: tiny sizes); the page then polls
//   POST /api/lab/stop            ends it
#pragma once

#include <atomic>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "base/json.h"
#include "http/http.h"
#include "lab/lab.h"
#include "page/api.h"

namespace ridge {

struct LabServiceOptions {
  std::string file;        // results of `ridge lab --json`; empty: those of the last whole run
  bool loopback = true;    // experiments run for local users alone
  bool has_model = false;  // an experiment would disturb the model that is served
};

class LabService {
 public:
  // Throws Error where the file that was given is wrong.
  explicit LabService(LabServiceOptions options);
  ~LabService();  // stops what runs
  LabService(const LabService&) = delete;
  LabService& operator=(const LabService&) = delete;

  static bool serves(const std::string& path);
  // Never throws and never waits for an experiment. refuse_head() of api_http.h comes before it.
  HttpReply reply(const HttpRequest& request);

 private:
  Json state(std::optional<LabDevice> device);
  HttpReply start(const ApiOptions& options);
  HttpReply stop();
  void run(const std::string& name, bool quick);
  std::string why_not() const;

  const LabServiceOptions options_;
  // By device: results of the file, or those of the last whole runs. They never mix: an experiment
  // that runs here is the CPU's.
  std::map<LabDevice, Json> results_;
  LabDevice latest_ = LabDevice::cpu;  // what is shown where nobody asks for a device
  std::mutex lock_;
  std::map<std::string, Json> fresh_;  // by name: what ran here
  std::string running_, step_, failure_;
  std::atomic<bool> interrupted_ = false;
  std::thread thread_;
};

// The experiments in their order, each with the results that `results` (null: none) or `fresh`, of
// the same device, has of it, beside where and when `results` were measured. The agreement is that
// of all results in the view that were run in full. A report embeds it.
Json lab_view(const Json& results, const std::map<std::string, Json>& fresh = {});

}  // namespace ridge
