// What it costs to start the next piece of work: launches, graph edges, barriers; and atomics.
#include <cooperative_groups.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "base/ptx/execution.cuh"
#include "base/ptx/memory_order.cuh"
#include "measure/cuda/run.cuh"

namespace ridge {
namespace {

__global__ void nothing(int* sink) {
  if (sink) *sink = 1;  // never: sink is null
}

// Programmatic dependent launch: may start while the previous kernel runs, then waits for it.
__global__ void nothing_dependent(int* sink) {
  ptx::griddepcontrol_launch_dependents();
  ptx::griddepcontrol_wait();
  if (sink) *sink = 1;
}

// A grid barrier: each block arrives once at a counter that only grows, then polls it.
__device__ void grid_barrier(unsigned* counter, unsigned target) {
  __syncthreads();
  if (threadIdx.x == 0) {
    ptx::red_release_increment(counter);
    while (ptx::ld_acquire(counter) < target) {
    }
  }
  __syncthreads();
}

__global__ void barriers(unsigned* counter, int count) {
  for (int i = 1; i <= count; ++i) grid_barrier(counter, static_cast<unsigned>(i) * gridDim.x);
}

__global__ void grid_syncs(int count) {
  const auto grid = cooperative_groups::this_grid();
  for (int i = 0; i < count; ++i) grid.sync();
}

__global__ void atomics(uint32_t* counters, int spread, int repeats) {
  uint32_t* const mine =
      counters + (spread ? (blockIdx.x * blockDim.x + threadIdx.x) : (threadIdx.x / 32) * 0);
  for (int i = 0; i < repeats; ++i) {
    asm volatile("red.relaxed.gpu.global.add.u32 [%0], 1;" ::"l"(mine) : "memory");
  }
}

class Graph {
 public:
  // `nodes` launches, one after the other.
  Graph(cudaStream_t stream, int nodes, bool dependent) {
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capturing");
    for (int i = 0; i < nodes; ++i) {
      if (!dependent) {
        nothing<<<1, 32, 0, stream>>>(nullptr);
        continue;
      }
      cudaLaunchAttribute attribute = {};
      attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
      attribute.val.programmaticStreamSerializationAllowed = 1;
      cudaLaunchConfig_t config = {};
      config.gridDim = dim3(1);
      config.blockDim = dim3(32);
      config.stream = stream;
      config.attrs = &attribute;
      config.numAttrs = 1;
      cudaLaunchKernelEx(&config, nothing_dependent, static_cast<int*>(nullptr));
    }
    cudaGraph_t graph = nullptr;
    check(cudaStreamEndCapture(stream, &graph), "capturing");
    const cudaError_t made = cudaGraphInstantiate(&executable_, graph, 0);
    cudaGraphDestroy(graph);
    check(made, "building a graph");
  }
  ~Graph() {
    if (executable_) cudaGraphExecDestroy(executable_);
  }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  void launch(cudaStream_t stream) const { cudaGraphLaunch(executable_, stream); }

