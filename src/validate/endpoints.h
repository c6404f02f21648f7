// Measured endpoints: time to first token and between tokens of serving stacks under load.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "predict/predict.h"

namespace ridge {

struct Endpoint {
  Request request;
  Load load;
  double ttft_s = 0, tpot_s = 0;  // measured
  std::string gpu, framework, dtype;
  std::string defect;          // why it is scored apart; empty: it is sound
  bool cold = false;           // its first token measures more than serving
  bool known_client = true;    // how requests arrived is documented
  bool disaggregated = false;  // prompts run on other devices; clients are those of one worker
};

// What the endpoint's times should be, by the closed form. Of a disaggregated one only the time per
// token.
EndpointEstimate closed_form(const Endpoint& endpoint, const HostCosts& host);
// The same with the first token under load simulated.
EndpointEstimate expected_times(const Endpoint& endpoint);

// Files below a folder that hold endpoints (columns silicon_ttft_ms and silicon_tpot_ms), sorted.
std::vector<std::string> find_endpoint_files(const std::string& folder);

// Rows of one file. Left out, and counted in `skipped`: those whose layout the columns do not fix
// (disaggregated ones without numbers of workers, pipelines, weights that the named devices cannot
// hold). `complain` gets "PATH: row N: ..." for what cannot be read, and one "PATH: N rows: ..."
// for each unknown name.
std::vector<Endpoint> read_endpoints(const std::string& path, size_t& skipped,
                                     const std::function<void(const std::string&)>& complain);

}  // namespace ridge
