// Memory-bound operators one by one and in one pass, and the engine's MLP with its activation and
// residual inside the GEMMs and as passes of their own.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/mapped_buffer.h"
#include "base/random.h"
#include "base/units.h"
#include "cost/elementwise.h"
#include "engine/cpu/elementwise.h"
#include "engine/cpu/matmul.h"
#include "lab/catalogue.h"
#include "lab/cuda/on_cuda.h"
#include "lab/lab.h"
#include "lab/lab_kernels.h"

namespace ridge {
namespace {

// Runs body(first, count) on every thread over its share of an array.
template <typename Body>
void over_floats(ThreadTeam& team, size_t count, const Body& body) {
  const size_t steps = count / lab_kernels::kLabStep, threads = size_t(team.size());
  team.run([&](int index) {
    const size_t first = steps * size_t(index) / threads,
                 last = steps * size_t(index + 1) / threads;
    body(first * lab_kernels::kLabStep, (last - first) * lab_kernels::kLabStep);
  });
}

struct ChainResult {
  LabSeries apart{"operators one by one", {}}, fused{"operators in one pass", {}};
  bool equal = true;
};

// k operators x/2 + 1 over one array, in place: 8 bytes an element for each pass.
ChainResult time_chains(Lab& lab, std::span<const int> lengths) {
  const size_t floats = lab.quick() ? size_t{1} << 20 : size_t{1} << 27;
  const MappedBuffer memory(floats * 4);
  if (!memory) throw Error("no memory for {}", pretty_bytes(double(floats) * 4));
  float* const x = memory.as<float>();
  const auto pass = [&](int times) {
    over_floats(lab.team(), floats, [&](size_t first, size_t count) {
      lab_kernels::apply_chain(x + first, x + first, count, times);
    });
  };
  const auto restart = [&] { std::fill_n(x, floats, 3.0f); };
  const auto ms = [](double seconds) { return 1e3 * seconds; };
  ChainResult result;
  for (const int k : lengths) {
    lab.step(fmt::format("{} elementwise operators", k));
    const double bytes = 8.0 * double(floats), flops = 2.0 * double(floats);
    const LabBand one = loop_seconds(lab, LoopStores::in_place, bytes, flops);
    const LabBand all = loop_seconds(lab, LoopStores::in_place, bytes, k * flops);
    const LabBand apart{1e3 * k * one.low, 1e3 * k * one.expected, 1e3 * k * one.high};
    const LabBand fused{1e3 * all.low, 1e3 * all.expected, 1e3 * all.high};
    const auto by_one = [&] {
      for (int i = 0; i < k; ++i) pass(1);
    };
    restart();
    by_one();
    const float end = x[floats / 2 + 5];
    restart();
    pass(k);
    result.equal = result.equal && x[floats / 2 + 5] == end;
    result.apart.points.push_back(lab.measure(k, apart, by_one, ms));
    result.fused.points.push_back(lab.measure(
        k, fused, [&] { pass(k); }, ms));
  }
  return result;
}

struct BlockResult {
  LabSeries apart{"norm, product, activation, residual, one by one", {}};
  LabSeries fused{"norm, product, activation, residual in one pass", {}};
  bool equal = true;

