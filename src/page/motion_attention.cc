#include <algorithm>
#include <cmath>
#include <vector>

#include "base/error.h"
#include "base/random.h"
#include "base/thread_team.h"
#include "cost/attention.h"
#include "engine/cpu/attention.h"
#include "page/api_options.h"
#include "page/motion_api.h"
#include "predict/predict.h"
#include "step/rank.h"

namespace ridge {
namespace {

constexpr int kRowDim = 16;
constexpr float kRowScale = 0.25f;  // 1 / sqrt(kRowDim)
// Queries up to this size spread the scores, so that the running maximum moves.
constexpr double kQuerySize = 4;

// One query and the keys and values that it attends to, uniform at random: |k|, |v| < 1.
struct SmallRow {
  SmallRow(int keys, uint64_t seed) : n(keys), q(kRowDim) {
    SplitMix64 random{seed};
    const auto draw = [&] { return float(2 * unit_interval(random.next()) - 1); };
    for (float& x : q) x = float(kQuerySize) * draw();
    for (std::vector<float>* matrix : {&k, &v}) {
      matrix->resize(size_t(n) * kRowDim);
      for (float& x : *matrix) x = draw();
    }
    for (int key = 0; key < n; ++key) {
      float dot = 0, size = 0;
      for (size_t i = 0; i < kRowDim; ++i) {
        dot += q[i] * k[size_t(key) * kRowDim + i];
        size += std::abs(q[i] * k[size_t(key) * kRowDim + i]);
      }
      scores.push_back(kRowScale * dot);
      largest = std::max(largest, double(kRowScale * size));
    }
  }
  const float* value(int key) const { return v.data() + size_t(key) * kRowDim; }

  int n;
  std::vector<float> q, k, v;  // [dim], [key][dim], [key][dim]
  std::vector<float> scores;
  double largest = 0;  // of scale * sum |q||k| over the keys
};

// The whole row: maximum, exponentials, their sum, the weighted values.
std::vector<float> plain_row(const SmallRow& row, std::vector<float>& weights) {
  const float max = *std::max_element(row.scores.begin(), row.scores.end());
  float sum = 0;
  for (const float s : row.scores) {
    weights.push_back(std::exp(s - max));
    sum += weights.back();
  }
  std::vector<float> out(kRowDim, 0.0f);
  for (int key = 0; key < row.n; ++key) {
    for (size_t i = 0; i < kRowDim; ++i) out[i] += weights[size_t(key)] * row.value(key)[i];
  }
  for (float& x : out) x /= sum;
  for (float& w : weights) w /= sum;
  return out;
}

// Online softmax, block by block: what is carried is a maximum, a sum and the unnormalised output.
std::vector<float> tiled_row(const SmallRow& row, int block, Json& blocks) {
  float max = -INFINITY, sum = 0;
  std::vector<float> out(kRowDim, 0.0f), shown(kRowDim);
  for (int first = 0; first < row.n; first += block) {
    const int end = std::min(first + block, row.n);
    const auto scores = row.scores.begin();
    const float before = max;
    max = std::max(max, *std::max_element(scores + first, scores + end));
    const float rescale = std::exp(before - max);
    sum *= rescale;
    for (float& x : out) x *= rescale;
    for (int key = first; key < end; ++key) {
      const float weight = std::exp(row.scores[size_t(key)] - max);
      sum += weight;
      for (size_t i = 0; i < kRowDim; ++i) out[i] += weight * row.value(key)[i];
    }
    for (size_t i = 0; i < kRowDim; ++i) shown[i] = out[i] / sum;
    blocks.push_back({{"first", first},
                      {"keys", end - first},
                      {"m", max},
                      {"l", sum},
                      {"rescale", rescale},
                      {"output", shown}});
  }
  return shown;
}

// The same row by the engine's kernel over a paged cache.
std::vector<float> engine_row(const SmallRow& row) {
  const size_t groups = size_t(row.n + cpu::kKeyGroup - 1) / cpu::kKeyGroup;
  std::vector<float> k(groups * cpu::kKeyGroup * kRowDim), v(k.size());
  for (size_t t = 0; t < size_t(row.n); ++t) {
    for (size_t i = 0; i < kRowDim; ++i) {
      const size_t group = t / cpu::kKeyGroup * kRowDim + i;
      k[group * cpu::kKeyGroup + t % cpu::kKeyGroup] = row.k[t * kRowDim + i];
      v[t * kRowDim + i] = row.value(int(t))[i];
    }
  }
  cpu::LayerCache cache;
  cache.storage = KvStorage::f32;
  cache.kv_heads = 1;
  cache.head_dim = kRowDim;
  cache.page_tokens = cpu::kKeyGroup;
  cache.k = reinterpret_cast<std::byte*>(k.data());
  cache.v = reinterpret_cast<std::byte*>(v.data());
  std::vector<int> pages(groups);
  for (size_t i = 0; i < groups; ++i) pages[i] = int(i);
  const cpu::AttentionSlice last{0, 1, row.n - 1, pages};
  cpu::AttentionRules rules;
  rules.heads = 1;
  rules.scale = kRowScale;
  std::vector<float> out(kRowDim);
  ThreadTeam alone(1);
  cpu::attention(alone, rules, cache, {&last, 1}, row.q.data(), kRowDim, out.data(), kRowDim);
  return out;
}

// How far two forms may lie apart, with u = 2^-24 and |v| < 1. A score is wrong by (d + 1) u S, S
// its sum of sizes. A weight is wrong by two scores, the rounding of their difference (at most 2 S)
// and the exponential's 2 u. The sums of weights and of weighted values add n u each. Tiles rescale
// both sums: 3 u for each block, and 2 S u for all their exponents together. Products of errors are
// left out: 1 % covers them.
double rounding_bound(const SmallRow& row, int blocks) {
  const double u = 0x1p-24, size = row.largest;
  const double weight = 2 * (kRowDim + 1) * u * size + 2 * size * u + 2 * u;
  const double plain = 2 * weight + (2 * row.n + 3) * u;
  const double tiled = plain + 2 * (3 * blocks + 2 * size) * u;
  return 1.01 * (plain + tiled);
}

double largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
  double most = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    most = std::max(most, std::abs(double(a[i]) - double(b[i])));
  }
  return most;
}

