// What can be observed of a running endpoint. One table names every quantity, its unit and, where a
// person can type it, its option; readers, the command line, the API and the JSON all use it.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace ridge {

// SI units; shares are 0 to 1; counters of a device are means over the devices of the run.
enum class Quantity : uint8_t {
  // Rates of the whole endpoint.
  tokens_per_s,         // output tokens
  prompt_tokens_per_s,  // prompt tokens, those found in the prefix cache included
  requests_per_s,       // requests that ended
  arrivals_per_s,       // requests that a client sends; infinite rates are left out
  // Load.
  batch,        // sequences decoding at once
  running,      // requests that the scheduler runs, prompts included
  waiting,      // requests in the queue
  concurrency,  // requests that the client keeps in flight
  max_running,  // the engine's limit of sequences (max_num_seqs)
  preemptions,  // requests preempted or retracted in the window
  requests,     // requests that ended in the window
  failed,       // of these, with an error
  // The KV cache.
  kv_usage,    // share of the pages in use
  kv_tokens,   // tokens that the cache holds
  prompt_hit,  // share of the prompt tokens found in the prefix cache
  // Lengths.
  prompt,  // tokens of a prompt
  output,  // tokens of an answer
  // Latencies, seconds: means unless the name says more.
  itl,
  itl_p50,
  itl_p99,
  ttft,
  ttft_p50,
  ttft_p99,
  e2e,
  queue_time,    // from arrival to the first step
  prefill_time,  // from the first step to the first token
  decode_time,   // from the first token to the last
  // Steps.
  step_time,        // seconds of one step of the engine
  decode_step,      // seconds of one decode step, where the engine times decode alone
  tokens_per_step,  // prompt and output tokens that one step carries
  graph_share,      // share of decode steps that ran from a CUDA graph
  graph_max,        // the largest batch that has a CUDA graph
  engine_busy,      // share of time in which a forward pass runs, as the engine times it
  prefill_share,    // share of the steps' time that prompts take
  // Speculation.
  drafted,   // draft tokens per verification
  accepted,  // of these, accepted
  // The engine's own estimate of its work, per device.
  flops_per_s,
  bytes_per_s,
  // Counters of the device.
  gpu_util,       // some kernel was resident (nvidia-smi)
  gr_active,      // DCGM GR_ENGINE_ACTIVE
  sm_active,      // DCGM SM_ACTIVE
  sm_occupancy,   // DCGM SM_OCCUPANCY
  tensor_active,  // DCGM PIPE_TENSOR_ACTIVE
  dram_active,    // DCGM DRAM_ACTIVE
  power,          // watts of one device
  power_limit,
  sm_clock,  // hertz
  max_sm_clock,
  power_throttled,    // share of the samples in which the power limit lowered the clocks
  thermal_throttled,  // share of the samples in which the temperature lowered the clocks
  temperature,        // degrees Celsius
  memory_used,        // bytes of one device
  memory_total,
  pcie_bytes,    // bytes/s, both directions of one device
  nvlink_bytes,  // bytes/s, both directions of one device
  // The host.
  cpu,        // share of the cores that the server may use that are busy
  wall_time,  // seconds that a kernel summary covers
  count_
};
inline constexpr size_t kQuantities = static_cast<size_t>(Quantity::count_);

enum class QuantityUnit : uint8_t {
  number,   // zero or more
  share,    // 0 to 1
  seconds,  // typed with a unit
  rate,     // tok/s or requests/s
  watts,
  hertz,
  bytes,
  bytes_per_s,
  flops_per_s,
  celsius,
};

struct QuantityInfo {
  Quantity quantity;
  const char* name;  // of its JSON field: "queue_time"
  QuantityUnit unit;
  const char* option;  // long name without dashes; nullptr: comes from files only
  const char* help;    // what it is, in a few words
};
const QuantityInfo& quantity_info(Quantity quantity);
std::span<const QuantityInfo> all_quantities();

// "28 ms", "91 %", "512 tok/s": as people read it.
std::string pretty_quantity(Quantity quantity, double value);

// The value of every quantity that was observed.
class Quantities {
 public:
  const std::optional<double>& operator[](Quantity q) const {
    return values_[static_cast<size_t>(q)];
  }
  std::optional<double>& operator[](Quantity q) { return values_[static_cast<size_t>(q)]; }
  double value_or(Quantity q, double otherwise) const { return (*this)[q].value_or(otherwise); }
  bool has(Quantity q) const { return (*this)[q].has_value(); }

 private:
  std::array<std::optional<double>, kQuantities> values_;
};

}  // namespace ridge
