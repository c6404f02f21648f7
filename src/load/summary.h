// The figures of a load, with the definitions and the names of `vllm bench serve`.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/percentiles.h"
#include "load/generator.h"

namespace ridge {

// Targets that a request must meet to count as good; nothing: no target.
struct GoodputTargets {
  std::optional<double> ttft_s, tpot_s, e2el_s;

  bool any() const { return ttft_s || tpot_s || e2el_s; }
  bool met_by(const LoadRequest& request) const;
};
// "ttft:500", "tpot:50", "e2el:2000", in milliseconds. Throws OptionError.
GoodputTargets parse_goodput(const std::vector<std::string>& texts);

struct LoadSummary {
  int completed = 0, failed = 0, good = 0;
  long input_tokens = 0, output_tokens = 0, cached_tokens = 0;  // of completed requests
  int without_usage = 0;  // completed requests whose tokens are counted by chunks
  double duration_s = 0;
  Percentiles ttft, tpot, itl, e2el;  // seconds
  int peak_chunks_per_s = 0, peak_in_flight = 0;
  double latest_start_s = 0;
  bool has_targets = false;
  std::map<std::string, int> errors;
  std::map<std::string, std::string> messages;

  double per_second(double count) const { return duration_s > 0 ? count / duration_s : 0; }
};
LoadSummary summarize(const LoadRecord& record, const GoodputTargets& targets);

// What the load was, for the JSON.
struct LoadDescription {
  std::string url, model;
  int planned = 0;
  double rate = 0;  // 0: no rate
  double burstiness = 1;
  std::optional<int> concurrency;
  uint64_t seed = 0;
  bool token_ids = false;
};
// `server`: what the endpoint's own metrics counted meanwhile.
Json load_json(const LoadDescription& load, const LoadSummary& summary,
               const std::optional<ServerTotals>& server);

}  // namespace ridge
