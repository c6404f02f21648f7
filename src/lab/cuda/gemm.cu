#include <cuda_bf16.h>

#include <cmath>
#include <cstring>

#include "base/error.h"
#include "engine/cuda/gemm/linear.cuh"
#include "engine/cuda/layout/pack.cuh"
#include "lab/cuda/gemm.h"
#include "lab/cuda/kernels.cuh"

namespace ridge {
namespace {

constexpr float kWeightDeviation = 0.02f;
constexpr int kMostTile = 256;  // tokens

// A matrix as the engine keeps it.
struct PackedWeights {
  // With `pairs`, rows are gate and up in turn: blocks of 8 rows of each.
  PackedWeights(LabGpu& gpu, int row_count, int column_count, bool pairs, uint64_t seed)
      : rows(row_count), columns(column_count) {
    const cudaStream_t stream = gpu.run().stream;
    constexpr cuda::WeightFormat kFormat = cuda::WeightFormat::bf16;
    const cuda::FormatInfo info = cuda::format_info(kFormat);
    tiles.blocks = (rows + cuda::kBlockRows - 1) / cuda::kBlockRows;
    tiles.chunks = (columns + info.columns - 1) / info.columns;
    tiles.stride = size_t(tiles.blocks) * tiles.chunks * info.chunk_bytes;
    data = cuda::DeviceBuffer<uint8_t>(tiles.stride);
    cuda::DeviceBuffer<uint16_t> plain(size_t(rows) * columns);
    cuda::fill_normal(stream, plain.data(), plain.size(), seed, kWeightDeviation);
    const uint16_t* second = pairs ? plain.data() + size_t(rows / 2) * columns : nullptr;
    cuda::pack(stream, kFormat, plain.data(), second, pairs ? rows / 2 : rows, columns, data.data(),
               nullptr, tiles.chunks);
    gpu.wait();
    tiles.data = data.data();
  }
  int rows, columns;
  cuda::Tiles tiles;
  cuda::DeviceBuffer<uint8_t> data;
};

// Activations of `tokens` tokens, padded to whole tiles, in the order that wgmma reads.
cuda::DeviceBuffer<uint16_t> activations(LabGpu& gpu, int columns, int tokens) {
  const size_t padded = (size_t(tokens) + kMostTile - 1) / kMostTile * kMostTile;
  cuda::DeviceBuffer<uint16_t> x(padded * size_t((columns + 63) / 64 * 64));
  cuda::fill_normal(gpu.run().stream, x.data(), x.size(), 77, 1.0f);
  gpu.wait();
  return x;
}

cuda::LinearArgs linear_args(const PackedWeights& w, const uint16_t* x, int tokens,
                             cuda::Epilogue epilogue) {
  cuda::LinearArgs args;
  args.tiles = w.tiles;
  args.row_count = w.rows;
  args.x = x;
  args.tokens = tokens;
  args.padded = cuda::Linear::padded(tokens);
  args.epilogue = epilogue;
  args.stride = w.rows;
  return args;
}

float float_of(uint16_t bits) {
  const uint32_t wide = uint32_t{bits} << 16;
  float value;
  std::memcpy(&value, &wide, 4);
  return value;
}

__device__ uint32_t bf16_pair(float low, float high) {
  return uint32_t{__bfloat16_as_ushort(__float2bfloat16_rn(high))} << 16 |
         __bfloat16_as_ushort(__float2bfloat16_rn(low));
}

__device__ float gated(float gate, float up) { return gate / (1 + __expf(-gate)) * up; }

// out = silu(gate) * up. y: [token][2 inner] in blocks of 8 gates and 8 ups; a thread takes a block
// of a token and writes 8 bf16, 16 contiguous bytes.
__global__ void silu_pass(const float* __restrict__ y, int inner, int tokens, int padded,
                          uint16_t* out) {
  const int blocks = inner / 8;
  const size_t at = blockIdx.x * size_t{blockDim.x} + threadIdx.x;
  if (at >= size_t(blocks) * tokens) return;
  const int token = int(at / blocks), block = int(at % blocks);
  const float4* from = reinterpret_cast<const float4*>(y + size_t(token) * 2 * inner) + block * 4;
  const float4 g0 = from[0], g1 = from[1], u0 = from[2], u1 = from[3];
  const uint4 packed = {bf16_pair(gated(g0.x, u0.x), gated(g0.y, u0.y)),
                        bf16_pair(gated(g0.z, u0.z), gated(g0.w, u0.w)),
                        bf16_pair(gated(g1.x, u1.x), gated(g1.y, u1.y)),
                        bf16_pair(gated(g1.z, u1.z), gated(g1.w, u1.w))};
  *reinterpret_cast<uint4*>(out + cuda::wide_at(block * 8, token, padded)) = packed;
}

__global__ void residual_pass(float4* x, const float4* __restrict__ y, size_t vectors) {
  const size_t at = blockIdx.x * size_t{blockDim.x} + threadIdx.x;
  if (at >= vectors) return;
  const float4 a = x[at], b = y[at];
  x[at] = float4{a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w};
}

constexpr int kPassThreads = 256;
unsigned blocks_for(size_t threads) {
  return unsigned((threads + kPassThreads - 1) / kPassThreads);
}

}  // namespace

struct LabGemm::Data {
  Data(LabGpu& gpu, int rows, int columns, int tokens)
      : w(gpu, rows, columns, false, 5),
        x(activations(gpu, columns, tokens)),
        y(size_t(tokens) * rows),
        linear(cuda::WeightFormat::bf16, gpu.sms()) {}
  PackedWeights w;
  cuda::DeviceBuffer<uint16_t> x;
  cuda::DeviceBuffer<float> y;
  cuda::Linear linear;
};

LabGemm::LabGemm(LabGpu& gpu, int rows, int columns, int most_tokens)
    : gpu_(gpu),
      rows_(rows),
      columns_(columns),
      most_tokens_(most_tokens),
      data_(std::make_unique<Data>(gpu, rows, columns, most_tokens)) {}

LabGemm::~LabGemm() = default;

int LabGemm::padded(int tokens) { return cuda::Linear::padded(tokens); }

void LabGemm::launch(int tokens) {
  if (tokens > most_tokens_) throw Error("a GEMM of {} tokens", tokens);
  cuda::LinearArgs args = linear_args(data_->w, data_->x.data(), tokens, cuda::Epilogue::store);
  args.rows = data_->y.data();
  data_->linear.launch(gpu_.run().stream, &args, 1, cuda::Linear::tile_tokens(tokens));
}

bool LabGemm::is_right(int tokens) {
  data_->y.fill_bytes(0xff);
  launch(tokens);
  gpu_.wait();
  const PackedWeights& w = data_->w;
  const int stored = w.tiles.chunks * cuda::format_info(cuda::WeightFormat::bf16).columns;
  const int padded = cuda::Linear::padded(tokens);
  const auto copy = [](auto* to, const auto* from, size_t count) {
    check(cudaMemcpy(to, from, count * sizeof *to, cudaMemcpyDeviceToHost), "copying");
  };
  // The first and the last block of 16 rows, for tokens all over the tiles.
  cuda::DeviceBuffer<float> plain(size_t(cuda::kBlockRows) * stored);
  std::vector<float> weights(plain.size());
  std::vector<uint16_t> x(size_t(padded) * size_t((columns_ + 63) / 64 * 64));
  copy(x.data(), data_->x.data(), x.size());
  double difference = 0, size = 0;
  for (const int block : {0, w.tiles.blocks - 1}) {
    cuda::unpack(gpu_.run().stream, cuda::WeightFormat::bf16,
                 w.tiles.data + w.tiles.stride / w.tiles.blocks * block, nullptr, 1, w.tiles.chunks,
                 plain.data());
    gpu_.wait();
    copy(weights.data(), plain.data(), weights.size());
    for (int i = 0; i < 64; ++i) {
      const int r = i % cuda::kBlockRows, row = block * cuda::kBlockRows + r;
      const int token = int((i * 7919LL + 13) % tokens);
      if (row >= rows_) continue;
      double expected = 0;
      for (int c = 0; c < columns_; ++c) {
        expected +=
            double(weights[size_t(r) * stored + c]) * float_of(x[cuda::wide_at(c, token, padded)]);
      }
      float found = 0;
      copy(&found, data_->y.data() + size_t(token) * rows_ + row, 1);
      difference += (found - expected) * (found - expected);
      size += expected * expected;
    }
  }
  return std::sqrt(difference / size) < 1e-4;  // products of bf16 are exact in f32
}

struct LabMlpOnGpu::Data {
  Data(LabGpu& gpu, int hidden, int inner, int tokens)
      : gate_up(gpu, 2 * inner, hidden, true, 6),
        down(gpu, hidden, inner, false, 7),
        h(activations(gpu, hidden, tokens)),
        activated(activations(gpu, inner, tokens)),
        both(size_t(tokens) * 2 * inner),
        y(size_t(tokens) * hidden),
        x(size_t(tokens) * hidden),
        linear(cuda::WeightFormat::bf16, gpu.sms()) {}
  PackedWeights gate_up, down;
  cuda::DeviceBuffer<uint16_t> h, activated;
  cuda::DeviceBuffer<float> both, y, x;  // [token][2 inner], [token][hidden] x 2
  cuda::Linear linear;
};

LabMlpOnGpu::LabMlpOnGpu(LabGpu& gpu, int hidden, int inner, int most_tokens)
    : gpu_(gpu),
      hidden_(hidden),
      inner_(inner),
      most_tokens_(most_tokens),
      data_(std::make_unique<Data>(gpu, hidden, inner, most_tokens)) {
  if (hidden % 4 != 0 || inner % 8 != 0) throw Error("an MLP of {} x {}", hidden, inner);
  reset();
}

LabMlpOnGpu::~LabMlpOnGpu() = default;

void LabMlpOnGpu::fused(int tokens) {
  const cudaStream_t stream = gpu_.run().stream;
  const int tile = cuda::Linear::tile_tokens(tokens);
  cuda::LinearArgs first =
      linear_args(data_->gate_up, data_->h.data(), tokens, cuda::Epilogue::gate);
  first.out = data_->activated.data();
  data_->linear.launch(stream, &first, 1, tile);
  cuda::LinearArgs second =
      linear_args(data_->down, data_->activated.data(), tokens, cuda::Epilogue::add);
  second.rows = data_->x.data();
  data_->linear.launch(stream, &second, 1, tile);
}

void LabMlpOnGpu::apart(int tokens) {
  const cudaStream_t stream = gpu_.run().stream;
  const int tile = cuda::Linear::tile_tokens(tokens);
  cuda::LinearArgs first =
      linear_args(data_->gate_up, data_->h.data(), tokens, cuda::Epilogue::store);
  first.rows = data_->both.data();
  data_->linear.launch(stream, &first, 1, tile);
  silu_pass<<<blocks_for(size_t(inner_ / 8) * tokens), kPassThreads, 0, stream>>>(
      data_->both.data(), inner_, tokens, cuda::Linear::padded(tokens), data_->activated.data());
  cuda::LinearArgs second =
      linear_args(data_->down, data_->activated.data(), tokens, cuda::Epilogue::store);
  second.rows = data_->y.data();
  data_->linear.launch(stream, &second, 1, tile);
  const size_t vectors = size_t(hidden_ / 4) * tokens;
  residual_pass<<<blocks_for(vectors), kPassThreads, 0, stream>>>(
      reinterpret_cast<float4*>(data_->x.data()), reinterpret_cast<const float4*>(data_->y.data()),
      vectors);
}

void LabMlpOnGpu::reset() {
  gpu_.wait();
  data_->x.fill_bytes(0);
}

std::vector<float> LabMlpOnGpu::output(int tokens) {
  gpu_.wait();
  std::vector<float> all = data_->x.host();
  all.resize(size_t(tokens) * size_t(hidden_));
  return all;
}

}  // namespace ridge
