// Products of a 1.1B Llama's shapes (hidden 2048, ffn 5632, kv 256, vocab 32000) on all cores, for
// every instruction set the CPU has: matmul/AVX2/q4_0/decode (pick with --benchmark_filter=AVX2).
//
// decode   one token through 4 layers and the head, far more bytes than the caches: GB/s, and
//          `of_read`, the share of what plain reads reach. Floor: 0.9.
// prefill  512 tokens through a layer: GFLOP/s, and `of_peak`, the share of multiply-adds (or of
//          the integer dot gemms) in registers. Floor: 0.75.
// Others use this machine too: the time of a pass is the sum of each GEMM's best, and passes
// alternate with the ceiling's. RIDGE_BENCH_THREADS=1 runs on one thread and counts its processor
// time, which holds on a busy machine as well.
#include <benchmark/benchmark.h>
#include <time.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>

#include "base/mapped_buffer.h"
#include "engine/cpu/matmul.h"
#include "engine/cpu/matmul_kernels.h"
#include "measure/cpu/kernels.h"

namespace ridge::cpu {
namespace {

constexpr int64_t kHidden = 2048, kFfn = 5632, kKv = 256, kVocab = 32000;

ThreadTeam& all_threads() {
  const char* const threads = std::getenv("RIDGE_BENCH_THREADS");
  static ThreadTeam team(threads ? std::atoi(threads) : 0);
  return team;
}

double now() {
  timespec t;
  clock_gettime(all_threads().size() == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
  return double(t.tv_sec) + 1e-9 * double(t.tv_nsec);
}

double seconds_of(const auto& work) {
  const double start = now();
  work();
  return now() - start;
}

// A matrix of equal rows: the memory is real, the numbers need not be.
struct OwnMatrix {
  std::unique_ptr<MappedBuffer> memory;
  PackedMatrix packed;
};

OwnMatrix make(Storage storage, int64_t rows, int64_t columns, ThreadTeam& team) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0, 0.02f);
  std::vector<float> values(static_cast<size_t>(columns));
  for (float& value : values) value = normal(random);
  const size_t bytes = storage_bytes(storage, columns);
  std::vector<std::byte> row(bytes);
  quantize(storage, values.data(), columns, row.data());
  OwnMatrix matrix;
  matrix.memory = std::make_unique<MappedBuffer>(bytes * static_cast<size_t>(rows));
  std::byte* const data = matrix.memory->as<std::byte>();
  for (int64_t r = 0; r < rows; ++r) std::memcpy(data + r * int64_t(bytes), row.data(), bytes);
  matrix.packed = PackedMatrix({storage, rows, columns, data, int64_t(bytes)}, team);
  if (matrix.packed.repacked_bytes() > 0) matrix.memory.reset();
  return matrix;
}

struct Layer {
  OwnMatrix q, k, v, out, gate, up, down;
};

class Net {
 public:
  Net(Storage storage, int layers, int tokens, ThreadTeam& team)
      : team_(team),
        tokens_(tokens),
        x_(size_t(tokens * kHidden), 0.5f),
        qkv_(size_t(tokens) * (kHidden + 2 * kKv)),
        inner_(size_t(tokens * kFfn)),
        input_(tokens, kHidden),
        inner_input_(tokens, kFfn) {
    std::mt19937 random(2);
    for (float& value : x_) value = std::normal_distribution<float>()(random);
    for (int i = 0; i < layers; ++i) {
      layers_.push_back({make(storage, kHidden, kHidden, team), make(storage, kKv, kHidden, team),
                         make(storage, kKv, kHidden, team), make(storage, kHidden, kHidden, team),
                         make(storage, kFfn, kHidden, team), make(storage, kFfn, kHidden, team),
                         make(storage, kHidden, kFfn, team)});
    }
    if (tokens == 1) {
      head_ = make(storage, kVocab, kHidden, team);
      logits_.resize(size_t(kVocab));
    }
    weights_ =
        double(layers) * double(2 * kHidden * kHidden + 2 * kKv * kHidden + 3 * kHidden * kFfn) +
        (tokens == 1 ? double(kVocab * kHidden) : 0);
    kind_ = layers_[0].q.packed.input_kind(tokens);
  }

  double weights() const { return weights_; }

  void pass() {
    const int64_t wide = kHidden + 2 * kKv;
    for (const Layer& l : layers_) {
      input_.set(team_, x_.data(), kHidden, tokens_, kHidden, {&kind_, 1});
      const Gemm qkv[] = {
          {.w = &l.q.packed, .x = &input_, .y = qkv_.data(), .stride = wide},
          {.w = &l.k.packed, .x = &input_, .y = qkv_.data() + kHidden, .stride = wide},
          {.w = &l.v.packed, .x = &input_, .y = qkv_.data() + kHidden + kKv, .stride = wide}};
      time(0, qkv);
      time(1, {{.w = &l.out.packed, .x = &input_, .y = qkv_.data(), .stride = wide}});
      time(2, {{.w = &l.gate.packed,
                .x = &input_,
                .y = inner_.data(),
                .stride = kFfn,
                .up = &l.up.packed}});
      inner_input_.set(team_, inner_.data(), kFfn, tokens_, kFfn, {&kind_, 1});
      time(3, {{.w = &l.down.packed, .x = &inner_input_, .y = qkv_.data(), .stride = wide}});
    }
    if (!head_.packed) return;
    time(4, {{.w = &head_.packed, .x = &input_, .y = logits_.data(), .stride = kVocab}});
  }

  // The best time of each kind of GEMM.
  double best_seconds() const {
    const double layer = best_[0] + best_[1] + best_[2] + best_[3];
    return layer * double(layers_.size()) + (head_.packed ? best_[4] : 0);
  }

