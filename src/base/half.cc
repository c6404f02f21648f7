#include "base/half.h"

#include <bit>

namespace ridge {

float f16_to_f32(uint16_t bits) {
  const uint32_t sign = uint32_t{bits & 0x8000u} << 16, exponent = bits >> 10 & 31,
                 mantissa = bits & 1023;
  if (exponent == 0) {  // mantissa * 2^-24, a normal float
    return std::bit_cast<float>(std::bit_cast<uint32_t>(float(mantissa) * 0x1p-24f) | sign);
  }
  const uint32_t wide = exponent == 31 ? 255 : exponent + (127 - 15);
  return std::bit_cast<float>(sign | wide << 23 | mantissa << 13);
}

uint16_t f32_to_f16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = bits >> 16 & 0x8000;
  uint32_t magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return uint16_t(sign | 0x7e00);   // NaN
  if (magnitude >= 0x477ff000) return uint16_t(sign | 0x7c00);  // 65520 and above round to infinity
  if (magnitude < 0x38800000) {
    // Below 2^-14: adding 0.5 rounds to a multiple of 2^-24, the subnormals' step.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return uint16_t(sign | (std::bit_cast<uint32_t>(shifted) - 0x3f000000));
  }
  magnitude += 0xfff + (magnitude >> 13 & 1);
  return uint16_t(sign | (magnitude - 0x38000000) >> 13);
}

uint16_t f32_to_bf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffff) > 0x7f800000) return uint16_t(bits >> 16 | 0x40);
  return uint16_t((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

}  // namespace ridge
