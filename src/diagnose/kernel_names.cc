#include "diagnose/kernel_names.h"

#include <algorithm>
#include <initializer_list>
#include <iterator>

namespace ridge {
namespace {

// Lower-case substrings, any of which decides; `*` stands for any characters between two of them.
struct KernelNameRule {
  KernelFamily family;
  std::initializer_list<std::string_view> patterns;
};

// The order matters: a fused all-reduce with a norm is a collective, a CUTLASS attention contains
// "cutlass", reshape_and_cache_flash contains "flash", a sampler's top-k contains "topk".
const KernelNameRule kKernelNameRules[] = {
    {KernelFamily::collective,
     {"nccl", "rccl", "cross_device_reduce", "all_reduce", "allreduce", "all_gather", "allgather",
      "reduce_scatter", "reducescatter", "lamport", "multimem", "userbuffers", "nvshmem", "deep_ep",
      "dispatch*combine", "all2all", "alltoall", "all_to_all"}},
    {KernelFamily::sampling,
     {"sampling", "topk_topp", "topktopp", "toppmask", "topprenorm", "topkrenorm", "topkmask",
      "apply_penalt", "min_p"}},
    {KernelFamily::experts, {"fused_moe",    "moe_gemm",
                             "moegemm",      "groupproblemshape",
                             "group_gemm",   "grouped_gemm",
                             "groupgemm",    "groupedgemm",
                             "m_grouped",    "bmm_*e2m1",
                             "bmm_*e4m3",    "bmm_*bfloat16",
                             "matmul_ogs",   "finalize_matmul",
                             "finalize_moe", "finalizemoe",
                             "marlin_moe",   "fmoe",
                             "moe_ck",       "mul_mat_id",
                             "expert*gemm",  "gemm*expert"}},
    {KernelFamily::routing,
     {"topk", "top_k", "moe_align", "routing", "permute", "sum_bitmatrix", "scatter*expert",
      "count_and_sort", "moe_sort", "moesort", "expert", "moe_sum", "moe_reduce"}},
    {KernelFamily::kv_write,
     {"reshape_and_cache", "store_kvcache", "store_kv_cache", "store_cache", "set_kv_buffer",
      "concat_and_cache", "copy_blocks", "appendpagedkv", "append_paged_kv", "set_mla_kv"}},
    {KernelFamily::attention,
     {"flash",
      "fmha",
      "paged_attention",
      "pagedattention",
      "batchprefill",
      "batchdecode",
      "singleprefill",
      "singledecode",
      "unified_attention",
      "masked_multihead",
      "_mla",
      "mla_",
      "::mla",
      "mla<",
      "xqa",
      "kernel_mha",
      "mha_",
      "_mha",
      "sdpa",
      "mem_eff",
      "memeff",
      "reduce_segments",
      "merge_state",
      "mergestate",
      "merge_attn",
      "splitkv",
      "attn_fwd",
      "_attn_",
      "attention",
      "triton_tem_fused_flex",
      "_fwd_grouped_kernel_stage",
      "_fwd_kernel_stage"}},
    // Mixers of state-space and linear-attention layers, which stand in attention's place.
    {KernelFamily::attention,
     {"selective_scan", "chunk_scan", "chunk_state", "chunk_fwd", "state_passing", "delta_rule",
      "fused_recurrent", "causal_conv1d", "mamba", "ssm_scan", "ssm_conv", "wkv"}},
    {KernelFamily::gemm,
     {"gemm",         "gemv",     "nvjet",      "cublas",        "cutlass", "xmma",   "cijk_",
      "wgmma",        "marlin",   "machete",    "scaled_mm",     "mul_mat", "matmul", "triton_tem",
      "splitkreduce", "wvsplitk", "dot_kernel", "reduce_1block", "f16f16",  "hmma"}},
    {KernelFamily::norm,
     {"rms_norm", "rmsnorm", "layer_norm", "layernorm", "_norm_", "normkernel", "rowwisemoments",
      "mean*rsqrt", "add_rms", "add2d_rms"}},
    {KernelFamily::rope,
     {"rotary", "_rope", "rope_", "rope<", "ropekernel", "::rope", "mrope", "rope_neox"}},
    // PyTorch's own are one unfused pass each, like its other elementwise kernels.
    {KernelFamily::elementwise, {"elementwise_kernel*silu", "elementwise_kernel*gelu", "upsample"}},
    {KernelFamily::activation, {"act_and_mul", "silu", "gelu", "swiglu", "swish", "glu_kernel"}},
    {KernelFamily::quantize, {"quant", "cvt_", "scaled_fp8", "scaled_fp4"}},
    {KernelFamily::sampling,
     {"sampl", "argmax", "softmax", "sort", "multinomial", "topp", "top_p", "cumsum", "radix",
      "penalt", "exponential", "log_softmax", "ballot"}},
    {KernelFamily::embedding, {"indexselect", "index_select", "gather", "embedding", "get_rows"}},
    {KernelFamily::copy, {"copybuffer", "fillbuffer", "[cuda mem", "memcpy", "memset"}},
    {KernelFamily::elementwise,
     {"elementwise", "vectorized", "catarray",    "copy",        "fill",        "reduce_kernel",
      "reduce_row",  "scan",       "triton_poi_", "triton_red_", "triton_per_", "compare",
      "arange",      "where",      "indexkernel", "index_put",   "k_bin_bcast", "scale_f32",
      "concat",      "transpose",  "unrolled"}},
};

bool matches_pattern(std::string_view text, std::string_view pattern) {
  for (;;) {
    const size_t star = pattern.find('*');
    const std::string_view part = pattern.substr(0, star);
    const size_t at = text.find(part);
    if (at == text.npos) return false;
    if (star == pattern.npos) return true;
    text.remove_prefix(at + part.size());
    pattern.remove_prefix(star + 1);
  }
}

std::string lowered_kernel_name(std::string_view name) {
  std::string lower(name);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? char(c + 32) : c; });
  // The library's name: its norms, samplers and activations are no attention.
  constexpr std::string_view library = "flashinfer";
  for (size_t at = 0; (at = lower.find(library, at)) != lower.npos;)
    lower.erase(at, library.size());
  return lower;
}

