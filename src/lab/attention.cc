// Attention with its scores stored in memory against the engine's tiles over pages: the same FLOPs,
// other bytes.
#include "engine/cpu/attention.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <deque>

#include "base/error.h"
#include "base/mapped_buffer.h"
#include "base/random.h"
#include "base/units.h"
#include "engine/cpu/matmul.h"
#include "lab/catalogue.h"
#include "lab/cuda/on_cuda.h"
#include "lab/lab.h"
#include "lab/lab_kernels.h"

namespace ridge {
namespace {

constexpr int kAttnHeads = 4, kAttnDim = 64, kAttnWidth = kAttnHeads * kAttnDim;
constexpr int kAttnRows = 128;  // queries of a block: keys past its last query are skipped
constexpr int kAttnPage = 64;
constexpr float kAttnScale = 0.125f;  // 1 / sqrt(kAttnDim)

// (query, key) pairs of one head that the blocks of the materialised form compute.
double blocked_pairs(int n) {
  double pairs = 0;
  for (int row = 0; row < n; row += kAttnRows) pairs += double(kAttnRows) * (row + kAttnRows);
  return pairs;
}

// q, k, v and out are [token][head][dim]; uniform in (-1, 1).
struct AttentionData {
  explicit AttentionData(int tokens) : n(tokens) {
    SplitMix64 random{uint64_t(tokens)};
    for (std::vector<float>* x : {&q, &k, &v}) {
      x->resize(size_t(n) * kAttnWidth);
      for (float& value : *x) value = float(2 * unit_interval(random.next()) - 1);
    }
  }
  int n;
  std::vector<float> q, k, v;
};

// S = Q K^T for all heads is written, softmax reads it and writes P in place, P V reads it: three
// passes, each finished before the next begins. Blocks of queries skip the keys they cannot see.
class MaterialisedAttention {
 public:
  MaterialisedAttention(ThreadTeam& team, const AttentionData& data)
      : team_(team), data_(data), scores_(size_t(data.n) * size_t(data.n) * kAttnHeads * 4) {
    if (!scores_) throw Error("no memory for the scores");
    const auto n = size_t(data.n);
    keys_.resize(n * kAttnWidth);
    values_.resize(n * kAttnWidth);
    for (size_t h = 0; h < kAttnHeads; ++h) {
      queries_.emplace_back(kAttnRows, kAttnDim);
      weights_.emplace_back(kAttnRows, data.n);
      for (size_t t = 0; t < n; ++t) {
        for (size_t i = 0; i < kAttnDim; ++i) {
          const size_t from = t * kAttnWidth + h * kAttnDim + i;
          keys_[(h * n + t) * kAttnDim + i] = data.k[from];
          values_[(h * kAttnDim + i) * n + t] = data.v[from];  // transposed: rows are outputs
        }
      }
    }
  }

  void run(float* out) {
    for (int row = 0; row < data_.n; row += kAttnRows) score(row);
    normalise();
    for (int row = 0; row < data_.n; row += kAttnRows) mix(row, out);
  }

 private:
  float* scores(int head, int row) {
    return scores_.as<float>() + (size_t(head) * size_t(data_.n) + size_t(row)) * size_t(data_.n);
  }

  void score(int row) {
    std::vector<cpu::PackedMatrix> k;
    for (int h = 0; h < kAttnHeads; ++h) {
      const float* head = keys_.data() + size_t(h) * size_t(data_.n) * kAttnDim;
      k.emplace_back(Matrix{Storage::f32, row + kAttnRows, kAttnDim,
                            reinterpret_cast<const std::byte*>(head), kAttnDim * 4},
                     team_);
    }
    std::vector<cpu::Gemm> gemms(kAttnHeads);
    for (int h = 0; h < kAttnHeads; ++h) {
      const cpu::InputKind kind[] = {k[size_t(h)].input_kind(kAttnRows)};
      queries_[size_t(h)].set(team_, data_.q.data() + size_t(row) * kAttnWidth + h * kAttnDim,
                              kAttnWidth, kAttnRows, kAttnDim, kind);
      cpu::Gemm& gemm = gemms[size_t(h)];
      gemm.w = &k[size_t(h)];
      gemm.x = &queries_[size_t(h)];
      gemm.y = scores(h, row);
      gemm.stride = data_.n;
    }
    cpu::multiply(team_, gemms);
  }

  void normalise() {
    const int rows = kAttnHeads * data_.n, threads = team_.size();
    team_.run([&](int index) {
      // Rows of a triangle differ in length: threads take turns.
      for (int r = index; r < rows; r += threads) {
        const int token = r % data_.n, visible = token + 1;
        float* row = scores(r / data_.n, token);
        lab_kernels::softmax_row(row, size_t(visible), kAttnScale);
        std::fill(row + visible, row + token / kAttnRows * kAttnRows + kAttnRows, 0.0f);
      }
    });
  }