 private:
  template <size_t kCount>
  void time(int kind, const Gemm (&gemms)[kCount]) {
    best_[kind] = std::min(best_[kind], seconds_of([&] { multiply(team_, gemms); }));
  }

  double best_[5] = {1e9, 1e9, 1e9, 1e9, 1e9};
  ThreadTeam& team_;
  int tokens_;
  std::vector<float> x_, qkv_, inner_, logits_;
  Input input_, inner_input_;
  std::vector<Layer> layers_;
  OwnMatrix head_;
  InputKind kind_;
  double weights_;
};

// Bytes/s of plain reads over memory far larger than the caches.
double read_rate(ThreadTeam& team) {
  constexpr size_t kFloats = size_t{16} << 20;
  static const std::unique_ptr<MappedBuffer> buffer = [] {
    auto made = std::make_unique<MappedBuffer>(kFloats * sizeof(float));
    std::fill_n(made->as<float>(), kFloats, 1.0f);
    return made;
  }();
  const size_t each = kFloats / static_cast<size_t>(team.size()) / kStep * kStep;
  const double seconds = seconds_of([&] {
    team.run([&](int index) {
      const float* const part = buffer->as<float>() + static_cast<size_t>(index) * each;
      benchmark::DoNotOptimize(kernel_sets()[0].read(part, each, 1));
    });
  });
  return double(each * sizeof(float)) * team.size() / seconds;
}

// Operations/s in registers of what the kernel multiplies with, all threads together.
double peak_rate(ThreadTeam& team, const MatmulKernels& kernels, const MatmulKernel& kernel) {
  const std::string_view isa = kernels.isa;
  const InputKind kind = kernel.input;
  const auto rate = [&](double ops, const auto& run) {
    // Tiles take a part of a millisecond to reach their clock.
    const long repeats = static_cast<long>((kernel.begin ? 2e10 : 2e9) / ops);
    return ops * double(repeats) * team.size() /
           seconds_of([&] { team.run([&](int) { benchmark::DoNotOptimize(run(repeats)); }); });
  };
  std::vector<std::string> missing;
  static const std::vector<DotKernel> dots = dot_kernels(missing);
  for (const DotKernel& dot : dots) {
    const bool wide = std::string_view(dot.isa).starts_with("AVX-512");
    if (kernel.begin) {
      if (dot.isa == std::string_view("AMX") && dot.id == std::string_view("bf16")) {
        return rate(dot.ops, dot.run);
      }
      continue;
    }
    const bool fits = (kind == InputKind::int8 && dot.id == std::string_view("int8") &&
                       isa.find('_') != isa.npos && wide == isa.starts_with("AVX3")) ||
                      (kind == InputKind::bf16 && dot.id == std::string_view("bf16") && wide);
    if (fits) return rate(dot.ops, dot.run);
  }
  for (const KernelSet& set : kernel_sets()) {
    const bool wide = set.vector_bytes == 64;
    if (wide == isa.starts_with("AVX3")) return rate(set.fma32_ops(), set.fma32);
  }
  return 0;
}

void decode(benchmark::State& state, int target, Storage storage) {
  choose_matmul_kernels(all_matmul_kernels()[size_t(target)]);
  ThreadTeam& team = all_threads();
  Net net(storage, 4, 1, team);
  const double bytes = net.weights() * storage_info(storage).bits() / 8;
  double read = 0;
  for (auto _ : state) {
    net.pass();
    read = std::max(read, read_rate(team));
  }
  const double best = bytes / net.best_seconds();
  state.counters["GB/s"] = best / 1e9;
  state.counters["read_GB/s"] = read / 1e9;
  state.counters["of_read"] = best / read;
}

void many_tokens(benchmark::State& state, int target, Storage storage, int tokens) {
  choose_matmul_kernels(all_matmul_kernels()[size_t(target)]);
  ThreadTeam& team = all_threads();
  Net net(storage, tokens < 512 ? 4 : 1, tokens, team);  // batches stream from memory
  const double ops = 2 * net.weights() * tokens;
  const MatmulKernels& kernels = matmul_kernels();
  double peak = 0;
  for (auto _ : state) {
    net.pass();
    peak = std::max(peak, peak_rate(team, kernels, kernels.of(storage, tokens)));
  }
  const double best = ops / net.best_seconds();
  state.counters["GFLOP/s"] = best / 1e9;
  state.counters["peak_GFLOP/s"] = peak / 1e9;
  state.counters["of_peak"] = best / peak;
}

const bool registered = [] {
  const auto& all = all_matmul_kernels();
  for (size_t target = 0; target < all.size(); ++target) {
    for (const Storage storage : {Storage::f32, Storage::f16, Storage::bf16, Storage::q8_0,
                                  Storage::q4_0, Storage::q5_0, Storage::q4_k, Storage::fp8}) {
      const std::string name = std::string("matmul/") + all[target].isa + "/" +
                               std::string(storage_info(storage).name) + "/";
      const int index = static_cast<int>(target);
      benchmark::RegisterBenchmark((name + "decode").c_str(), decode, index, storage)
          ->Unit(benchmark::kMillisecond)
          ->Iterations(20);
      for (const auto& [phase, tokens] :
           {std::pair{"batch16", 16}, std::pair{"batch48", 48}, std::pair{"prefill", 512}}) {
        benchmark::RegisterBenchmark((name + phase).c_str(), many_tokens, index, storage, tokens)
            ->Unit(benchmark::kMillisecond)
            ->Iterations(10);
      }
    }
  }
  return true;
}();

}  // namespace
}  // namespace ridge::cpu