Json row_json(const ApiOptions& given) {
  const int n = whole_option(given, "n", 64, 8, 256);
  const int block = whole_option(given, "block", std::min(16, n), 1, n);
  const int seed = whole_option(given, "seed", 1, 0, 1 << 30);
  const SmallRow row(n, uint64_t(seed));
  Json blocks = Json::array();
  std::vector<float> weights;
  const std::vector<float> plain = plain_row(row, weights), tiled = tiled_row(row, block, blocks);
  const std::vector<float> engine = engine_row(row);
  const double bound = rounding_bound(row, int(blocks.size()));
  return {{"n", n},
          {"block", block},
          {"seed", seed},
          {"head_dim", kRowDim},
          {"scores", row.scores},
          {"weights", weights},
          {"blocks", blocks},
          {"plain", plain},
          {"tiled", tiled},
          {"engine", engine},
          {"difference", largest_difference(plain, tiled)},
          {"engine_difference", largest_difference(plain, engine)},
          {"bound", bound}};
}

// One form's total over the layers: bytes by what causes them, in the order of the passes.
struct FormSum {
  double flops = 0, chip = 0, launches = 0;
  std::vector<std::pair<const char*, double>> moves;

  void add(double layers, const Work& work) {
    flops += layers * (work.flops + work.vector_flops);
    chip += layers * work.chip_bytes;
    launches += layers * work.launches;
  }
  void move(const char* name, double bytes) {
    if (bytes <= 0) return;
    const auto known = std::find_if(moves.begin(), moves.end(),
                                    [&](const auto& m) { return std::string(m.first) == name; });
    if (known == moves.end()) {
      moves.emplace_back(name, bytes);
    } else {
      known->second += bytes;
    }
  }
  Json json(double expected_s) const {
    Json list = Json::array();
    double bytes = 0;
    for (const auto& [name, moved] : moves) {
      list.push_back({{"name", name}, {"bytes", moved}});
      bytes += moved;
    }
    return {{"flops", flops},       {"bytes", bytes},           {"chip_bytes", chip},
            {"launches", launches}, {"expected_s", expected_s}, {"moves", list}};
  }
};

void add_layers(const RankGroup& group, double prompt, FormSum& plain, FormSum& tiled) {
  const AttentionShape& s = group.attention;
  const AttentionSpan span{1, prompt, 0};
  const double layers = group.count;
  const Work stored = naive_attention_work(s, span), streamed = flash_attention_work(s, span);
  plain.add(layers, stored);
  tiled.add(layers, streamed);
  const double q = layers * prompt * s.heads * s.head_dim * s.act_bytes;
  const double o = layers * prompt * s.heads * s.v_head_dim * s.act_bytes;
  const double scores = layers * s.heads * prompt * prompt * s.act_bytes;
  const double keys = s.head_dim / (s.head_dim + s.v_head_dim);  // share of the cache
  plain.move("read Q", q);
  plain.move("read K", layers * stored.kv_bytes * keys);
  plain.move("expand K and V", layers * stored.act_bytes - q - o - 4 * scores);
  for (const char* pass : {"write S", "read S", "write P", "read P"}) plain.move(pass, scores);
  plain.move("read V", layers * stored.kv_bytes * (1 - keys));
  plain.move("write O", o);
  tiled.move("read Q", q);
  tiled.move("read K", layers * streamed.kv_bytes * keys);
  tiled.move("read V", layers * streamed.kv_bytes * (1 - keys));
  tiled.move("write O", o);
}

double prefill_attention_s(Request request, bool flash) {
  request.plan.flash = flash;
  double seconds = 0;
  for (const OpEstimate& op : predict(request).ops) {
    if (op.prefill && op.kind == OpKind::attention_prefill) seconds += op.expected_s;
  }
  return seconds;
}

}  // namespace

Json attention_trace(const ApiOptions& given) {
  Request request = request_of(given, 2);
  request.plan.chunk = request.plan.prefix_hit = 0;
  request.clients.reset();
  const Rank rank = make_rank(*request.model, request.plan);
  FormSum plain, tiled;
  double layers = 0;
  for (const RankGroup& group : rank.groups) {
    const bool attends = group.kind == MixerKind::attention || group.kind == MixerKind::mla;
    if (!attends || group.attention.index_topk > 0) continue;
    add_layers(group, request.prompt, plain, tiled);
    layers += group.count;
  }
  if (layers == 0) {
    throw OptionError("model", request.model->name + " has no layer of dense attention");
  }
  return {{"model", request.model->name},
          {"machine", request.system.name()},
          {"prompt", request.prompt},
          {"layers", layers},
          {"plain", plain.json(prefill_attention_s(request, false))},
          {"tiled", tiled.json(prefill_attention_s(request, true))},
          {"row", row_json(given)}};
}

}  // namespace ridge
