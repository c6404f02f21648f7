// Numbers that a person saw on a running endpoint.
#pragma once

#include <optional>

namespace ridge {

// Shares are 0 to 1. What was not observed stays empty.
struct Observation {
  std::optional<double> tokens_per_s;   // output tokens of the whole endpoint
  std::optional<double> batch;          // sequences decoding at once
  std::optional<double> itl_s;          // mean inter-token latency of a user
  std::optional<double> ttft_s;         // time to first token
  std::optional<double> output;         // tokens of an answer
  std::optional<double> dram_active;    // DCGM DRAM_ACTIVE
  std::optional<double> tensor_active;  // DCGM PIPE_TENSOR_ACTIVE
  std::optional<double> gpu_util;       // nvidia-smi: some kernel was resident
  std::optional<double> kv_usage;       // of the cache's pages
  std::optional<double> waiting;        // requests in the queue
  std::optional<double> power_w;        // drawn by one device
};

// Metrics averaged over different windows disagree. Beyond this factor they describe different
// runs.
inline constexpr double kDisagree = 1.5;

// Throws Error for numbers that cannot be, for numbers that contradict each other, and where
// neither tokens/s nor an inter-token latency nor a time to first token was observed.
void check_observation(const Observation& seen);

}  // namespace ridge
