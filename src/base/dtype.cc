#include "base/dtype.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <optional>
#include <vector>

#include "base/error.h"
#include "base/text.h"

namespace ridge {
namespace {

struct DTypeInfo {
  std::string_view name;
  double bits;
};

// In the order of DType.
constexpr std::array<DTypeInfo, kDTypeCount> kDTypes = {{{"fp64", 64},
                                                         {"fp32", 32},
                                                         {"tf32", 32},
                                                         {"bf16", 16},
                                                         {"fp16", 16},
                                                         {"fp8", 8},
                                                         {"int8", 8},
                                                         {"fp4", 4},
                                                         {"int4", 4}}};

struct FormatInfo {
  std::string_view name;
  DType dtype;
  double bits;
};

// GGUF rates are bytes per block over weights per block, as ggml lays its blocks out: q4_0 is
// 32 weights in 16 bytes plus an fp16 scale, q4_k is 256 weights in 144 bytes.
// The codes of nf4 and iq4 index a table, and no hardware multiplies them: int4 stands for that,
// so that nobody credits them with fp4 tensor cores.
// llama.cpp's M mixes store the value and down projections of half of the layers in q6_k: that is
// kMixShare of the layers' weights in Llama 3 8B.
constexpr double kMixShare = 0.144;
constexpr FormatInfo kFormats[] = {
    {"fp32", DType::fp32, 32},
    {"bf16", DType::bf16, 16},
    {"fp16", DType::fp16, 16},
    {"fp8", DType::fp8, 8},
    {"fp8-block", DType::fp8, 8 + 32.0 / (128 * 128)},
    {"int8", DType::int8, 8},
    {"int4", DType::int4, 4 + 16.0 / 128 + 4.0 / 128},
    {"nf4", DType::int4, 4 + 32.0 / 64},
    {"mxfp4", DType::fp4, 4 + 8.0 / 32},
    {"nvfp4", DType::fp4, 4 + 8.0 / 16},
    {"q8_0", DType::int8, 34 * 8.0 / 32},
    {"q6_k", DType::int8, 210 * 8.0 / 256},
    {"q5_0", DType::int8, 22 * 8.0 / 32},
    {"q5_1", DType::int8, 24 * 8.0 / 32},
    {"q5_k", DType::int8, 176 * 8.0 / 256},
    {"q4_0", DType::int4, 18 * 8.0 / 32},
    {"q4_1", DType::int4, 20 * 8.0 / 32},
    {"q4_k", DType::int4, 144 * 8.0 / 256},
    {"q3_k", DType::int4, 110 * 8.0 / 256},
    {"q2_k", DType::int4, 84 * 8.0 / 256},
    {"q4_k_m", DType::int4, 4.5 + kMixShare*(6.5625 - 4.5)},
    {"q5_k_m", DType::int8, 5.5 + kMixShare*(6.5625 - 5.5)},
    {"iq4_nl", DType::int4, 18 * 8.0 / 32},
    {"iq4_xs", DType::int4, 136 * 8.0 / 256},
};

struct Alias {
  std::string_view alias, name;
};

// GGUF, PyTorch and vLLM spellings.
constexpr Alias kAliases[] = {{"f32", "fp32"},       {"f16", "fp16"},     {"float32", "fp32"},
                              {"float16", "fp16"},   {"half", "fp16"},    {"bfloat16", "bf16"},
                              {"fp8_e4m3", "fp8"},   {"fp8_e5m2", "fp8"}, {"float8_e4m3fn", "fp8"},
                              {"float8_e5m2", "fp8"}};

// Checkpoints named after their method, and the format that such files usually hold: AWQ and GPTQ
// store 4 bits in groups of 128; "fp4" is the format of Blackwell's tensor cores.
constexpr Alias kFormatAliases[] = {{"awq", "int4"}, {"gptq", "int4"}, {"fp4", "nvfp4"}};

// Beyond these a group is no longer what any kernel packs, and the figure is likelier a typo.
constexpr int kMinGroup = 8, kMaxGroup = 4096;

std::string canonical(std::string_view name) {
  std::string lower(name);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  for (const Alias& alias : kAliases) {
    if (lower == alias.alias) return std::string(alias.name);
  }
  return lower;
}

// All valid names, those nearest to what was typed first.
std::string choices(std::string_view typed, const std::vector<std::string>& names) {
  std::vector<std::string> ordered = nearest_names(typed, names);
  for (const std::string& name : names) {
    if (std::find(ordered.begin(), ordered.end(), name) == ordered.end()) ordered.push_back(name);
  }
  return fmt::format("{}", fmt::join(ordered, ", "));
}

std::optional<Format> grouped_int4(const std::string& name) {
  constexpr std::string_view kPrefix = "int4-g";
  if (!name.starts_with(kPrefix)) return std::nullopt;
  int group = 0;
  const char* end = name.data() + name.size();
  const auto [rest, status] = std::from_chars(name.data() + kPrefix.size(), end, group);
  if (status != std::errc() || rest != end || group < kMinGroup || group > kMaxGroup) {
    throw Error("number format '{}': write int4-gN with a group size N from {} to {}", name,
                kMinGroup, kMaxGroup);
  }
  return Format{DType::int4, 4 + 16.0 / group + 4.0 / group, name};
}

}  // namespace

std::string_view dtype_name(DType dtype) { return kDTypes.at(static_cast<size_t>(dtype)).name; }

double dtype_bits(DType dtype) { return kDTypes.at(static_cast<size_t>(dtype)).bits; }

DType dtype_from_name(std::string_view name) {
  const std::string wanted = canonical(name);
  std::vector<std::string> names;
  for (int i = 0; i < kDTypeCount; ++i) {
    names.emplace_back(kDTypes[static_cast<size_t>(i)].name);
    if (names.back() == wanted) return static_cast<DType>(i);
  }
  throw Error("unknown number type '{}': use one of {}", name, choices(name, names));
}

Format format_from_name(std::string_view name) {
  std::string wanted = canonical(name);
  for (const Alias& alias : kFormatAliases) {
    if (wanted == alias.alias) wanted = alias.name;
  }
  if (auto grouped = grouped_int4(wanted)) return *grouped;
  std::vector<std::string> names;
  for (const FormatInfo& format : kFormats) {
    if (format.name == wanted) return {format.dtype, format.bits, wanted};
    names.emplace_back(format.name);
    if (format.name == "int4") names.emplace_back("int4-gN");
  }
  throw Error("unknown number format '{}': use one of {}", name, choices(name, names));
}

}  // namespace ridge
