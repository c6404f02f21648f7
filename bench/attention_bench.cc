// Attention against the ceilings of the same run: the rate at which all threads read memory and
// the FMA peak. `of_roof` is the share of the one that decides: prompts are arithmetic; decoding is
// reading until many query heads share a KV head (G FLOP/byte in f16, 2 G in int8).
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <numeric>
#include <vector>

#include "base/mapped_buffer.h"
#include "engine/cpu/attention.h"
#include "measure/cpu/kernels.h"

namespace ridge {
namespace {

using Clock = std::chrono::steady_clock;

// Virtual machines may share a cache far larger than they report (measure/cpu/read_probe.cc): each
// pass goes over another window of this much memory. Passes of half a millisecond let the best of
// them fall between the turns of other programs.
constexpr size_t kFarBytes = size_t{1} << 30;
constexpr size_t kWindowBytes = size_t{16} << 20;

ThreadTeam& team() {
  static ThreadTeam all;
  return all;
}

// The best of some passes: what the machine can do, not what a neighbour left of it.
template <typename Work>
double best_seconds(int passes, const Work& work) {
  double best = INFINITY;
  for (int i = 0; i < passes; ++i) {
    const auto start = Clock::now();
    work();
    best = std::min(best, std::chrono::duration<double>(Clock::now() - start).count());
  }
  return best;
}

template <typename Work>
double best_of(benchmark::State& state, const Work& work) {
  double best = INFINITY;
  for (auto _ : state) best = std::min(best, best_seconds(1, work));
  return best;
}

// Bytes/s of plain reading, all threads, far beyond the caches.
double read_roof() {
  static const double roof = [] {
    const size_t floats = kFarBytes / sizeof(float);
    const MappedBuffer buffer(floats * sizeof(float));
    const auto threads = size_t(team().size());
    const size_t part = floats / threads / kStep * kStep;
    float* data = buffer.as<float>();
    const auto on_part = [&](const auto& body) {
      team().run([&](int index) { body(data + size_t(index) * part); });
    };
    on_part([&](float* at) { std::fill_n(at, part, 1.0f); });
    const size_t window = kWindowBytes / sizeof(float) / threads;
    size_t begin = 0;
    const double seconds = best_seconds(1000, [&] {
      begin = begin + 2 * window <= part ? begin + window : 0;
      on_part([&](float* at) {
        benchmark::DoNotOptimize(kernel_sets()[0].read(at + begin, window, 1));
      });
    });
    return double(kWindowBytes) / seconds;
  }();
  return roof;
}

// FLOP/s of FMAs in registers: one core's best, for each thread.
double fma_roof() {
  static const double roof = [] {
    const KernelSet& kernels = kernel_sets()[0];
    constexpr long kRepeats = 2000;
    const double seconds =
        best_seconds(1000, [&] { benchmark::DoNotOptimize(kernels.fma32(kRepeats)); });
    return kernels.fma32_ops() * double(kRepeats) * team().size() / seconds;
  }();
  return roof;
}

struct Bench {
  cpu::LayerCache cache;
  cpu::AttentionRules rules;
  MappedBuffer memory, scales;
  std::vector<int> pages;
  std::vector<float> q, out;

