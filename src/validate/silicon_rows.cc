#include "validate/silicon_rows.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <memory>

#include "base/error.h"
#include "base/random.h"

namespace ridge {
namespace {

uint64_t site_of(std::initializer_list<double> values) {
  uint64_t hash = 0;
  for (double value : values) hash = splitmix64(hash ^ static_cast<uint64_t>(value));
  return hash;
}

// How a benchmark's dtype name runs: matrix units, stored weight bits, activations.
struct Numeric {
  DType math = DType::bf16;
  double weight_bits = 16, in_bytes = 2;
  bool quantize = false;  // activations converted inside the timed region
};
bool numeric_of(std::string_view name, Numeric& out) {
  if (name == "bfloat16" || name == "float16" || name == "half")
    out = {};
  else if (name == "fp8")
    out = {DType::fp8, 8, 1, true};
  else if (name == "fp8_block")
    out = {DType::fp8, 8 + 32.0 / (128 * 128), 1, true};
  else if (name == "nvfp4")
    out = {DType::fp4, 4.5, 0.5625, true};
  else if (name == "sq")
    out = {DType::int8, 8, 1, false};
  else if (name == "int8_wo")
    out = {DType::bf16, 8, 2, false};
  else if (name == "int4_wo")
    out = {DType::bf16, 4.25, 2, false};
  else if (name == "w4a16_mxfp4")
    out = {DType::bf16, 4.25, 2, false};
  else if (name == "w4a8_mxfp4_mxfp8")
    out = {DType::fp8, 4.25, 1, true};
  else
    return false;
  return true;
}

// Columns of one table, by role; a missing required column is an error of the whole file.
class Columns {
 public:
  Columns(const CsvReader& csv, const std::string& path) : csv_(csv), path_(path) {}
  int need(std::string_view name) const {
    const int at = csv_.column(name);
    if (at < 0) throw Error("{}: row 1: no column '{}'", path_, name);
    return at;
  }
  int maybe(std::string_view name) const { return csv_.column(name); }