 private:
  cudaGraphExec_t executable_ = nullptr;
};

// The difference of two lengths leaves what one more node costs.
std::vector<double> graph_edge(CudaRun& run, bool dependent) {
  constexpr int kShort = 100, kLong = 1100;
  const Graph few(run.stream, kShort, dependent), many(run.stream, kLong, dependent);
  const int samples = run.full() ? 21 : 9;
  const double base = median(run.time(samples, 1, [&] { few.launch(run.stream); }));
  std::vector<double> edges;
  for (const double seconds : run.time(samples, 1, [&] { many.launch(run.stream); })) {
    edges.push_back((seconds - base) / (kLong - kShort));
  }
  return edges;
}

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// As a program without graphs sees it: the host's call is the slower side.
void stream_launches(CudaRun& run) {
  constexpr int kLaunches = 2000;
  std::vector<double> each, round_trip;
  for (int sample = 0; sample < (run.full() ? 21 : 9); ++sample) {
    check(cudaStreamSynchronize(run.stream), "waiting");
    const double start = now();
    for (int i = 0; i < kLaunches; ++i) nothing<<<1, 32, 0, run.stream>>>(nullptr);
    check(cudaStreamSynchronize(run.stream), "waiting");
    each.push_back((now() - start) / kLaunches);
    constexpr int kTrips = 100;
    const double first = now();
    for (int i = 0; i < kTrips; ++i) {
      nothing<<<1, 32, 0, run.stream>>>(nullptr);
      check(cudaStreamSynchronize(run.stream), "waiting");
    }
    round_trip.push_back((now() - first) / kTrips);
  }
  run.add("launch.stream", "launch.stream", Dimension::time, each,
          "2000 empty kernels launched back to back, host time over their number");
  run.add("launch.round_trip", "", Dimension::time, round_trip,
          "launch of an empty kernel and wait for its end, host time");
  run.add("launch.queued", "", Dimension::time,
          run.time(run.full() ? 21 : 9, 200, [&] { nothing<<<1, 32, 0, run.stream>>>(nullptr); }),
          "the same kernels already queued: what the GPU itself needs between two");
}

void barrier_costs(CudaRun& run) {
  constexpr int kFew = 100, kMany = 2100, kThreads = 256;
  DeviceArray<unsigned> counter(1);
  const auto cost = [&](const std::function<void(int)>& launch) {
    const int samples = run.full() ? 21 : 9;
    const double base = median(run.time(samples, 1, [&] { launch(kFew); }));
    std::vector<double> each;
    for (const double seconds : run.time(samples, 1, [&] { launch(kMany); })) {
      each.push_back((seconds - base) / (kMany - kFew));
    }
    return each;
  };
  const dim3 grid(static_cast<unsigned>(run.sms())), block(kThreads);
  // A cooperative launch promises that all blocks are on the chip together.
  run.add("launch.grid_barrier", "launch.persistent", Dimension::time, cost([&](int count) {
            cudaMemsetAsync(counter.data(), 0, sizeof(unsigned), run.stream);
            unsigned* at = counter.data();
            void* arguments[] = {&at, &count};
            cudaLaunchCooperativeKernel(reinterpret_cast<const void*>(barriers), grid, block,
                                        arguments, 0, run.stream);
          }),
          fmt::format("one counter, {} blocks of {} threads", run.sms(), kThreads));
  run.add("launch.grid_sync", "", Dimension::time, cost([&](int count) {
            void* arguments[] = {&count};
            cudaLaunchCooperativeKernel(reinterpret_cast<const void*>(grid_syncs), grid, block,
                                        arguments, 0, run.stream);
          }),
          "the same through cooperative groups");
}

void atomic_rates(CudaRun& run) {
  constexpr int kThreads = 256, kRepeats = 64;
  const int blocks = run.sms() * 4;
  DeviceArray<uint32_t> counters(static_cast<size_t>(blocks) * kThreads);
  const double operations = double(blocks) * kThreads * kRepeats;
  for (const int spread : {0, 1}) {
    counters.fill_bytes(0);
    const std::vector<double> seconds = run.time(5, 1, [&] {
      atomics<<<blocks, kThreads, 0, run.stream>>>(counters.data(), spread, kRepeats);
    });
    const uint32_t first = counters.host()[0];
    Reading reading = summarize(spread ? "atomics.spread" : "atomics.one", "", Dimension::rate,
                                rates(operations, seconds),
                                spread ? "32-bit additions, each thread its own word"
                                       : "32-bit additions, all to one word");
    const uint64_t launches = 6;  // one to warm up
    const uint64_t expected =
        spread ? launches * kRepeats : launches * static_cast<uint64_t>(operations);
    if (first != static_cast<uint32_t>(expected)) reading.doubt = "wrong count";
    run.add(std::move(reading));
  }
}

}  // namespace

void measure_launches(CudaRun& run) {
  run.progress("launches");
  stream_launches(run);
  run.progress("graph edges");
  run.add("launch.graph", "launch.graph", Dimension::time, graph_edge(run, false),
          "one more empty kernel in a chain of a CUDA graph: 1100 nodes less 100");
  if (run.properties.major >= 9) {
    run.add("launch.graph.pdl", "", Dimension::time, graph_edge(run, true),
            "the same with programmatic dependent launch");
  }
  run.progress("grid barrier");
  barrier_costs(run);
  run.progress("atomics");
  atomic_rates(run);
}

}  // namespace ridge