  Bench(KvStorage storage, int heads, int kv_heads, int head_dim, int tokens, int rows)
      : memory(2 * size_t(tokens) * size_t(kv_heads * head_dim) *
               (storage == KvStorage::int8 ? 1 : 2)),
        scales(2 * size_t(tokens) * size_t(kv_heads) * sizeof(float)) {
    cache = {storage, kv_heads, head_dim, 16};
    rules = {heads, 1 / std::sqrt(float(head_dim))};
    const size_t side = cache.page_bytes() * size_t(tokens / cache.page_tokens);
    cache.k = memory.as<std::byte>();
    cache.v = cache.k + side;
    cache.k_scale = scales.as<float>();
    cache.v_scale = cache.k_scale + tokens * kv_heads;
    std::fill_n(cache.k_scale, 2 * tokens * kv_heads, 0.01f);
    uint32_t state = 1;  // bytes 0x3x: numbers around 1 in f16 and bf16
    for (size_t i = 0; i < 2 * side; ++i) {
      state = state * 1664525 + 1013904223;
      cache.k[i] = std::byte(i % 2 ? 0x38 | (state >> 31 << 7) : state >> 24);
    }
    pages.resize(size_t(tokens / cache.page_tokens));
    std::iota(pages.begin(), pages.end(), 0);
    q.assign(size_t(rows) * size_t(heads * head_dim), 0.1f);
    for (size_t i = 0; i < q.size(); ++i) q[i] *= float(i % 17) - 8;
    out = q;
  }
  void run(std::span<const cpu::AttentionSlice> slices) {
    const int64_t stride = rules.heads * cache.head_dim;
    cpu::attention(team(), rules, cache, slices, q.data(), stride, out.data(), stride);
  }
};

// One token after a long sequence, or a window of it: every key and value is read once.
void decode(benchmark::State& state, KvStorage storage, int heads, int kv_heads, int head_dim) {
  const double token_bytes = 2.0 * kv_heads * head_dim * (storage == KvStorage::int8 ? 1 : 2) +
                             (storage == KvStorage::int8 ? 8.0 * kv_heads : 0);
  const int tokens = int(double(kFarBytes) / token_bytes) / 64 * 64;
  Bench bench(storage, heads, kv_heads, head_dim, tokens, 1);
  const int window = int(double(kWindowBytes) / token_bytes) / 64 * 64;
  int begin = 0;
  const double best = best_of(state, [&] {
    begin = begin + 2 * window <= tokens ? begin + window : 0;
    const std::span<const int> pages(bench.pages);
    const cpu::AttentionSlice slice{0, 1, window - 1, pages.subspan(size_t(begin / 16))};
    bench.run({&slice, 1});
  });
  const double bytes = token_bytes * window, flops = 4.0 * heads * head_dim * window;
  state.counters["GB/s"] = bytes / best * 1e-9;
  state.counters["of_read"] = bytes / best / read_roof();
  state.counters["of_roof"] = std::max(bytes / read_roof(), flops / fma_roof()) / best;
}

// The last chunk of a prompt of 2048: 4 d FLOPs for each visible (query, key) pair and head.
// With `tiles` in AMX tiles, where the CPU has them.
void prompt(benchmark::State& state, KvStorage storage, int heads, int kv_heads, int head_dim,
            bool tiles = false) {
  const int tokens = 2048, fresh = 256;
  Bench bench(storage, heads, kv_heads, head_dim, tokens, fresh);
  bench.rules.tiles = tiles;
  const cpu::AttentionSlice slice{0, fresh, tokens - fresh, bench.pages};
  const double best = best_of(state, [&] { bench.run({&slice, 1}); });
  const double pairs = fresh * (tokens - fresh + 0.5 * (fresh + 1));
  const double rate = 4 * pairs * heads * head_dim / best;
  state.counters["GFLOP/s"] = rate * 1e-9;
  state.counters["of_roof"] = rate / fma_roof();
}

#define ATTENTION(kind, name, ...) \
  BENCHMARK_CAPTURE(kind, name, __VA_ARGS__)->UseRealTime()->Unit(benchmark::kMillisecond)
ATTENTION(decode, f16_mha_8x128, KvStorage::f16, 8, 8, 128);
ATTENTION(decode, bf16_mha_8x128, KvStorage::bf16, 8, 8, 128);
ATTENTION(decode, int8_mha_8x128, KvStorage::int8, 8, 8, 128);
ATTENTION(decode, f16_gqa_16_4x64, KvStorage::f16, 16, 4, 64);
ATTENTION(decode, bf16_gqa_16_4x64, KvStorage::bf16, 16, 4, 64);
ATTENTION(decode, int8_gqa_16_4x64, KvStorage::int8, 16, 4, 64);
ATTENTION(decode, f16_gqa_32_4x64, KvStorage::f16, 32, 4, 64);
ATTENTION(decode, bf16_gqa_32_4x64, KvStorage::bf16, 32, 4, 64);
ATTENTION(decode, f16_gqa_8_1x128, KvStorage::f16, 8, 1, 128);
ATTENTION(decode, f16_mqa_1x256, KvStorage::f16, 1, 1, 256);
ATTENTION(prompt, f16_mha_4x64, KvStorage::f16, 4, 4, 64);
ATTENTION(prompt, f16_gqa_8_1x64, KvStorage::f16, 8, 1, 64);
ATTENTION(prompt, f16_gqa_4_1x128, KvStorage::f16, 4, 1, 128);
ATTENTION(prompt, bf16_gqa_4_1x128, KvStorage::bf16, 4, 1, 128);
ATTENTION(prompt, int8_gqa_4_1x128, KvStorage::int8, 4, 1, 128);
ATTENTION(prompt, tiles_f16_gqa_8_1x64, KvStorage::f16, 8, 1, 64, true);
ATTENTION(prompt, tiles_f16_gqa_4_1x128, KvStorage::f16, 4, 1, 128, true);

}  // namespace
}  // namespace ridge
