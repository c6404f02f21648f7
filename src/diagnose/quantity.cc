#include "diagnose/quantity.h"

#include <fmt/format.h>

#include <cmath>

#include "base/units.h"

namespace ridge {
namespace {

using Q = Quantity;
using U = QuantityUnit;

constexpr QuantityInfo kInfos[] = {
    {Q::tokens_per_s, "tokens_per_s", U::rate, "observed",
     "Output tokens/s of the endpoint: 280tok/s"},
    {Q::prompt_tokens_per_s, "prompt_tokens_per_s", U::rate, "prompt-throughput",
     "Prompt tokens/s of the endpoint: 1100tok/s"},
    {Q::requests_per_s, "requests_per_s", U::rate, "served", "Requests that end each second: 6/s"},
    {Q::arrivals_per_s, "arrivals_per_s", U::rate, "arrivals", "Requests sent each second: 20/s"},
    {Q::batch, "batch", U::number, "batch", "Sequences decoding at once"},
    {Q::running, "running", U::number, "running",
     "Requests that the scheduler runs (num_requests_running)"},
    {Q::waiting, "waiting", U::number, "waiting", "Requests in the queue"},
    {Q::concurrency, "concurrency", U::number, "concurrency",
     "Requests that the client keeps in flight"},
    {Q::max_running, "max_running", U::number, "max-running",
     "The engine's limit of sequences (max_num_seqs)"},
    {Q::preemptions, "preemptions", U::number, "preemptions",
     "Requests preempted or retracted in the window"},
    {Q::requests, "requests", U::number, nullptr, "requests that ended"},
    {Q::failed, "failed", U::number, nullptr, "requests that failed"},
    {Q::kv_usage, "kv_usage", U::share, "kv-usage", "Share of the KV cache in use, 0 to 1"},
    {Q::kv_tokens, "kv_tokens", U::number, nullptr, "tokens that the KV cache holds"},
    {Q::prompt_hit, "prompt_hit", U::share, "prompt-hit",
     "Share of the prompt tokens found in the prefix cache, 0 to 1"},
    {Q::prompt, "prompt", U::number, nullptr, "tokens of a prompt"},
    {Q::output, "output", U::number, "output",
     "Tokens of an answer; with --prompt it tells what others' prompts cost"},
    {Q::itl, "itl", U::seconds, "itl", "Inter-token latency of a user: 28ms"},
    {Q::itl_p50, "itl_p50", U::seconds, "itl-p50", "Median inter-token latency"},
    {Q::itl_p99, "itl_p99", U::seconds, "itl-p99", "99th percentile of the inter-token latency"},
    {Q::ttft, "ttft", U::seconds, "ttft", "Time to first token: 900ms"},
    {Q::ttft_p50, "ttft_p50", U::seconds, nullptr, "median time to first token"},
    {Q::ttft_p99, "ttft_p99", U::seconds, nullptr, "99th percentile of the time to first token"},
    {Q::e2e, "e2e", U::seconds, "e2e", "Time of a whole request: 12s"},
    {Q::queue_time, "queue_time", U::seconds, "queue-time",
     "Time that a request waits in the queue: 2.1s"},
    {Q::prefill_time, "prefill_time", U::seconds, "prefill-time",
     "Time of a prompt once it is scheduled: 300ms"},
    {Q::decode_time, "decode_time", U::seconds, nullptr, "time from the first token to the last"},
    {Q::step_time, "step_time", U::seconds, nullptr, "time of one step of the engine"},
    {Q::decode_step, "decode_step", U::seconds, nullptr, "time of one decode step"},
    {Q::tokens_per_step, "tokens_per_step", U::number, nullptr, "tokens that one step carries"},
    {Q::graph_share, "graph_share", U::share, nullptr, "share of steps that a CUDA graph ran"},
    {Q::graph_max, "graph_max", U::number, "graph-max", "The largest batch with a CUDA graph"},
    {Q::engine_busy, "engine_busy", U::share, nullptr, "share of time in a forward pass"},
    {Q::prefill_share, "prefill_share", U::share, nullptr, "share of the steps' time for prompts"},
    {Q::drafted, "drafted", U::number, nullptr, "draft tokens per verification"},
    {Q::accepted, "accepted", U::number, "accepted",
     "Mean acceptance length (2.3), or the share of draft tokens that are accepted (0.4, 40%)"},
    {Q::flops_per_s, "flops_per_s", U::flops_per_s, nullptr, "FLOP/s by the engine's estimate"},
    {Q::bytes_per_s, "bytes_per_s", U::bytes_per_s, nullptr, "bytes/s by the engine's estimate"},
    {Q::gpu_util, "gpu_util", U::share, "gpu-util", "nvidia-smi utilisation, 0 to 1"},
    {Q::gr_active, "gr_active", U::share, nullptr, "share of time with any engine active"},
    {Q::sm_active, "sm_active", U::share, "sm-active",
     "Share of time an SM has a warp, 0 to 1 (DCGM SM_ACTIVE)"},
    {Q::sm_occupancy, "sm_occupancy", U::share, nullptr, "resident warps over the most"},
    {Q::tensor_active, "tensor_active", U::share, "tensor-active",
     "Share of time the tensor pipe is active, 0 to 1"},
    {Q::dram_active, "dram_active", U::share, "dram-active",
     "Share of time device memory is active, 0 to 1"},
    {Q::power, "power", U::watts, "power", "Power drawn by one device: 690W"},
    {Q::power_limit, "power_limit", U::watts, "power-limit", "Power limit of one device: 700W"},
    {Q::sm_clock, "sm_clock", U::hertz, "sm-clock", "SM clock under load: 1410MHz"},
    {Q::max_sm_clock, "max_sm_clock", U::hertz, "max-sm-clock", "The highest SM clock: 1980MHz"},
    {Q::power_throttled, "power_throttled", U::share, nullptr,
     "share of samples in which power lowered the clocks"},
    {Q::thermal_throttled, "thermal_throttled", U::share, nullptr,
     "share of samples in which heat lowered the clocks"},
    {Q::temperature, "temperature", U::celsius, nullptr, "temperature of the device"},
    {Q::memory_used, "memory_used", U::bytes, nullptr, "device memory in use"},
    {Q::memory_total, "memory_total", U::bytes, nullptr, "device memory"},
    {Q::pcie_bytes, "pcie_bytes", U::bytes_per_s, nullptr, "bytes/s over PCIe"},
    {Q::nvlink_bytes, "nvlink_bytes", U::bytes_per_s, nullptr, "bytes/s over NVLink"},
    {Q::cpu, "cpu", U::share, "cpu",
     "Share of the server's CPU cores that are busy, 0 to 1 (1, or 100% as top prints: at its "
     "limit)"},
    {Q::wall_time, "wall_time", U::seconds, "wall-time",
     "Time that a kernel summary covers, where the file has no time line: 80ms"},
};
static_assert(std::size(kInfos) == kQuantities);

constexpr bool in_order() {
  for (size_t i = 0; i < kQuantities; ++i) {
    if (kInfos[i].quantity != static_cast<Quantity>(i)) return false;
  }
  return true;
}
static_assert(in_order());

}  // namespace

const QuantityInfo& quantity_info(Quantity quantity) {
  return kInfos[static_cast<size_t>(quantity)];
}
std::span<const QuantityInfo> all_quantities() { return kInfos; }

std::string pretty_quantity(Quantity quantity, double value) {
  switch (quantity_info(quantity).unit) {
    case U::share:
      return pretty_percent(value);
    case U::seconds:
      return pretty_time(value);
    case U::rate:
      return pretty_number(value) +
             (quantity == Q::tokens_per_s || quantity == Q::prompt_tokens_per_s ? " tok/s" : "/s");
    case U::watts:
      return fmt::format("{:.0f} W", value);
    case U::hertz:
      return fmt::format("{:.0f} MHz", value / 1e6);
    case U::bytes:
      return pretty_bytes(value);
    case U::bytes_per_s:
      return pretty_bytes(value) + "/s";
    case U::flops_per_s:
      return pretty_number(value) + "FLOP/s";
    case U::celsius:
      return fmt::format("{:.0f} C", value);
    case U::number:
      break;
  }
  return pretty_number(value);
}

}  // namespace ridge
