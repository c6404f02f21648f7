#include "base/ptx/mbarrier.cuh"
#include "lab/cuda/kernels.cuh"
#include "lab/cuda/on_chip.h"

namespace ridge {
namespace {

// ---- banks
constexpr int kBankThreads = 1024, kBankBlocks = 2;  // of a SM
constexpr int kBankWords = 8192, kBankUnroll = 8;    // a load of the unrolled eight is 32 words on
constexpr int kBankAll = kBankWords + 32 * kBankUnroll;
constexpr int kBankRepeats = 2000;

__host__ __device__ uint32_t bank_word(uint32_t i) { return i * 2654435761u >> 7; }

__device__ uint32_t load_shared(uint32_t address) {
  uint32_t value;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(value) : "r"(address));
  return value;
}

__global__ void __launch_bounds__(kBankThreads, kBankBlocks)
    read_banks_kernel(int stride, int repeats, uint32_t* total) {
  __shared__ uint32_t words[kBankAll];
  for (int i = threadIdx.x; i < kBankAll; i += kBankThreads) words[i] = bank_word(i);
  __syncthreads();
  const uint32_t base = ptx::shared_address(words);
  const uint32_t lane_word = threadIdx.x % 32 * stride;
  uint32_t sum = 0;
#pragma unroll 1
  for (int r = 0; r < repeats; ++r) {
    const uint32_t first = (lane_word + uint32_t(r) * (32 * kBankUnroll)) % kBankWords;
#pragma unroll
    for (int u = 0; u < kBankUnroll; ++u) sum += load_shared(base + 4 * first + 4 * 32 * u);
  }
  add_to_total(sum, total);
}

// ---- multiply-adds
constexpr int kChains = 8, kFmaUnroll = 8;
constexpr int kFmaThreads = 1024;
constexpr int kFmas = 4096;                 // of each chain
constexpr int kLoneBlockBytes = 120 << 10;  // of shared memory: a SM has no room for two

// Lanes of branch g run while the others wait. x/2 + 1 ends at 2 wherever it starts.
__global__ void __launch_bounds__(kFmaThreads)
    multiply_branches(int ways, int fmas, float half, float* out) {
  float x[kChains];
  for (int c = 0; c < kChains; ++c) x[c] = float(threadIdx.x + c);
  const int branch = threadIdx.x % 32 % ways;
#pragma unroll 1
  for (int g = 0; g < ways; ++g) {
    if (branch == g) {
#pragma unroll 1
      for (int i = 0; i < fmas; i += kFmaUnroll) {
#pragma unroll
        for (int u = 0; u < kFmaUnroll; ++u) {
#pragma unroll
          for (int c = 0; c < kChains; ++c) x[c] = fmaf(x[c], half, 1.0f);
        }
      }
    }
    __syncwarp();
  }
  float sum = 0;
  for (int c = 0; c < kChains; ++c) sum += x[c];
  out[size_t{blockIdx.x} * kFmaThreads + threadIdx.x] = sum;
}

}  // namespace

struct OnChip::Data {
  explicit Data(LabGpu& gpu) : total(gpu), out(size_t(gpu.sms()) * 4 * kFmaThreads) {}
  GridTotal<uint32_t> total;
  DeviceArray<float> out;

  // Whether the chains of the first `blocks` blocks all ended at 2.
  bool all_ended(LabGpu& gpu, int blocks) {
    gpu.wait();
    const std::vector<float> sums = out.host();
    for (size_t i = 0; i < size_t(blocks) * kFmaThreads; ++i) {
      if (sums[i] != 2.0f * kChains) return false;
    }
    return true;
  }
};

OnChip::OnChip(LabGpu& gpu) : gpu_(gpu), data_(std::make_unique<Data>(gpu)) {
  check(cudaFuncSetAttribute(multiply_branches, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             kLoneBlockBytes),
        "raising the limit of shared memory");
}

OnChip::~OnChip() = default;

void OnChip::read_banks(int stride) {
  read_banks_kernel<<<gpu_.sms() * kBankBlocks, kBankThreads, 0, gpu_.run().stream>>>(
      stride, kBankRepeats, data_->total.data());
}

double OnChip::bank_bytes() const {
  return 4.0 * kBankThreads * kBankBlocks * gpu_.sms() * kBankUnroll * kBankRepeats;
}

bool OnChip::banks_are_right(int stride) {
  data_->total.clear();
  read_banks(stride);
  uint32_t warp = 0;  // every warp reads the same
  for (uint32_t lane = 0; lane < 32; ++lane) {
    for (uint32_t r = 0; r < kBankRepeats; ++r) {
      const uint32_t first = (lane * uint32_t(stride) + r * (32 * kBankUnroll)) % kBankWords;
      for (uint32_t u = 0; u < kBankUnroll; ++u) warp += bank_word(first + 32 * u);
    }
  }
  const uint32_t warps = uint32_t(gpu_.sms()) * kBankBlocks * (kBankThreads / 32);
  return data_->total.read() == warps * warp;
}

void OnChip::diverge(int ways) {
  multiply_branches<<<gpu_.sms() * 2, kFmaThreads, 0, gpu_.run().stream>>>(ways, kFmas, 0.5f,
                                                                           data_->out.data());
}

double OnChip::diverge_flops() const {
  return 2.0 * kFmas * kChains * kFmaThreads * 2 * gpu_.sms();
}

bool OnChip::diverge_is_right(int ways) {
  data_->out.fill_bytes(0);
  diverge(ways);
  return data_->all_ended(gpu_, gpu_.sms() * 2);
}

void OnChip::run_blocks(int blocks) {
  multiply_branches<<<blocks, kFmaThreads, kLoneBlockBytes, gpu_.run().stream>>>(1, kFmas, 0.5f,
                                                                                 data_->out.data());
}

double OnChip::block_flops() const { return 2.0 * kFmas * kChains * kFmaThreads; }

bool OnChip::blocks_are_right(int blocks) {
  data_->out.fill_bytes(0);
  run_blocks(blocks);
  return data_->all_ended(gpu_, blocks);
}

}  // namespace ridge
