// Number formats: what arithmetic runs in, and what tensors are stored in.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace ridge {

enum class DType : uint8_t { fp64, fp32, tf32, bf16, fp16, fp8, int8, fp4, int4, kCount };
inline constexpr int kDTypeCount = static_cast<int>(DType::kCount);

std::string_view dtype_name(DType dtype);
DType dtype_from_name(std::string_view name);  // throws Error with the valid names
double dtype_bits(DType dtype);                // 8 for fp8; tf32 is stored as 32

// How a tensor is stored. `bits` counts everything a weight costs, scales and zero points too:
// int4 in groups of 128 with an fp16 scale and a 4-bit zero point is 4 + 16/128 + 4/128.
struct Format {
  DType dtype = DType::bf16;  // the element; what tensor cores may run on
  double bits = 16;           // stored bits per element, overheads included
  std::string name = "bf16";  // as written by a user or a file: "int4-g128", "mxfp4", "q4_k"

  double bytes() const { return bits / 8; }
  bool operator==(const Format& other) const { return name == other.name && bits == other.bits; }
};

// Understands fp32, bf16, fp16, fp8, fp8-block (128x128 fp32 scales), int8, int4[-gN] (default
// group 128, fp16 scale + 4-bit zero), nf4 (group 64, fp32 absmax), mxfp4 (32, 8-bit scale),
// nvfp4 = fp4 (16, 8-bit scale), awq and gptq = int4, and GGUF names (q8_0, q4_k_m ...), or Error.
Format format_from_name(std::string_view name);

}  // namespace ridge