  void mix(int row, float* out) {
    const int visible = row + kAttnRows;
    std::vector<cpu::PackedMatrix> v;
    for (int h = 0; h < kAttnHeads; ++h) {
      const float* head = values_.data() + size_t(h) * size_t(data_.n) * kAttnDim;
      v.emplace_back(Matrix{Storage::f32, kAttnDim, visible,
                            reinterpret_cast<const std::byte*>(head), int64_t{data_.n} * 4},
                     team_);
    }
    std::vector<cpu::Gemm> gemms(kAttnHeads);
    for (int h = 0; h < kAttnHeads; ++h) {
      const cpu::InputKind kind[] = {v[size_t(h)].input_kind(kAttnRows)};
      weights_[size_t(h)].set(team_, scores(h, row), data_.n, kAttnRows, visible, kind);
      cpu::Gemm& gemm = gemms[size_t(h)];
      gemm.w = &v[size_t(h)];
      gemm.x = &weights_[size_t(h)];
      gemm.y = out + size_t(row) * kAttnWidth + h * kAttnDim;
      gemm.stride = kAttnWidth;
    }
    cpu::multiply(team_, gemms);
  }

  ThreadTeam& team_;
  const AttentionData& data_;
  MappedBuffer scores_;
  std::vector<float> keys_, values_;          // [head][token][dim], [head][dim][token]
  std::deque<cpu::Input> queries_, weights_;  // they cannot be moved
};

// The engine's attention over an f32 cache whose pages are filled here.
class TiledAttention {
 public:
  TiledAttention(ThreadTeam& team, const AttentionData& data)
      : team_(team), data_(data), k_(data.k.size()), v_(data.v.size()) {
    cache_.storage = KvStorage::f32;
    cache_.kv_heads = kAttnHeads;
    cache_.head_dim = kAttnDim;
    cache_.page_tokens = kAttnPage;
    cache_.k = reinterpret_cast<std::byte*>(k_.data());
    cache_.v = reinterpret_cast<std::byte*>(v_.data());
    for (int page = 0; page < data.n / kAttnPage; ++page) pages_.push_back(page);
    for (size_t t = 0; t < size_t(data.n); ++t) {
      const size_t page = t / kAttnPage, token = t % kAttnPage;
      for (size_t h = 0; h < kAttnHeads; ++h) {
        const size_t start = (page * kAttnHeads + h) * kAttnPage * kAttnDim;
        for (size_t i = 0; i < kAttnDim; ++i) {
          const size_t from = t * kAttnWidth + h * kAttnDim + i;
          v_[start + token * kAttnDim + i] = data.v[from];
          const size_t group = token / cpu::kKeyGroup * kAttnDim + i;
          k_[start + group * cpu::kKeyGroup + token % cpu::kKeyGroup] = data.k[from];
        }
      }
    }
  }

  void run(float* out) {
    const cpu::AttentionSlice slice{0, data_.n, 0, pages_};
    cpu::AttentionRules rules;
    rules.heads = kAttnHeads;
    rules.scale = kAttnScale;
    cpu::attention(team_, rules, cache_, {&slice, 1}, data_.q.data(), kAttnWidth, out, kAttnWidth);
  }

