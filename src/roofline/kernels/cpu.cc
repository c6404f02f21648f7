#include "roofline/kernels/cpu.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/json.h"

namespace ridge {
namespace {

// As engine/cpu/attention_rows.h and attention.cc have them.
constexpr double kKeyTile = 64, kKeySpan = 1024, kJobRows = 96, kJobsPerCore = 4;

CpuTime cpu_gemm(const MatmulShape& s, const CpuGemm& f, const CpuKernels& k,
                 const CpuKernelRates& rates) {
  const double weights = s.k * s.n;
  const double each = s.m <= k.stream_tokens
                          ? f.tile * std::ceil(s.m / k.tile_tokens) + f.token * s.m
                          : f.panel * std::ceil(s.m / k.token_block) + f.panel_token * s.m;
  const double bytes = weights * f.bits / 8;
  return {weights * each * rates.flop_s, bytes * rates.memory_s / k.memory, k.gemm_start};
}

// Sum of ceil(i / kKeyTile) over i = 1 .. keys.
double tiles_up_to(double keys) {
  const double whole = std::floor(keys / kKeyTile);
  return kKeyTile * whole * (whole + 1) / 2 + (whole + 1) * (keys - kKeyTile * whole);
}

CpuTime cpu_attention(const BatchedAttention& batched, const CpuAttention& f, const CpuKernels& k,
                      const CpuKernelRates& rates) {
  const AttentionShape& s = batched.shape;
  const AttentionSpan& span = batched.span;
  const double group = s.heads / s.kv_heads, keys = visible_keys(s, span);
  const double blocks = std::ceil(span.fresh * group / kJobRows);
  double jobs = span.count * s.kv_heads * blocks, spans = 1;
  if (jobs < kJobsPerCore * rates.cores && keys > kKeySpan) spans = std::ceil(keys / kKeySpan);
  jobs *= spans;
  // The cores take jobs of equal size: the last ones may leave some of them idle.
  const double idle = std::ceil(jobs / rates.cores) * rates.cores / jobs;
  const double pairs = attended_pairs(s, span);
  const double all = span.fresh * span.past + span.fresh * (span.fresh + 1) / 2;
  const double tiled =
      kKeyTile * (tiles_up_to(span.past + span.fresh) - tiles_up_to(span.past)) * pairs / all;
  const double width = s.head_dim + s.v_head_dim, rows = span.count * s.heads * span.fresh;
  // A block of rows passes over the keys before its last row.
  const double passes = std::max(1.0, blocks * pairs / (span.fresh * keys));
  const double elements = span.count * s.kv_heads * keys * passes * width;
  const double operations =
      f.element * elements + f.product * span.count * s.heads * pairs * width +
      f.score * span.count * s.heads * tiled + f.row * rows * s.head_dim * spans;
  const double bytes = span.count * s.kv_heads * keys * width * s.kv_bytes;
  return {operations * idle * rates.flop_s, bytes * rates.memory_s / k.attention_memory,
          k.attention_start};
}

std::array<CpuAttention, 3> read_kv_figures(const nlohmann::json& json, const std::string& where) {
  std::array<CpuAttention, 3> caches;
  constexpr const char* kBytes[] = {"4", "2", "1"};
  for (size_t i = 0; i < caches.size(); ++i) {
    const nlohmann::json part = json.value(kBytes[i], nlohmann::json::object());
    const auto set = [&](double& value, const char* key) {
      value = number_field(part, key, where, 0, 1e6).value_or(value);
    };
    set(caches[i].element, "element");
    set(caches[i].product, "product");
    set(caches[i].score, "score");
    set(caches[i].row, "row");
  }
  return caches;
}

CpuKernels read_instruction_set(const nlohmann::json& json, const std::string& where) {
  CpuKernels k;
  k.isa = string_field(json, "isa", where).value_or("");
  const auto set = [&](double& value, const char* key, double low, double high) {
    value = number_field(json, key, where, low, high).value_or(value);
  };
  set(k.memory, "memory", 0.01, 2);
  set(k.attention_memory, "attention_memory", 0.01, 2);
  set(k.tile_tokens, "tile_tokens", 1, 64);
  set(k.stream_tokens, "stream_tokens", 0, 64);
  set(k.token_block, "token_block", 1, 4096);
  set(k.gemm_start, "gemm_start", 0, 1);
  set(k.attention_start, "attention_start", 0, 1);
  set(k.other_start, "other_start", 0, 1);
  set(k.low, "low", 0.1, 1);
  set(k.high, "high", 1, 10);
  const nlohmann::json gemms = json.value("gemm", nlohmann::json::object());
  for (const auto& [name, figures] : gemms.items()) {
    const CpuFormat format = cpu_format(format_from_name(name));
    const std::string place = where + ".gemm." + name;
    if (format == CpuFormat::other) throw Error("{}: the CPU engine has no such format", place);
    const auto figure = [&, &each = figures](const char* key) {
      return number_field(each, key, place, 0, 1e4).value_or(0);
    };
    k.gemms[static_cast<size_t>(format)] = {figure("bits"), figure("tile"), figure("token"),
                                            figure("panel"), figure("panel_token")};
  }
  k.caches =
      read_kv_figures(json.value("attention", nlohmann::json::object()), where + ".attention");
  return k;
}

}  // namespace

std::vector<CpuKernels> read_cpu_kernels(const nlohmann::json& json, const std::string& where) {
  if (!json.is_array()) throw Error("{}: a list, one for each instruction set", where);
  std::vector<CpuKernels> all;
  for (const auto& each : json) {
    all.push_back(read_instruction_set(each, fmt::format("{}[{}]", where, all.size())));
  }
  return all;
}

std::optional<CpuTime> cpu_time(const Op& op, const CpuKernels& k, const CpuKernelRates& rates) {
  if (const auto* shape = std::get_if<MatmulShape>(&op.shape)) {
    const CpuGemm& figures = k.gemms[static_cast<size_t>(shape->format)];
    if (figures.bits == 0 || shape->m <= 0) return std::nullopt;
    return cpu_gemm(*shape, figures, k, rates);
  }
  if (const auto* attention = std::get_if<BatchedAttention>(&op.shape)) {
    const double bytes = attention->shape.kv_bytes;
    const size_t cache = bytes > 3 ? 0 : bytes > 1.5 ? 1 : 2;
    return cpu_attention(*attention, k.caches[cache], k, rates);
  }
  return std::nullopt;
}

}  // namespace ridge