// The end of the bracketed text that begins at `open`; the text's length where it does not end.
size_t past_bracket(std::string_view text, size_t open) {
  int depth = 0;
  for (size_t i = open; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '<' || c == '(' || c == '{' || c == '[') ++depth;
    // "->" closes nothing.
    if ((c == '>' && text[i - 1] != '-') || c == ')' || c == '}' || c == ']') --depth;
    if (depth <= 0) return i + 1;
  }
  return text.size();
}

// A name that says nothing, or CUTLASS's: the template argument is the kernel.
bool is_wrapper(std::string_view base) {
  const size_t colons = base.rfind("::");
  const std::string_view last = colons == base.npos ? base : base.substr(colons + 2);
  const bool generic =
      last == "kernel" || last == "Kernel" || last == "Kernel2" || last == "device_kernel";
  return base == "ck_tile::kentry" ||
         (generic && (colons == base.npos || base.substr(0, 7) == "cutlass"));
}

// The first template argument that names a thing: neither a number nor a scalar type.
std::string_view telling_argument(std::string_view arguments) {
  while (!arguments.empty()) {
    size_t end = 0;
    while (end < arguments.size() && arguments[end] != ',' && arguments[end] != '<' &&
           arguments[end] != '>' && arguments[end] != '(')
      ++end;
    std::string_view argument = arguments.substr(0, end);
    while (!argument.empty() && argument.front() == ' ') argument.remove_prefix(1);
    while (!argument.empty() && argument.back() == ' ') argument.remove_suffix(1);
    if (argument.size() >= 8 && argument.substr(0, 5) != "__nv_" &&
        argument.substr(0, 8) != "unsigned" && argument.find("float") == argument.npos)
      return argument;
    if (end < arguments.size() && (arguments[end] == '<' || arguments[end] == '('))
      end = past_bracket(arguments, end);
    if (end < arguments.size() && arguments[end] == '>') break;
    arguments.remove_prefix(std::min(arguments.size(), end + 1));
  }
  return {};
}

