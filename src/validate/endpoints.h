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
};

// Files below a folder that hold endpoints (columns silicon_ttft_ms and silicon_tpot_ms), sorted.
std::vector<std::string> find_endpoint_files(const std::string& folder);

// Rows of one file. Left out, and counted in `skipped`: rows of disaggregated serving and of
// parallelism whose layout the columns do not fix (more tensor ranks than a node has, attention
// replicas, pipelines, weights that the named devices cannot hold). `complain` gets "PATH: row N:
// ..." for what cannot be read, and one "PATH: N rows: ..." for each unknown name.
std::vector<Endpoint> read_endpoints(const std::string& path, size_t& skipped,
                                     const std::function<void(const std::string&)>& complain);

}  // namespace ridge