  double gain() const { return apart.points.back().measured / fused.points.back().measured; }
};

constexpr size_t kBlockWidth = 4096;  // floats of a row: 16 KiB, in the L1

// x += silu(norm(x) y): four operators that differ, one of which needs its whole row first.
//   one by one  h = norm(x): 8 bytes an element; h = h y: 12; h = silu(h): 8; x = x + h: 12
//   in one pass x and y read, x written: 12
BlockResult time_block(Lab& lab) {
  const size_t floats = lab.quick() ? size_t{1} << 18 : size_t{1} << 25;
  const MappedBuffer memory(3 * floats * 4);
  if (!memory) throw Error("no memory for {}", pretty_bytes(12 * double(floats)));
  float *const x = memory.as<float>(), *const y = x + floats, *const h = y + floats;
  const auto rows = [&](const auto& body) {
    const size_t count = floats / kBlockWidth, threads = size_t(lab.team().size());
    lab.team().run([&](int index) {
      const size_t first = count * size_t(index) / threads;
      const size_t last = count * size_t(index + 1) / threads;
      body(first * kBlockWidth, (last - first) * kBlockWidth);
    });
  };
  const auto reset = [&] {
    rows([&](size_t at, size_t count) {
      for (size_t i = at; i < at + count; ++i) {
        x[i] = float(i % 13) - 6;
        y[i] = 0.25f * float(i % 7);
      }
    });
  };
  const auto apart = [&] {
    rows([&](size_t at, size_t count) {
      lab_kernels::norm_rows(h + at, x + at, count, kBlockWidth);
    });
    rows([&](size_t at, size_t count) { lab_kernels::multiply(h + at, y + at, count); });
    rows([&](size_t at, size_t count) { lab_kernels::silu(h + at, count); });
    rows([&](size_t at, size_t count) { lab_kernels::add(x + at, x + at, h + at, count); });
  };
  const auto fused = [&] {
    rows([&](size_t at, size_t count) {
      lab_kernels::norm_multiply_silu_add(x + at, y + at, count, kBlockWidth);
    });
  };
  lab.step("norm, product, activation and residual");
  BlockResult result;
  reset();
  apart();
  const std::vector<float> expected(x, x + kBlockWidth);
  reset();
  fused();
  result.equal = std::equal(expected.begin(), expected.end(), x);
  const double n = double(floats);
  // What the activation, and all of them, cost beyond memory: read on one row, which stays in the
  // L1. An exponential and a division are tens of instructions.
  alignas(64) static float row[kBlockWidth], other[kBlockWidth];
  std::fill_n(row, kBlockWidth, 0.5f);
  std::fill_n(other, kBlockWidth, 0.5f);
  const double rows_of_thread = n / kBlockWidth / lab.team().size();
  const double silu_s =
      rows_of_thread * lab.time([&] { lab_kernels::silu(row, kBlockWidth); }, 0.02).seconds;
  const double all_s =
      rows_of_thread *
      lab.time([&] { lab_kernels::norm_multiply_silu_add(row, other, kBlockWidth, kBlockWidth); },
               0.02)
          .seconds;
  // An update that reads a second array: the update, and plain reads.
  const LabBand more = loop_seconds(lab, LoopStores::none, 4 * n, n);
  const LabBand update = loop_seconds(lab, LoopStores::in_place, 8 * n, n);
  const LabBand passes = loop_seconds(lab, LoopStores::one_input, 8 * n, 3 * n) + update + more +
                         loop_seconds(lab, LoopStores::in_place, 8 * n, n, silu_s) + update + more;
  const LabBand at_once = loop_seconds(lab, LoopStores::in_place, 8 * n, n, all_s) + more;
  const auto in_ms = [](const LabBand& b) {
    return LabBand{1e3 * b.low, 1e3 * b.expected, 1e3 * b.high};
  };
  const auto ms = [](double seconds) { return 1e3 * seconds; };
  result.apart.points.push_back(lab.measure(4, in_ms(passes), apart, ms));
  result.fused.points.push_back(lab.measure(4, in_ms(at_once), fused, ms));
  return result;
}

// x += down (silu(gate h) * (up h)), h = norm(x): the MLP of a layer, f32.
class LabMlp {
 public:
  LabMlp(ThreadTeam& team, int hidden, int inner, int tokens)
      : team_(team),
        hidden_(hidden),
        inner_(inner),
        tokens_(tokens),
        weights_(size_t(hidden) * size_t(inner) * 3 * 4),
        activations_(size_t(tokens) * size_t(2 * hidden + 2 * inner) * 4),
        norm_(size_t(hidden), 1.0f),
        wide_(tokens, hidden),
        narrow_(tokens, inner) {
    if (!weights_ || !activations_) throw Error("no memory for the MLP");
    const size_t count = size_t(hidden) * size_t(inner) * 3;
    const float size = 1 / std::sqrt(float(hidden));
    over_floats(team, count, [&](size_t first, size_t some) {
      float* w = weights_.as<float>() + first;
      for (size_t i = 0; i < some; ++i) {
        w[i] = size * float(2 * unit_interval(splitmix64(first + i)) - 1);
      }
    });
    gate_ = matrix(0, inner, hidden);
    up_ = matrix(1, inner, hidden);
    down_ = matrix(2, hidden, inner);
    reset();
  }

  void reset() {
    for (size_t i = 0; i < size_t(tokens_) * size_t(hidden_); ++i) {
      x()[i] = float(2 * unit_interval(splitmix64(~i)) - 1);
    }
  }