// The identifier at `at` of an Itanium-mangled name ("7ck_tile"), and the place after it.
std::string_view mangled_identifier(std::string_view name, size_t& at) {
  size_t length = 0, digits = at;
  while (digits < name.size() && name[digits] >= '0' && name[digits] <= '9' && length < name.size())
    length = 10 * length + size_t(name[digits++] - '0');
  if (digits == at || length == 0 || length > name.size() - digits) return {};
  at = digits + length;
  return name.substr(digits, length);
}

// "_ZN5aiter4normIfEEvPf" -> "aiter::norm". The names suffice, and the C++ library's demangler does
// not know the 16-bit types that AMD's kernels have as arguments. Empty: not mangled.
std::string demangled_name(std::string_view name) {
  if (name.substr(0, 2) != "_Z") return {};
  size_t at = name.substr(2, 1) == "N" ? 3 : 2;
  std::string path;
  for (std::string_view part; !(part = mangled_identifier(name, at)).empty();) {
    if (part.substr(0, 8) == "_GLOBAL_") continue;  // an unnamed namespace
    if (!path.empty()) path += "::";
    path += part;
  }
  if (!is_wrapper(path)) return path;
  for (; at < name.size(); ++at) {
    const std::string_view argument = mangled_identifier(name, at);
    if (argument.size() >= 8 && argument.substr(0, 2) != "__") return std::string(argument);
  }
  return path;
}

// Without return type, template arguments and parameters.
std::string undecorated_name(std::string_view name) {
  constexpr size_t kLongest = 1000;
  std::string base;
  std::string_view arguments;  // of the last template in the name
  for (size_t i = 0; i < name.size() && base.size() < kLongest;) {
    const char c = name[i];
    if (c == '<' || c == '{') {
      const size_t end = past_bracket(name, i);
      arguments = name.substr(i + 1, end - i - 1);
      i = end;
      if (arguments == "unnamed>" && name.substr(i, 2) == "::") i += 2;  // an unnamed namespace
    } else if (c == '(') {
      // "(anonymous namespace)::f(int)": the first bracket is a part of the name.
      i = past_bracket(name, i);
      if (name.substr(i, 2) != "::") break;
      i += 2;
    } else {
      base += c;
      ++i;
    }
  }
  while (!base.empty() && base.back() == ' ') base.pop_back();
  const size_t space = base.rfind(' ');
  if (space != base.npos) base.erase(0, space + 1);
  if (is_wrapper(base)) {
    const std::string_view telling = telling_argument(arguments);
    if (!telling.empty()) base = telling;
  }
  return base;
}

}  // namespace

KernelFamily kernel_family(std::string_view name) {
  const std::string lower = lowered_kernel_name(name);
  for (const KernelNameRule& rule : kKernelNameRules)
    for (std::string_view pattern : rule.patterns)
      if (matches_pattern(lower, pattern)) return rule.family;
  return KernelFamily::other;
}

bool is_torch_topk(std::string_view name) {
  return name.find("sbtopk") != name.npos || name.find("mbtopk") != name.npos;
}

std::string short_kernel_name(std::string_view name) {
  constexpr size_t kLongest = 80;
  std::string base = demangled_name(name);
  // Brackets mark what may be left out; "[CUDA memcpy HtoD]" and "Memset (Device)" stay.
  const bool sentence = name.substr(0, 1) == "[" || name.substr(0, 3) == "Mem";
  if (base.empty()) base = sentence ? std::string(name) : undecorated_name(name);
  if (base.empty()) base = name;
  if (base.size() > kLongest) {
    size_t end = kLongest - 3;
    while (end > 0 && (base[end] & 0xC0) == 0x80) --end;  // not inside a character
    base = base.substr(0, end) + "...";
  }
  return base;
}

const char* kernel_family_name(KernelFamily family) {
  constexpr const char* names[] = {
      "collectives", "experts",  "routing",  "KV write",  "attention",   "GEMM", "norm", "RoPE",
      "activation",  "quantize", "sampling", "embedding", "elementwise", "copy", "other"};
  static_assert(std::size(names) == kKernelFamilies);
  return names[static_cast<size_t>(family)];
}

const char* gap_cause_name(GapCause cause) {
  constexpr const char* names[] = {"launch", "synchronize", "host", "outside"};
  static_assert(std::size(names) == kGapCauses);
  return names[static_cast<size_t>(cause)];
}

}  // namespace ridge
