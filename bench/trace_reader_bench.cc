// How fast traces of profilers are read. A trace of PyTorch of 200 MB should take at most 2 s;
// `of_limit` is the share of that limit, above 1 it misses.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>

#include "diagnose/readers/pytorch_trace.h"

namespace ridge {
namespace {

// What kineto writes for one eager operator: the operator, a Python frame, the launch, the flow to
// the kernel, the kernel.
std::string made_trace(size_t bytes) {
  std::string text = R"({"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "H100"}],
  "traceEvents": [)";
  const char* kernels[] = {"void gemm<128, 64, 4, cutlass::bfloat16_t>(T1::Params)",
                           "void vllm::rms_norm_kernel<c10::BFloat16>(c10::BFloat16*, int)",
                           "void flash::flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<128> >()"};
  for (size_t i = 1; text.size() < bytes; ++i) {
    const double time = 1689861288825108.0 + 35.0 * double(i);
    text += fmt::format(
        R"({}  {{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1,
    "ts": {:.3f}, "dur": 14.452, "args": {{"External id": {}, "Concrete Inputs": ["", ""],
    "Input type": ["c10::BFloat16", "c10::BFloat16"], "Input Dims": [[32, 4096], [4096, 4096]]}}}},
  {{"ph": "X", "cat": "python_function", "name": "torch/nn/modules/linear.py(124): forward",
    "pid": 1, "tid": 1, "ts": {:.3f}, "dur": 20.1, "args": {{"Python parent id": 12}}}},
  {{"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1,
    "ts": {:.3f}, "dur": 5.012, "args": {{"cbid": 211, "correlation": {}}}}},
  {{"ph": "s", "id": {}, "pid": 1, "tid": 1, "ts": {:.3f}, "cat": "ac2g", "name": "ac2g"}},
  {{"ph": "X", "cat": "kernel", "name": "{}", "pid": 0, "tid": 7, "ts": {:.3f}, "dur": {:.3f},
    "args": {{"queued": 0, "device": 0, "context": 1, "stream": 7, "correlation": {},
      "registers per thread": 128, "blocks per SM": 0.727, "warps per SM": 2.909,
      "grid": [8, 12, 1], "block": [128, 1, 1], "est. achieved occupancy %": 5}}}})",
        i > 1 ? ",\n" : "", time, i, time, time + 10, i, i, time + 10, kernels[i % 3], time + 18,
        2 + double(i % 28), i);
  }
  return text + "]}";
}

void read_trace(benchmark::State& state) {
  const std::string text = made_trace(size_t{20'000'000});
  for (auto _ : state) {
    std::string_view rest = text;
    JsonStream stream([&](char* into, size_t room) {
      const size_t count = std::min(room, rest.size());
      std::memcpy(into, rest.data(), count);
      rest.remove_prefix(count);
      return count;
    });
    benchmark::DoNotOptimize(read_pytorch_trace_events(stream, "bench"));
  }
  state.SetBytesProcessed(int64_t(state.iterations()) * int64_t(text.size()));
  const double limit_s = 2.0 * double(text.size()) / 200e6;
  state.counters["of_limit"] =
      benchmark::Counter(double(state.iterations()) * limit_s,
                         benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}
BENCHMARK(read_trace)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace ridge
