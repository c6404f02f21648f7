// Sends a workload to an OpenAI-compatible endpoint and records what comes back.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "load/endpoint.h"
#include "load/http_client.h"
#include "load/workload.h"

namespace ridge {

struct LoadOptions {
  bool open_loop = false;   // requests start when they arrive; otherwise when another ends
  int concurrency = 8;      // requests in flight at most
  double duration_s = 600;  // nothing starts later than this
  bool chat = false;        // /v1/chat/completions, as conversations need; else /v1/completions
  bool ignore_eos = true;   // answers have exactly the planned number of tokens
  const std::atomic<bool>* interrupted = nullptr;  // once true, all requests are ended
};

// One request that was sent. Times as in `vllm bench serve`: TTFT ends with the first chunk that
// has choices, the latency with the last one.
struct LoadRequest {
  double start_s = 0;  // after the start of the load
  double ttft_s = 0, latency_s = 0;
  int prompt_tokens = 0, output_tokens = 0, cached_tokens = 0;  // as the endpoint counted them
  bool has_usage = false;  // otherwise the plan's prompt tokens, and chunks for output tokens
  std::string error;       // what kind; empty: completed

  double tpot_s() const {  // 0: fewer than two tokens
    return output_tokens > 1 ? (latency_s - ttft_s) / (output_tokens - 1) : 0;
  }
};

struct LoadRecord {
  std::vector<LoadRequest> requests;
  std::vector<float> itl_s;            // between chunks that carry text, of completed requests
  std::vector<int> chunks_per_second;  // of all requests, by second since the start
  std::map<std::string, std::string>
      messages;           // by kind of error: an example in the server's words
  double duration_s = 0;  // to the end of the last request
  int peak_in_flight = 0;
  double latest_start_s = 0;  // open loop: the longest that an arrival waited to be sent
  bool interrupted = false;
};

struct LoadProgress {
  double elapsed_s = 0;
  int planned = 0, completed = 0, failed = 0, in_flight = 0;
  long chunks = 0;
};

// `on_progress` is called several times a second.
LoadRecord run_load(HttpClient& client, const LoadEndpoint& endpoint, const Workload& workload,
                    const LoadOptions& options,
                    const std::function<void(const LoadProgress&)>& on_progress = {});

// Raises the limit of open files as far as the system allows; how many connections that leaves.
int max_connections();

}  // namespace ridge