  void fused() {
    prepare();
    cpu::Gemm first = gemm(gate_, wide_, g(), inner_);
    first.up = &up_;
    cpu::multiply(team_, {&first, 1});
    set(narrow_, g(), inner_, down_);
    cpu::Gemm second = gemm(down_, narrow_, x(), hidden_);
    second.accumulate = true;
    cpu::multiply(team_, {&second, 1});
  }

  void apart() {
    prepare();
    const cpu::Gemm first[] = {gemm(gate_, wide_, g(), inner_), gemm(up_, wide_, u(), inner_)};
    cpu::multiply(team_, first);
    over_floats(team_, size_t(tokens_) * size_t(inner_), [&](size_t at, size_t count) {
      lab_kernels::silu_times(g() + at, u() + at, count);
    });
    set(narrow_, g(), inner_, down_);
    const cpu::Gemm second = gemm(down_, narrow_, h(), hidden_);
    cpu::multiply(team_, {&second, 1});
    over_floats(team_, size_t(tokens_) * size_t(hidden_), [&](size_t at, size_t count) {
      lab_kernels::add(x() + at, x() + at, h() + at, count);
    });
  }

  std::vector<float> output() { return {x(), x() + size_t(tokens_) * size_t(hidden_)}; }

 private:
  float* x() const { return activations_.as<float>(); }
  float* h() const { return x() + size_t(tokens_) * size_t(hidden_); }
  float* g() const { return h() + size_t(tokens_) * size_t(hidden_); }
  float* u() const { return g() + size_t(tokens_) * size_t(inner_); }

  cpu::PackedMatrix matrix(size_t which, int rows, int columns) {
    const float* data = weights_.as<float>() + which * size_t(rows) * size_t(columns);
    return {Matrix{Storage::f32, rows, columns, reinterpret_cast<const std::byte*>(data),
                   int64_t{columns} * 4},
            team_};
  }
  void set(cpu::Input& input, const float* from, int columns, const cpu::PackedMatrix& reader) {
    const cpu::InputKind kind[] = {reader.input_kind(tokens_)};
    input.set(team_, from, columns, tokens_, columns, kind);
  }
  void prepare() {
    cpu::rms_norm(team_, x(), hidden_, tokens_, hidden_, norm_.data(), 1e-5f, h(), hidden_);
    set(wide_, h(), hidden_, gate_);
  }
  static cpu::Gemm gemm(const cpu::PackedMatrix& w, const cpu::Input& input, float* y, int stride) {
    cpu::Gemm gemm;
    gemm.w = &w;
    gemm.x = &input;
    gemm.y = y;
    gemm.stride = stride;
    return gemm;
  }

