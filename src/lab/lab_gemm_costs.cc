#include "lab/lab_gemm_costs.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <tuple>
#include <utility>
#include <vector>

#include "base/dtype.h"
#include "base/error.h"
#include "engine/cpu/matmul.h"
#include "engine/cpu/read_rate.h"

namespace ridge {
namespace {

constexpr int kProbeRows = 4096, kProbeColumns = 1024;
// Up to kStreamed tokens the kernels unpack weights for every use; beyond, once for a block of
// tokens (matmul.cc). Two numbers of tokens for each give what is paid once and what for each
// token.
constexpr int kOne = 1, kStreamed = 8, kFewTokens = 16, kManyTokens = 128;

// Weights whose bytes are 0x38 to 0x3f: in every format scales and floats of ordinary size.
void fill_probe_weights(const MappedBuffer& buffer, size_t bytes) {
  if (!buffer) throw Error("no memory for the weights of a probe");
  uint32_t state = 1;
  for (size_t i = 0; i < bytes; ++i) {
    state = state * 1664525u + 1013904223u;
    buffer.as<uint8_t>()[i] = uint8_t(0x38 + (state >> 29));
  }
}

// Of a few passes: other processes only ever add time.
double least_seconds(const std::function<void()>& work) {
  constexpr int kPasses = 6;
  double least = 1e9;
  for (int pass = 0; pass < kPasses; ++pass) {
    const auto start = std::chrono::steady_clock::now();
    work();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    least = std::min(least, took.count());
  }
  return least;
}

CpuGemm probe_gemm(ThreadTeam& team, Storage storage, double peak, double region_s) {
  const auto stride = int64_t(storage_bytes(storage, kProbeColumns));
  const MappedBuffer data(size_t(stride) * kProbeRows);
  fill_probe_weights(data, size_t(stride) * kProbeRows);
  const cpu::PackedMatrix w(
      Matrix{storage, kProbeRows, kProbeColumns, data.as<std::byte>(), stride}, team);
  const std::vector<float> x(size_t(kManyTokens) * kProbeColumns, 0.5f);
  std::vector<float> y(size_t(kManyTokens) * kProbeRows);
  cpu::Input input(kManyTokens, kProbeColumns);
  const double weights = double(kProbeRows) * kProbeColumns;
  const std::span<const std::byte> memory = w.memory();
  cpu::read_rate(team, {&memory, 1});
  const double bytes = double(memory.size());
  double read_s = 1;
  for (int pass = 0; pass < 5; ++pass) {
    read_s = std::min(read_s, bytes / cpu::read_rate(team, {&memory, 1}));
  }
  // fp32 operations of a weight beyond its read.
  const auto operations = [&](int tokens) {
    const cpu::InputKind kind[] = {w.input_kind(tokens)};
    input.set(team, x.data(), kProbeColumns, tokens, kProbeColumns, kind);
    cpu::Gemm gemm;
    gemm.w = &w;
    gemm.x = &input;
    gemm.y = y.data();
    gemm.stride = kProbeRows;
    const double seconds = least_seconds([&] { cpu::multiply(team, {&gemm, 1}); });
    return std::max(0.0, seconds - read_s - region_s) * peak / weights;
  };
  // {once, for each token} of a line through two numbers of tokens.
  const auto line = [&](int few, int many) {
    const double a = operations(few), b = operations(many);
    const double token = std::max(0.0, (b - a) / (many - few));
    return std::pair(std::max(0.0, a - few * token), token);
  };
  CpuGemm gemm;
  gemm.bits = 8 * bytes / weights;
  std::tie(gemm.tile, gemm.token) = line(kOne, kStreamed);
  std::tie(gemm.panel, gemm.panel_token) = line(kFewTokens, kManyTokens);
  return gemm;
}

}  // namespace

std::shared_ptr<const CpuKernels> LabGemmCosts::with(ThreadTeam& team, Storage storage, double peak,
                                                     double region_s) {
  const CpuFormat format = cpu_format(format_from_name(storage_info(storage).name));
  if (format != CpuFormat::other && !read_.contains(storage)) {
    read_[storage] = probe_gemm(team, storage, peak, region_s);
    kernels_.gemms[static_cast<size_t>(format)] = read_[storage];
    kernels_.memory = 1;
    kernels_.tile_tokens = kernels_.stream_tokens = kStreamed;
    kernels_.token_block = kManyTokens;
  }
  return std::make_shared<const CpuKernels>(kernels_);
}

}  // namespace ridge
