// What a CPU core can do in one clock, from what /proc/cpuinfo says about it.
#include <algorithm>
#include <charconv>
#include <sstream>

#include "machine/detect.h"

namespace ridge {
namespace {

std::string_view trim(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t\r");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r") - first + 1);
}

int to_int(std::string_view text) {
  int value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

void set(CpuRates& rates, DType dtype, double per_clock) {
  rates.per_clock[static_cast<int>(dtype)] = per_clock;
}

// fp64, fp32 and what shares their vector pipes.
void set_vector(CpuRates& rates, double fp32_per_clock) {
  set(rates, DType::fp32, fp32_per_clock);
  set(rates, DType::fp64, fp32_per_clock / 2);
}

// Zen 4 splits a 512-bit operation over two passes of its 256-bit pipes; Zen 5 (family 26) and
// the server parts of Intel have two full pipes.
bool wide_avx512(const CpuInfo& info) { return info.vendor != "AuthenticAMD" || info.family >= 26; }

CpuRates x86_rates(const CpuInfo& info) {
  CpuRates rates;
  if (info.has("avx512f")) {
    const bool wide = wide_avx512(info);
    const double fp32 = wide ? 64 : 32;
    rates.isa = "AVX-512";
    rates.note = wide ? "two 512-bit FMA pipes a core" : "two 256-bit FMA pipes a core, as Zen 4";
    set_vector(rates, fp32);
    if (info.has("avx512_bf16")) {
      set(rates, DType::bf16, 2 * fp32);
      rates.isa += ", BF16";
    }
    if (info.has("avx512_fp16")) set(rates, DType::fp16, 2 * fp32);
    if (info.has("avx512_vnni")) {
      set(rates, DType::int8, 4 * fp32);
      rates.isa += ", VNNI";
    }
  } else if (info.has("avx2") && info.has("fma")) {
    rates.isa = "AVX2";
    rates.note = "two 256-bit FMA pipes a core";
    set_vector(rates, 32);
    if (info.has("avx_vnni")) {
      set(rates, DType::int8, 128);
      rates.isa += ", VNNI";
    }
  } else if (info.has("avx")) {
    rates.isa = "AVX";
    rates.note = "one 256-bit multiply and one add a clock";
    set_vector(rates, 16);
  } else {
    rates.isa = "SSE2";
    rates.note = "one 128-bit multiply and one add a clock";
    set_vector(rates, 8);
  }
  // A tile product is 16 x 16 x 32 bf16 (or x 64 int8) multiply-adds in 16 clocks.
  if (info.has("amx_bf16")) set(rates, DType::bf16, 1024);
  if (info.has("amx_fp16")) set(rates, DType::fp16, 1024);
  if (info.has("amx_int8")) set(rates, DType::int8, 2048);
  if (info.has("amx_tile")) {
    rates.isa += ", AMX";
    rates.note += "; AMX: 1024 bf16 or 2048 int8 operations";
  }
  return rates;
}

CpuRates arm_rates(const CpuInfo& info) {
  CpuRates rates;
  rates.isa = info.has("sve") ? "SVE" : "NEON";
  rates.note = "two 128-bit FMA pipes a core, the least of current cores";
  set_vector(rates, 16);
  if (info.has("asimdhp")) set(rates, DType::fp16, 32);
  if (info.has("bf16")) {
    set(rates, DType::bf16, 64);
    rates.isa += ", BF16";
  }
  if (info.has("i8mm")) {
    set(rates, DType::int8, 128);
    rates.isa += ", I8MM";
  } else if (info.has("asimddp")) {
    set(rates, DType::int8, 64);
  }
  return rates;
}

}  // namespace

bool CpuInfo::has(std::string_view flag) const {
  return std::binary_search(flags.begin(), flags.end(), flag, std::less<>());
}

CpuInfo parse_cpuinfo(std::string_view text) {
  CpuInfo info;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos) continue;
    const std::string_view key = trim(line.substr(0, colon));
    const std::string_view value = trim(line.substr(colon + 1));
    if (key == "processor") ++info.processors;
    if (info.processors > 1) continue;  // the first one speaks for all
    if (key == "model name") info.model = value;
    if (key == "vendor_id") info.vendor = value;
    if (key == "cpu family") info.family = to_int(value);
    if (key == "model") info.model_number = to_int(value);
    if (key == "cpu MHz") {
      const double mhz = std::strtod(std::string(value).c_str(), nullptr);
      if (mhz > 1) info.mhz = mhz;
    }
    if (key == "flags" || key == "Features") {
      std::istringstream words{std::string(value)};
      for (std::string word; words >> word;) info.flags.push_back(word);
      std::sort(info.flags.begin(), info.flags.end());
    }
  }
  return info;
}

CpuRates cpu_rates(const CpuInfo& info) {
  if (info.has("asimd")) return arm_rates(info);
  if (info.has("sse2")) return x86_rates(info);
  return {};  // another architecture, or no /proc/cpuinfo: nothing is known
}

}  // namespace ridge