  ThreadTeam& team_;
  int hidden_, inner_, tokens_;
  MappedBuffer weights_, activations_;
  std::vector<float> norm_;
  cpu::Input wide_, narrow_;
  cpu::PackedMatrix gate_, up_, down_;
};

// Fused: two GEMMs and the norm. Apart: the activation and the residual as passes on top, and the
// GEMMs write what those passes read.
LabBand mlp_seconds(Lab& lab, double hidden, double inner, double tokens, bool fused) {
  const double set = 12 * hidden * inner + 4 * tokens * (2 * hidden + 2 * inner);
  const auto gemm = [&](double k, double n, double kept) {
    Op op;
    op.name = "mlp";
    op.math = DType::fp32;
    const MatmulShape shape{tokens, k, n, 32, 4, 4, kept, DType::fp32, CpuFormat::fp32};
    op.work = matmul_work(shape);
    op.shape = shape;
    return expected_seconds(lab, op, set);
  };
  const auto pass = [&](const Work& work) {
    Op op;
    op.name = "pass";
    op.kind = OpKind::elementwise;
    op.work = work;
    return expected_seconds(lab, op, set);
  };
  LabBand band = pass(norm_work(tokens, hidden, 4, false)) +
                 gemm(hidden, 2 * inner, fused ? 0.5 : 1) + gemm(inner, hidden, 1);
  if (!fused) {
    band = band + pass(activation_work(tokens, inner, 4, true)) +
           pass(residual_work(tokens, hidden, 4));
  }
  band.high = 1.5 * band.expected;  // the stack's shares were taken on another CPU
  return {1e3 * band.low, 1e3 * band.expected, 1e3 * band.high};
}

struct MlpResult {
  LabSeries apart{"MLP, passes apart (x: tokens)", {}}, fused{"MLP, fused (x: tokens)", {}};
  bool equal = true;
};

MlpResult time_mlp(Lab& lab, std::span<const int> token_counts) {
  const int hidden = lab.quick() ? 256 : 1024, inner = lab.quick() ? 512 : 4096;
  const auto ms = [](double seconds) { return 1e3 * seconds; };
  MlpResult result;
  for (const int tokens : token_counts) {
    lab.step(fmt::format("MLP of {} tokens", tokens));
    LabMlp mlp(lab.team(), hidden, inner, tokens);
    mlp.fused();
    const std::vector<float> a = mlp.output();
    mlp.reset();
    mlp.apart();
    const std::vector<float> b = mlp.output();
    // The GEMMs are bit for bit the same; the activation is rounded a few times more or less, and
    // the sums over `inner` products carry that on: sqrt(inner) roundings of values of about 1.
    const double bound = 16 * std::sqrt(double(inner)) * 0x1p-24;
    for (size_t i = 0; i < a.size(); ++i) {
      result.equal = result.equal && std::abs(double(a[i]) - double(b[i])) <= bound;
    }
    result.apart.points.push_back(lab.measure(
        tokens, mlp_seconds(lab, hidden, inner, tokens, false), [&] { mlp.apart(); }, ms));
    result.fused.points.push_back(lab.measure(
        tokens, mlp_seconds(lab, hidden, inner, tokens, true), [&] { mlp.fused(); }, ms));
  }
  return result;
}

LabResult run_fusion(Lab& lab) {
  const std::vector<int> lengths =
      lab.quick() ? std::vector<int>{1, 4} : std::vector<int>{1, 2, 4, 8};
  const std::vector<int> tokens =
      lab.quick() ? std::vector<int>{1, 8} : std::vector<int>{1, 16, 128};
  const ChainResult chains = time_chains(lab, lengths);
  const BlockResult block = time_block(lab);
  const MlpResult mlp = time_mlp(lab, tokens);
  LabResult result;
  result.x = {"operators, or tokens", true, 0, 0};
  result.y = {"ms", true, 0, 0};
  result.series = {chains.apart, chains.fused, block.apart, block.fused, mlp.apart, mlp.fused};
  result.checks.push_back({"elementwise operators: bit for bit equal", chains.equal});
  result.checks.push_back(
      {"norm, product, activation and residual: bit for bit equal", block.equal});
  result.checks.push_back({"MLP: equal to rounding, 16 sqrt(inner) 2^-24", mlp.equal});
  const auto gain = [](const LabSeries& apart, const LabSeries& fused, size_t i) {
    return apart.points[i].measured / fused.points[i].measured;
  };
  const size_t last = lengths.size() - 1, most = tokens.size() - 1;
  const double chain = gain(chains.apart, chains.fused, last);
  decide(result, chain > 0.6 * lengths[last],
         {&chains.apart.points[last], &chains.fused.points[last]});
  result.sentence = fmt::format(
      "{} elementwise operators in one pass run {:.1f}x faster than one by one; norm, product, "
      "activation and residual {:.1f}x (their bytes: 3.3x). An MLP gains {:.2f}x at {} token and "
      "{:.2f}x at {} tokens from its activation and residual in the GEMMs: there the weights, or "
      "the FLOPs, are the time.",
      lengths[last], chain, block.gain(), gain(mlp.apart, mlp.fused, 0), tokens[0],
      gain(mlp.apart, mlp.fused, most), tokens[most]);
  result.notes.push_back(fmt::format(
      "The operators work in place on {}: 8 bytes an element for each pass. Norm, elementwise "
      "product, activation and residual of rows of 4096: 40 bytes an element one by one, 12 in one "
      "pass. The engine fuses the activation and the residual into its GEMMs; its norm is a pass "
      "in "
      "both variants.",
      lab.quick() ? "4 MB, which lie in a cache" : "537 MB"));
  return result;
}

}  // namespace

const Experiment kFusionExperiment{
    "fusion",
    LabTopic::kernels,
    "What does fusing operators save?",
    "Fusing k memory-bound operators saves up to k times their traffic.",
    "kernel fusion (Ivanov et al., 2021: Data Movement Is All You Need)",
    "ridge predict -m llama-3-8b -M h200 --no-fusion",
    run_fusion,
    fusion_on_cuda,
    8,
    {60e6, 700e6, 500e6, 1.9e9}};

}  // namespace ridge
