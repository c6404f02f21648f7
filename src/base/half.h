// 16-bit floating point as bits: IEEE half precision (f16) and bfloat16 (bf16).
#pragma once

#include <cstdint>

namespace ridge {

float f16_to_f32(uint16_t bits);
uint16_t f32_to_f16(float value);  // nearest even; overflow gives infinity
inline float bf16_to_f32(uint16_t bits) {
  const uint32_t wide = uint32_t{bits} << 16;
  float value;
  __builtin_memcpy(&value, &wide, sizeof(value));
  return value;
}
uint16_t f32_to_bf16(float value);  // nearest even; NaN stays NaN

}  // namespace ridge
