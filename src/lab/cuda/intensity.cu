// Each block takes tiles of the set in turn: tile r * gridDim + block in round r. A thread loads 64
// bytes of a tile (four loads of 16 bytes, past the L1) before it uses any of them.
#include <cmath>

#include "base/error.h"
#include "base/ptx/mma.cuh"
#include "lab/cuda/intensity.h"
#include "lab/cuda/kernels.cuh"

namespace ridge {
namespace {

constexpr int kLoads = 4;  // of 16 bytes, in flight for each thread

// The tile of a block in a round; passes begin at different tiles, so that no pass repeats the
// addresses of the one before in the same order.
__device__ size_t tile_of(int round, int pass, int first, int rounds) {
  const int shifted = (round + pass) % rounds;
  return size_t(first + shifted) * gridDim.x + blockIdx.x;
}

// ---- fp32: 512 threads, 3 blocks a SM (at most 42 registers), 96 KB in flight a SM.
constexpr int kFloatThreads = 512, kFloatBlocks = 3, kFloats = 4 * kLoads;

__device__ float both(float a, float b) {
  return __uint_as_float(__float_as_uint(a) & __float_as_uint(b));
}

// kGroup 0: `fmas` multiply-adds x = x/2 + 1 of each float. Otherwise one addition for each kGroup
// floats, whose bits are combined before.
template <int kGroup>
__global__ void __launch_bounds__(kFloatThreads, kFloatBlocks)
    turn_floats(const float4* __restrict__ data, int first, int rounds, int passes, int fmas,
                float half, double* total) {
  float sum[4] = {};
  for (int pass = 0; pass < passes; ++pass) {
#pragma unroll 1
    for (int round = 0; round < rounds; ++round) {
      const float4* at =
          data + tile_of(round, pass, first, rounds) * (kFloatThreads * kLoads) + threadIdx.x;
      float x[kFloats];
#pragma unroll
      for (int i = 0; i < kLoads; ++i) {
        const float4 v = __ldcg(at + i * kFloatThreads);
        x[4 * i] = v.x, x[4 * i + 1] = v.y, x[4 * i + 2] = v.z, x[4 * i + 3] = v.w;
      }
      if constexpr (kGroup == 0) {
#pragma unroll 4
        for (int k = 0; k < fmas; ++k) {
#pragma unroll
          for (int c = 0; c < kFloats; ++c) x[c] = fmaf(x[c], half, 1.0f);
        }
      }
      if constexpr (kGroup >= 2) {
#pragma unroll
        for (int c = 0; c < 8; ++c) x[c] = both(x[c], x[c + 8]);
      }
      if constexpr (kGroup == 4) {
#pragma unroll
        for (int c = 0; c < 4; ++c) x[c] = both(x[c], x[c + 4]);
      }
#pragma unroll
      for (int c = 0; c < kFloats / (kGroup == 0 ? 1 : kGroup); ++c) sum[c % 4] += x[c];
    }
  }
  add_to_total(double(sum[0]) + sum[1] + sum[2] + sum[3], total);
}

// The same sum for one pass, a slot of 16 floats at a time, in double.
__global__ void sum_floats(const float* data, size_t slots, int fmas, int group, double* total) {
  double sum = 0;
  for (size_t slot = blockIdx.x * size_t{blockDim.x} + threadIdx.x; slot < slots;
       slot += size_t{gridDim.x} * blockDim.x) {
    const size_t tile = slot / kFloatThreads, thread = slot % kFloatThreads;
    float x[kFloats];
    for (int c = 0; c < kFloats; ++c) {
      x[c] = data[((tile * kLoads + c / 4) * kFloatThreads + thread) * 4 + c % 4];
    }
    if (fmas > 0) {
      for (int c = 0; c < kFloats; ++c) {
        for (int k = 0; k < fmas; ++k) x[c] = x[c] * 0.5f + 1;
        sum += x[c];
      }
    } else {
      for (int c = 0; c < kFloats / group; ++c) {
        uint32_t bits = ~0u;
        for (int g = 0; g < group; ++g) bits &= __float_as_uint(x[c + g * (kFloats / group)]);
        sum += __uint_as_float(bits);
      }
    }
  }
  add_to_total(sum, total);
}

// ---- bf16: 8 warps, 4 blocks a SM (at most 64 registers), 64 KB in flight a SM. A load of 16
// bytes is a lane's share of an A operand (512 bytes a warp); four accumulators take turns.
constexpr int kMmaThreads = 256, kMmaBlocks = 4, kMmaChains = 4;

// kMmas x repeats products of each operand; kMmas 0: one product of the combined bits of `every`
// tiles' operands. `b`: [chain][lane], the B operands.
template <int kMmas>
__global__ void __launch_bounds__(kMmaThreads, kMmaBlocks)
    turn_operands(const uint4* __restrict__ data, int first, int rounds, int passes, int repeats,
                  int every, const uint2* __restrict__ b, double* total) {
  float d[kMmaChains][4] = {};
  uint2 columns[kMmaChains];
  for (int c = 0; c < kMmaChains; ++c) columns[c] = b[c * 32 + threadIdx.x % 32];
  [[maybe_unused]] uint32_t combined[4] = {~0u, ~0u, ~0u, ~0u};
  [[maybe_unused]] int gathered = 0;
  for (int pass = 0; pass < passes; ++pass) {
#pragma unroll 1
    for (int round = 0; round < rounds; ++round) {
      const uint4* at =
          data + tile_of(round, pass, first, rounds) * (kMmaThreads * kLoads) + threadIdx.x;
      uint32_t a[kLoads][4];
#pragma unroll
      for (int i = 0; i < kLoads; ++i) {
        const uint4 v = __ldcg(at + i * kMmaThreads);
        a[i][0] = v.x, a[i][1] = v.y, a[i][2] = v.z, a[i][3] = v.w;
      }
      if constexpr (kMmas == 0) {
#pragma unroll
        for (int i = 0; i < kLoads; ++i) {
          for (int r = 0; r < 4; ++r) combined[r] &= a[i][r];
        }
        if (++gathered == every) {
          ptx::mma_bf16(d[0], combined, columns[0].x, columns[0].y);
          for (uint32_t& word : combined) word = ~0u;
          gathered = 0;
        }
      } else {
        for (int repeat = 0; repeat < repeats; ++repeat) {
#pragma unroll
          for (int m = 0; m < kMmas; ++m) {
#pragma unroll
            for (int i = 0; i < kLoads; ++i) {
              const int chain = (m * kLoads + i) % kMmaChains;
              ptx::mma_bf16(d[chain], a[i], columns[chain].x, columns[chain].y);
            }
          }
        }
      }
    }
  }
  double sum = 0;
  for (int c = 0; c < kMmaChains; ++c) sum += double(d[c][0]) + d[c][1] + d[c][2] + d[c][3];
  add_to_total(sum, total);
}

__device__ double sum_of_pair(uint32_t word) {
  return double(__uint_as_float(word << 16)) + __uint_as_float(word & 0xffff0000u);
}

// The sum of all results where B is one everywhere: 8 columns times the elements of the operands.
// The grid is that of turn_operands.
__global__ void sum_operands(const uint4* data, int rounds, int each, int every, double* total) {
  double sum = 0;
  uint32_t combined[4] = {~0u, ~0u, ~0u, ~0u};
  for (int round = 0; round < rounds; ++round) {
    for (int i = 0; i < kLoads; ++i) {
      const size_t tile = size_t(round) * gridDim.x + blockIdx.x;
      const uint4 v = data[(tile * kLoads + i) * kMmaThreads + threadIdx.x];
      const uint32_t words[4] = {v.x, v.y, v.z, v.w};
      for (int r = 0; r < 4; ++r) {
        if (each > 0) sum += 8.0 * each * sum_of_pair(words[r]);
        combined[r] &= words[r];
      }
    }
    if (each == 0 && (round + 1) % every == 0) {
      for (uint32_t& word : combined) {
        sum += 8 * sum_of_pair(word);
        word = ~0u;
      }
    }
  }
  add_to_total(sum, total);
}

int blocks_of(const LabGpu& gpu, IntensityMath math) {
  return gpu.sms() * (math == IntensityMath::fp32 ? kFloatBlocks : kMmaBlocks);
}
size_t tile_vectors(IntensityMath math) {
  return size_t{kLoads} * (math == IntensityMath::fp32 ? kFloatThreads : kMmaThreads);
}

}  // namespace

struct IntensityReads::Data {
  Data(LabGpu& gpu, size_t vectors)
      : set(vectors), random_b(kMmaChains * 32), ones(kMmaChains * 32), total(gpu) {}
  DeviceArray<uint4> set;
  DeviceArray<uint2> random_b, ones;
  GridTotal<double> total;
  const uint2* b = nullptr;
};

IntensityReads::IntensityReads(LabGpu& gpu, IntensityMath math, int rounds)
    : gpu_(gpu),
      math_(math),
      rounds_(rounds),
      data_(std::make_unique<Data>(gpu, tile_vectors(math) * blocks_of(gpu, math) * rounds)) {
  const bool floats = math == IntensityMath::fp32;
  fill_words(gpu, reinterpret_cast<uint32_t*>(data_->set.data()), data_->set.size() * 4,
             floats ? kFloatBits : kBf16Bits, floats ? kFloatOne : kBf16One);
  const auto fill_b = [&](const DeviceArray<uint2>& b, uint32_t keep) {
    fill_words(gpu, reinterpret_cast<uint32_t*>(b.data()), b.size() * 2, keep, kBf16One);
  };
  fill_b(data_->random_b, kBf16Bits | 0x80008000u);  // with either sign
  fill_b(data_->ones, 0);
  data_->b = data_->random_b.data();
  gpu.wait();
}

IntensityReads::~IntensityReads() = default;

double IntensityReads::round_bytes(const LabGpu& gpu, IntensityMath math) {
  return 16.0 * double(tile_vectors(math)) * blocks_of(gpu, math);
}

double IntensityReads::flop_per_byte(IntensityMath math, const IntensityWork& work) {
  if (math == IntensityMath::fp32) return (work.each > 0 ? 2.0 * work.each : 1.0 / work.group) / 4;
  constexpr double kMmaFlops = 2.0 * 16 * 8 * 16;
  return work.each > 0 ? kMmaFlops * work.each / 512 : kMmaFlops / (2048.0 * work.group);
}

void IntensityReads::launch(const IntensityWork& work, int first, int rounds, int passes) {
  if (first < 0 || first + rounds > rounds_) throw Error("rounds outside of the set");
  const int blocks = blocks_of(gpu_, math_);
  const cudaStream_t stream = gpu_.run().stream;
  double* const total = data_->total.data();
  if (math_ == IntensityMath::fp32) {
    const float4* set = reinterpret_cast<const float4*>(data_->set.data());
    const auto kernel = work.each > 0     ? turn_floats<0>
                        : work.group == 1 ? turn_floats<1>
                        : work.group == 2 ? turn_floats<2>
                                          : turn_floats<4>;
    kernel<<<blocks, kFloatThreads, 0, stream>>>(set, first, rounds, passes, work.each, 0.5f,
                                                 total);
    return;
  }
  const auto kernel = work.each == 0   ? turn_operands<0>
                      : work.each == 1 ? turn_operands<1>
                      : work.each == 2 ? turn_operands<2>
                                       : turn_operands<4>;
  const int repeats = work.each > 4 ? work.each / 4 : 1;
  kernel<<<blocks, kMmaThreads, 0, stream>>>(data_->set.data(), first, rounds, passes, repeats,
                                             work.group, data_->b, total);
}

double IntensityReads::flops(const IntensityWork& work, int rounds, int passes) const {
  const double tiles = double(rounds) * passes;
  const double counted = math_ == IntensityMath::bf16 && work.each == 0
                             ? std::floor(tiles / work.group) * work.group  // the rest is not used
                             : tiles;
  return counted * round_bytes(gpu_, math_) * flop_per_byte(math_, work);
}

bool IntensityReads::is_right(const IntensityWork& work) {
  // Few additions to an accumulator: the tensor cores cut sums off rather than round them.
  const int most = math_ == IntensityMath::bf16 && work.each > 0 ? 8 : 64;
  const int rounds = rounds_ < most ? rounds_ : most;
  const int blocks = blocks_of(gpu_, math_);
  const cudaStream_t stream = gpu_.run().stream;
  data_->b = data_->ones.data();
  data_->total.clear();
  launch(work, 0, rounds, 1);
  const double found = data_->total.read();
  data_->b = data_->random_b.data();
  data_->total.clear();
  if (math_ == IntensityMath::fp32) {
    sum_floats<<<gpu_.sms() * 8, 256, 0, stream>>>(
        reinterpret_cast<const float*>(data_->set.data()), size_t(rounds) * blocks * kFloatThreads,
        work.each, work.group, data_->total.data());
  } else {
    sum_operands<<<blocks, kMmaThreads, 0, stream>>>(data_->set.data(), rounds, work.each,
                                                     work.group, data_->total.data());
  }
  const double expected = data_->total.read();
  // At most 64 x 4 additions to a float, or 8 x 128 to an accumulator: 2^-24 or 2^-23 each.
  return expected == 0 ? found == 0 : std::abs(found / expected - 1) < 1e-4;
}

}  // namespace ridge