 private:
  ThreadTeam& team_;
  const AttentionData& data_;
  std::vector<float> k_, v_;
  std::vector<int> pages_;
  cpu::LayerCache cache_;
};

// Both forms against exact arithmetic, u = 2^-24: a score's error is at most (d + 1) u scale
// sum |q||k|, with |q|, |k|, |v| < 1; a weight's relative error is twice that and that of the
// exponential, the two sums over n add n u each, and a difference of two forms doubles everything.
double attention_bound(int n) {
  const double u = 0x1p-24;
  const double score = (kAttnDim + 1) * u * double(kAttnScale) * kAttnDim;
  return 2 * (4 * score + 4 * u + 2 * n * u);
}

// Attention's products sum over few elements, so they reach attention's share of the peak, not a
// large GEMM's.
Op attention_part(double flops, double vector_flops, double bytes) {
  Op op;
  op.name = "attention";
  op.kind = OpKind::attention_prefill;
  op.math = DType::fp32;
  op.work.flops = op.work.padded_flops = flops;
  op.work.vector_flops = vector_flops;
  op.work.act_bytes = bytes;
  return op;
}

struct AttentionCost {
  Work materialised, tiled;
  LabBand materialised_s, tiled_s;
};

// Time 50 % above the expected one belongs to the band: attention's figures are those of the
// nearest instruction set that the stack has.
AttentionCost attention_cost(Lab& lab, int n) {
  AttentionShape shape;
  shape.heads = shape.kv_heads = kAttnHeads;
  shape.head_dim = shape.v_head_dim = kAttnDim;
  shape.kv_bytes = shape.act_bytes = 4;
  AttentionCost cost;
  Op tiled = attention_part(0, 0, 0);
  tiled.work = cost.tiled = flash_attention_work(shape, {1, double(n), 0});
  tiled.shape = BatchedAttention{shape, {1, double(n), 0}};
  cost.tiled_s = expected_seconds(lab, tiled, cost.tiled.device_bytes());
  const double scores = blocked_pairs(n) * kAttnHeads, bytes = 4 * scores;
  const double operands = 4.0 * n * kAttnWidth;
  const double product = 2 * scores * kAttnDim, set = bytes + 4 * operands;
  const double softmax = cost.tiled.vector_flops;
  const Op parts[] = {attention_part(product, 0, 2 * operands + bytes),
                      attention_part(0, softmax, 2 * bytes),
                      attention_part(product, 0, 2 * operands + bytes)};
  for (const Op& part : parts) {
    cost.materialised_s = cost.materialised_s + expected_seconds(lab, part, set);
    cost.materialised.flops += part.work.flops;
    cost.materialised.act_bytes += part.work.act_bytes;
  }
  cost.tiled_s.high = 1.5 * cost.tiled_s.expected;
  cost.materialised_s.high = 1.5 * cost.materialised_s.expected;
  return cost;
}

LabResult run_attention(Lab& lab) {
  LabResult result;
  result.x = {"tokens", true, 0, 0};
  result.y = {"ms", true, 0, 0};
  LabSeries materialised{"materialised", {}}, tiled{"tiled", {}};
  const auto ms = [](double seconds) { return 1e3 * seconds; };
  const auto in_ms = [](const LabBand& b) {
    return LabBand{1e3 * b.low, 1e3 * b.expected, 1e3 * b.high};
  };
  bool within = true;
  double difference = 0, bound = 0;
  AttentionCost cost;
  int longest = 0;
  for (const int n :
       lab.quick() ? std::vector<int>{256, 512} : std::vector<int>{256, 512, 1024, 2048, 4096}) {
    lab.step(fmt::format("{} tokens", n));
    longest = n;
    const AttentionData data(n);
    MaterialisedAttention plain(lab.team(), data);
    TiledAttention tiles(lab.team(), data);
    std::vector<float> a(size_t(n) * kAttnWidth), b(a.size());
    cost = attention_cost(lab, n);
    materialised.points.push_back(lab.measure(
        n, in_ms(cost.materialised_s), [&] { plain.run(a.data()); }, ms));
    tiled.points.push_back(lab.measure(
        n, in_ms(cost.tiled_s), [&] { tiles.run(b.data()); }, ms));
    bound = attention_bound(n);
    for (size_t i = 0; i < a.size(); ++i) {
      const double apart = std::abs(double(a[i]) - double(b[i]));
      within = within && apart <= bound;  // not a number is never within
      difference = std::max(difference, apart);
    }
  }
  const double gain = materialised.points.back().measured / tiled.points.back().measured;
  result.series = {materialised, tiled};
  result.checks.push_back(
      {fmt::format("equal to rounding: largest difference {:.1e}, bound {:.1e} at {} tokens",
                   difference, bound, longest),
       within});
  decide(result, gain >= 2, {&materialised.points.back(), &tiled.points.back()});
  const double bytes = cost.materialised.device_bytes() / cost.tiled.device_bytes();
  result.sentence = fmt::format(
      "At {} tokens the tiled form takes {} and the materialised one {}: {:.1f}x (predicted "
      "{:.1f}x, "
      "the claim says 2 to 4x), at {:.0f}x fewer bytes and a largest difference of {:.1e}.",
      longest, pretty_time(tiled.points.back().measured / 1e3),
      pretty_time(materialised.points.back().measured / 1e3), gain,
      materialised.points.back().band.expected / tiled.points.back().band.expected, bytes,
      difference);
  result.notes.push_back(fmt::format(
      "{} heads of {}, fp32, causal; both skip keys that no query of a block sees. At {} tokens: "
      "scores {}, moved {} (materialised) and {} (tiled), {} and {} in products; tiling multiplies "
      "the sums of a tile of 64 keys once more, 1 FLOP for each 256.",
      kAttnHeads, kAttnDim, longest, pretty_bytes(4.0 * longest * longest * kAttnHeads),
      pretty_bytes(cost.materialised.device_bytes()), pretty_bytes(cost.tiled.device_bytes()),
      pretty_flops(cost.materialised.flops), pretty_flops(cost.tiled.flops)));
  return result;
}

}  // namespace

const Experiment kAttentionExperiment{
    "attention",
    LabTopic::kernels,
    "Why does attention not store its scores?",
    "Materialised attention writes and reads n x n scores; tiled attention never does, is exact, "
    "and is 2 to 4x faster.",
    "FlashAttention (Dao et al., 2022)",
    "ridge predict -m llama-3-8b -M h200 --prompt 8192 --no-flash",
    run_attention,
    attention_on_cuda,
    8,
    {40e6, 400e6, 1e9, 6e9}};

}  // namespace ridge