 private:
  const CsvReader& csv_;
  const std::string& path_;
};

double number(const CsvReader& csv, int column) {
  const std::string_view text = csv.field(static_cast<size_t>(column));
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !(value >= 0 && value < 1e15))
    throw BadRow{fmt::format("{} is '{}', not a number of at least 0",
                             csv.header()[static_cast<size_t>(column)], text)};
  return value;
}
double positive(const CsvReader& csv, int column) {
  const double value = number(csv, column);
  if (value <= 0)
    throw BadRow{fmt::format("{} must be above 0", csv.header()[static_cast<size_t>(column)])};
  return value;
}
Numeric numeric(const CsvReader& csv, int column) {
  Numeric out;
  const std::string_view name = csv.field(static_cast<size_t>(column));
  if (!numeric_of(name, out)) throw BadRow{fmt::format("unknown dtype '{}'", name)};
  return out;
}

RowReader gemm_rows(const Columns& columns, const SiliconFile& file, const GpuTraits& gpu) {
  const int dtype = columns.need("gemm_dtype"), m = columns.need("m"), n = columns.need("n"),
            k = columns.need("k");
  return [=, &file, &gpu](const CsvReader& csv, Measurement& row) {
    GemmCall call;
    const Numeric type = numeric(csv, dtype);
    call.m = positive(csv, m);
    call.n = positive(csv, n);
    call.k = positive(csv, k);
    call.math = type.math;
    call.weight_bits = type.weight_bits;
    call.in_bytes = type.in_bytes;
    call.quantize = type.quantize;
    row.dtype = csv.field(static_cast<size_t>(dtype));
    // How many copies of the weights the collectors cycled through (the data's README, section 2).
    const double weights = call.n * call.k * call.weight_bits / 8;
    double copies = 6;
    if (file.framework == "trtllm") copies = std::min(5.0, std::ceil(gpu.l2_total / weights));
    if (file.framework == "vllm" && (row.dtype == "nvfp4" || row.dtype == "fp8_block")) copies = 1;
    call.reuse_bytes = copies * weights;
    row.call = call;
    row.site = site_of({call.n, call.k});
  };
}

RowReader attention_rows(const Columns& columns, bool decode) {
  const int dtype = columns.need("attn_dtype"), kv = columns.need("kv_cache_dtype"),
            batch = columns.need("batch_size"), length = columns.need(decode ? "step" : "isl"),
            heads = columns.need("num_heads"), kv_heads = columns.need("num_key_value_heads"),
            dim = columns.need("head_dim"), window = columns.maybe("window_size");
  return [=](const CsvReader& csv, Measurement& row) {
    AttentionCall call;
    call.batch = positive(csv, batch);
    call.length = decode ? number(csv, length) + 1 : positive(csv, length);
    call.heads = positive(csv, heads);
    call.kv_heads = number(csv, kv_heads);
    if (call.kv_heads <= 0 || call.kv_heads > call.heads) call.kv_heads = call.heads;
    call.head_dim = call.v_head_dim = positive(csv, dim);
    call.window =
        window < 0 || csv.field(static_cast<size_t>(window)).empty() ? 0 : number(csv, window);
    call.math = numeric(csv, dtype).math;
    call.kv_bytes = numeric(csv, kv).in_bytes;
    row.call = call;
    row.dtype = fmt::format("{}/{}", csv.field(static_cast<size_t>(dtype)),
                            csv.field(static_cast<size_t>(kv)));
    row.site = site_of({call.heads, call.kv_heads, call.head_dim});
  };
}

RowReader mla_rows(const Columns& columns, bool decode) {
  const int dtype = columns.need("mla_dtype"), kv = columns.need("kv_cache_dtype"),
            batch = columns.need("batch_size"), length = columns.need(decode ? "step" : "isl"),
            heads = columns.need("num_heads");
  return [=](const CsvReader& csv, Measurement& row) {
    AttentionCall call;
    call.batch = positive(csv, batch);
    call.length = decode ? number(csv, length) + 1 : positive(csv, length);
    call.heads = positive(csv, heads);
    call.math = numeric(csv, dtype).math;
    call.kv_bytes = numeric(csv, kv).in_bytes;
    row.call = decode ? mla_decode_call(call) : mla_prefill_call(call);
    row.dtype = fmt::format("{}/{}", csv.field(static_cast<size_t>(dtype)),
                            csv.field(static_cast<size_t>(kv)));
    row.site = site_of({call.heads, call.batch});
  };
}

// Models in the tables whose experts have no gate (squared ReLU): Nemotron-H families.
bool is_ungated_model(double hidden, double inter, double top_k) {
  return (inter == 5120 && top_k == 22) || (hidden == 2688 && inter == 1856 && top_k == 6);
}

struct LoadKey {
  double tokens, top_k, experts, ranks, exponent;
  auto operator<=>(const LoadKey&) const = default;
};

RowReader moe_rows(const Columns& columns) {
  const int dtype = columns.need("moe_dtype"), tokens = columns.need("num_tokens"),
            hidden = columns.need("hidden_size"), inter = columns.need("inter_size"),
            top_k = columns.need("topk"), experts = columns.need("num_experts"),
            tp = columns.need("moe_tp_size"), ep = columns.need("moe_ep_size"),
            law = columns.need("distribution"), kernel = columns.maybe("kernel_source");
  auto loads = std::make_shared<std::map<LoadKey, ExpertLoad>>();
  return [=](const CsvReader& csv, Measurement& row) {
    const Numeric type = numeric(csv, dtype);
    MoeCall call;
    call.tokens = positive(csv, tokens);
    call.hidden = positive(csv, hidden);
    const double whole = positive(csv, inter);
    call.inter = std::max(1.0, std::floor(whole / positive(csv, tp)));
    call.top_k = positive(csv, top_k);
    call.experts = positive(csv, experts);
    call.ranks = positive(csv, ep);
    if (call.experts > 65536 || call.ranks > call.experts || call.top_k > call.experts)
      throw BadRow{"more ranks or choices than experts"};
    call.math = type.math;
    call.weight_bits = type.weight_bits;
    call.in_bytes = type.in_bytes;
    call.gated = !(kernel >= 0 && csv.field(static_cast<size_t>(kernel)).find("nongated") !=
                                      std::string_view::npos) &&
                 !is_ungated_model(call.hidden, whole, call.top_k);
    call.reuse_bytes = 0;
    const std::string_view name = csv.field(static_cast<size_t>(law));
    double exponent = 0;
    if (name.starts_with("power_law_")) {
      const std::string_view text = name.substr(10);
      if (std::from_chars(text.data(), text.data() + text.size(), exponent).ec != std::errc() ||
          !(exponent > 0 && exponent < 10))
        throw BadRow{fmt::format("unknown distribution '{}'", name)};
      if (exponent == 1) exponent = 1.0001;
    } else if (name != "balanced") {
      throw BadRow{fmt::format("unknown distribution '{}'", name)};
    }
    const LoadKey key{call.tokens, call.top_k, call.experts, call.ranks, exponent};
    const auto [at, fresh] = loads->try_emplace(key);
    if (fresh)
      at->second = exponent > 0
                       ? power_law_load(call.tokens, call.top_k, call.experts, call.ranks, exponent)
                       : balanced_load(call.tokens, call.top_k, call.experts, call.ranks);
    call.load = at->second;
    call.skewed = exponent > 0;
    row.call = call;
    row.dtype = csv.field(static_cast<size_t>(dtype));
    row.site = site_of({call.hidden, whole, call.top_k, call.experts});
  };
}

RowReader collective_rows(const Columns& columns, bool nccl) {
  const int op = nccl ? columns.need("op_name") : -1,
            dtype = columns.need(nccl ? "nccl_dtype" : "allreduce_dtype"),
            ranks = columns.need("num_gpus"), size = columns.need("message_size");
  return [=](const CsvReader& csv, Measurement& row) {
    CollectiveCall call;
    const std::string_view type = csv.field(static_cast<size_t>(dtype));
    const double element = type == "int8" || type == "fp8"        ? 1
                           : type == "float" || type == "float32" ? 4
                                                                  : 2;
    call.bytes = positive(csv, size) * element;
    call.ranks = positive(csv, ranks);
    if (call.ranks < 2) throw BadRow{"num_gpus must be at least 2"};
    if (nccl) {
      const std::string_view name = csv.field(static_cast<size_t>(op));
      if (name == "all_reduce")
        call.kind = Collective::all_reduce;
      else if (name == "all_gather")
        call.kind = Collective::all_gather;
      else if (name == "reduce_scatter")
        call.kind = Collective::reduce_scatter;
      else if (name == "alltoall")
        call.kind = Collective::all_to_all;
      else
        throw BadRow{fmt::format("unknown collective '{}'", name)};
      row.kernel = name;
    }
    row.call = call;
    row.dtype = type;
    row.site = site_of({call.bytes, 7});
  };
}

}  // namespace

double positive_field(const CsvReader& csv, int column) { return positive(csv, column); }

RowReader row_reader(const CsvReader& csv, const SiliconFile& file, const GpuTraits& gpu) {
  const Columns columns(csv, file.path);
  switch (file.table) {
    case KernelKind::gemm:
      return gemm_rows(columns, file, gpu);
    case KernelKind::context_attention:
      return attention_rows(columns, false);
    case KernelKind::generation_attention:
      return attention_rows(columns, true);
    case KernelKind::context_mla:
      return mla_rows(columns, false);
    case KernelKind::generation_mla:
      return mla_rows(columns, true);
    case KernelKind::moe:
      return moe_rows(columns);
    case KernelKind::nccl:
      return collective_rows(columns, true);
    default:
      return collective_rows(columns, false);
  }
}

}  // namespace ridge
