#include "base/ptx/memory_order.cuh"
#include "lab/cuda/kernels.cuh"
#include "lab/cuda/pieces.h"

namespace ridge {
namespace {

constexpr int kPieceThreads = 256;  // a float4 each: 4 KiB a SM, which lie in the L2

__device__ void halve_piece(float4* piece) {
  float4& at = piece[blockIdx.x * kPieceThreads + threadIdx.x];
  float4 x = __ldcg(&at);
  x.x = x.x / 2 + 1, x.y = x.y / 2 + 1, x.z = x.z / 2 + 1, x.w = x.w / 2 + 1;
  __stcg(&at, x);
}

__global__ void one_piece(float4* piece) { halve_piece(piece); }

// All blocks are resident, one on each SM: each arrives once a piece at a counter that only grows.
__global__ void all_pieces(float4* piece, unsigned* counter, int count) {
  for (int i = 1; i <= count; ++i) {
    halve_piece(piece);
    __syncthreads();
    if (threadIdx.x == 0) {
      ptx::red_release_increment(counter);
      while (ptx::ld_acquire(counter) < unsigned(i) * gridDim.x) {
      }
    }
    __syncthreads();
  }
}

class PieceGraph {
 public:
  PieceGraph(cudaStream_t stream, int blocks, float4* piece, int nodes) {
    one_piece<<<blocks, kPieceThreads, 0, stream>>>(piece);  // loads the kernel, before the capture
    check(cudaStreamSynchronize(stream), "running");
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capturing");
    for (int i = 0; i < nodes; ++i) one_piece<<<blocks, kPieceThreads, 0, stream>>>(piece);
    cudaGraph_t graph = nullptr;
    check(cudaStreamEndCapture(stream, &graph), "capturing");
    const cudaError_t made = cudaGraphInstantiate(&executable_, graph, 0);
    cudaGraphDestroy(graph);
    check(made, "building a graph");
  }
  ~PieceGraph() {
    if (executable_) cudaGraphExecDestroy(executable_);
  }
  PieceGraph(const PieceGraph&) = delete;
  PieceGraph& operator=(const PieceGraph&) = delete;
  void launch(cudaStream_t stream) const {
    check(cudaGraphLaunch(executable_, stream), "launching a graph");
  }

 private:
  cudaGraphExec_t executable_ = nullptr;
};

}  // namespace

struct LaunchPieces::Data {
  Data(LabGpu& gpu, int nodes)
      : piece(size_t(gpu.sms()) * kPieceThreads),
        counter(1),
        graph(gpu.run().stream, gpu.sms(), piece.data(), nodes) {}
  DeviceArray<float4> piece;
  DeviceArray<unsigned> counter;
  PieceGraph graph;
};

LaunchPieces::LaunchPieces(LabGpu& gpu, int nodes)
    : gpu_(gpu), nodes_(nodes), data_(std::make_unique<Data>(gpu, nodes)) {
  reset();
}

LaunchPieces::~LaunchPieces() = default;

double LaunchPieces::bytes(const LabGpu& gpu) { return 2.0 * 16 * kPieceThreads * gpu.sms(); }

void LaunchPieces::by_stream(int count) {
  for (int i = 0; i < count; ++i) {
    one_piece<<<gpu_.sms(), kPieceThreads, 0, gpu_.run().stream>>>(data_->piece.data());
  }
}

void LaunchPieces::by_graph(int count) {
  for (int done = 0; done < count; done += nodes_) data_->graph.launch(gpu_.run().stream);
}

void LaunchPieces::by_persistent(int count) {
  check(cudaMemsetAsync(data_->counter.data(), 0, sizeof(unsigned), gpu_.run().stream), "clearing");
  all_pieces<<<gpu_.sms(), kPieceThreads, 0, gpu_.run().stream>>>(data_->piece.data(),
                                                                  data_->counter.data(), count);
}

void LaunchPieces::reset() {
  gpu_.wait();
  data_->piece.fill_bytes(0);
}

bool LaunchPieces::all_equal(float value) {
  gpu_.wait();
  for (const float4& x : data_->piece.host()) {
    if (x.x != value || x.y != value || x.z != value || x.w != value) return false;
  }
  return true;
}

}  // namespace ridge
