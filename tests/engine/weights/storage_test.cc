// Storages against their definitions: every 16-bit pattern, blocks worked out by hand, and errors
// within what the formats allow.
#include "engine/weights/storage.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "base/dtype.h"
#include "base/error.h"

namespace ridge {
namespace {

std::vector<float> unpacked(Storage storage, const std::vector<uint8_t>& bytes) {
  const StorageInfo& info = storage_info(storage);
  std::vector<float> values(bytes.size() / size_t(info.bytes) * size_t(info.block));
  dequantize(storage, reinterpret_cast<const std::byte*>(bytes.data()), int64_t(values.size()),
             values.data());
  return values;
}

std::vector<uint8_t> packed(Storage storage, const std::vector<float>& values) {
  std::vector<uint8_t> bytes(storage_bytes(storage, int64_t(values.size())));
  quantize(storage, values.data(), int64_t(values.size()),
           reinterpret_cast<std::byte*>(bytes.data()));
  return bytes;
}

std::vector<float> normal(size_t count, uint64_t seed, float mean = 0) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> distribution(mean, 0.02f);
  std::vector<float> values(count);
  for (float& value : values) value = distribution(random);
  return values;
}

std::vector<Storage> all_storages() {
  std::vector<Storage> all;
  for (int i = 0; i < kStorageCount; ++i) all.push_back(Storage(i));
  return all;
}

TEST(Storage, NamesAndBitsAreThoseOfTheFormats) {
  for (Storage storage : all_storages()) {
    const StorageInfo& info = storage_info(storage);
    EXPECT_EQ(storage_from_name(info.name), storage);
    // The predictor's fp8 counts no scales.
    const double scales = storage == Storage::fp8 ? 32.0 / 128 : 0;
    EXPECT_EQ(format_from_name(info.name).bits + scales, info.bits()) << info.name;
  }
  EXPECT_EQ(storage_from_name("f16"), Storage::f16);
  EXPECT_THROW(storage_from_name("q3_k"), Error);
  EXPECT_EQ(storage_bytes(Storage::q4_k, 512), 288u);
}

TEST(Storage, EveryHalfIsItsDefinition) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const float value = f16_to_f32(uint16_t(bits));
    const int exponent = bits >> 10 & 31, mantissa = bits & 1023;
    if (exponent == 31 && mantissa != 0) {
      EXPECT_TRUE(std::isnan(value));
      EXPECT_TRUE(std::isnan(f16_to_f32(f32_to_f16(value))));
      continue;
    }
    double expected = exponent == 31  ? std::numeric_limits<double>::infinity()
                      : exponent == 0 ? std::ldexp(mantissa, -24)
                                      : std::ldexp(1024 + mantissa, exponent - 25);
    if (bits >> 15) expected = -expected;
    ASSERT_EQ(double(value), expected) << bits;
    ASSERT_EQ(std::signbit(value), (bits >> 15) == 1) << bits;
    ASSERT_EQ(f32_to_f16(value), bits);
  }
}

// Between two neighbouring halves: the middle goes to the even one, either side to its own.
TEST(Storage, HalvesRoundToNearestEven) {
  for (uint32_t bits = 0; bits < 0x7bff; ++bits) {
    const float low = f16_to_f32(uint16_t(bits)), high = f16_to_f32(uint16_t(bits + 1));
    const float middle = (low + high) / 2;  // exact: f32 has 13 more bits
    ASSERT_EQ(f32_to_f16(middle), bits % 2 == 0 ? bits : bits + 1);
    ASSERT_EQ(f32_to_f16(std::nextafter(middle, 0.0f)), bits);
    ASSERT_EQ(f32_to_f16(std::nextafter(middle, 1e9f)), bits + 1);
    ASSERT_EQ(f32_to_f16(-middle), (bits % 2 == 0 ? bits : bits + 1) | 0x8000);
  }
  EXPECT_EQ(f32_to_f16(65519.996f), 0x7bff);
  EXPECT_EQ(f32_to_f16(65520.0f), 0x7c00);
  EXPECT_EQ(f32_to_f16(-1e30f), 0xfc00);
}

TEST(Storage, Bf16RoundsToNearestEven) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const float value = bf16_to_f32(uint16_t(bits));
    if (std::isnan(value)) {
      ASSERT_TRUE(std::isnan(bf16_to_f32(f32_to_bf16(value))));
      continue;
    }
    ASSERT_EQ(f32_to_bf16(value), bits);
    if (std::isinf(value)) continue;
    auto with = [&](uint32_t low) { return f32_to_bf16(std::bit_cast<float>(bits << 16 | low)); };
    ASSERT_EQ(with(0x7fff), bits);
    ASSERT_EQ(with(0x8000), bits + bits % 2);
    ASSERT_EQ(with(0x8001), bits + 1);
  }
  EXPECT_TRUE(std::isnan(bf16_to_f32(f32_to_bf16(std::bit_cast<float>(0x7f800001)))));
}

// 0x3800 is 0.5, 0x3c00 is 1, 0xc000 is -2.
TEST(Storage, SimpleBlocksByHand) {
  std::vector<uint8_t> q8(34, 0);
  q8[1] = 0x38;
  q8[2] = 0x80;  // -128
  q8[33] = 3;
  auto values = unpacked(Storage::q8_0, q8);
  EXPECT_EQ(values[0], -64);
  EXPECT_EQ(values[1], 0);
  EXPECT_EQ(values[31], 1.5f);

  std::vector<uint8_t> q4(18, 0x88);
  q4[0] = 0, q4[1] = 0x38;
  q4[2] = 0xf0;  // element 0: 0 - 8; element 16: 15 - 8
  values = unpacked(Storage::q4_0, q4);
  EXPECT_EQ(values[0], -4);
  EXPECT_EQ(values[16], 3.5f);
  EXPECT_EQ(values[1], 0);

  std::vector<uint8_t> q41(20, 0);
  q41[1] = 0x38, q41[3] = 0xc0;
  q41[4 + 15] = 0x2f;
  values = unpacked(Storage::q4_1, q41);
  EXPECT_EQ(values[0], -2);
  EXPECT_EQ(values[15], 15 * 0.5f - 2);
  EXPECT_EQ(values[31], 2 * 0.5f - 2);

  std::vector<uint8_t> q5(22, 0);
  q5[1] = 0x3c;
  q5[2] = 0x02;      // element 1 has its fifth bit
  q5[5] = 0x80;      // so has element 31
  q5[6 + 1] = 0x05;  // element 1: 21 - 16
  q5[6 + 15] = 0xf0;
  values = unpacked(Storage::q5_0, q5);
  EXPECT_EQ(values[0], -16);
  EXPECT_EQ(values[1], 5);
  EXPECT_EQ(values[31], 15);

  std::vector<uint8_t> q51(24, 0);
  q51[1] = 0x3c, q51[3] = 0xc0;
  q51[4] = 0x01;
  q51[8] = 0x07;
  values = unpacked(Storage::q5_1, q51);
  EXPECT_EQ(values[0], 16 + 7 - 2);
  EXPECT_EQ(values[1], -2);
}

TEST(Storage, Mxfp4BlocksByHand) {
  std::vector<uint8_t> block(17, 0);
  block[0] = 127 + 3;  // 2^3
  const float levels[8] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
  for (int i = 0; i < 16; ++i) block[size_t(1 + i)] = uint8_t(i | (15 - i) << 4);
  const auto values = unpacked(Storage::mxfp4, block);
  ASSERT_EQ(values.size(), 32u);
  for (size_t i = 0; i < 16; ++i) {
    const float want = 8 * levels[i % 8] * (i < 8 ? 1.0f : -1.0f);
    EXPECT_EQ(values[i], want) << i;
    EXPECT_EQ(values[31 - i], want) << i;
  }
}

// The kernels' scales are f16: larger exponents, up to the one that is no number, saturate.
TEST(Storage, Mxfp4IsNeverInfinite) {
  for (const int exponent : {143, 144, 200, 254, 255}) {
    std::vector<uint8_t> block(17, 0x7f);
    block[0] = uint8_t(exponent);
    for (const float value : unpacked(Storage::mxfp4, block)) {
      EXPECT_EQ(std::fabs(value), 6 * 0x1p16f) << exponent;
    }
  }
  const std::vector<float> large(32, 1e30f);
  EXPECT_EQ(unpacked(Storage::mxfp4, packed(Storage::mxfp4, large))[0], 6 * 0x1p16f);
}

// The first four scales lie in the low six bits of bytes 0..3, their mins in 4..7; of the last
// four, the low bits lie in 8..11 (scale, then min) and the two high bits on top of the others.
TEST(Storage, KBlocksByHand) {
  std::vector<uint8_t> q4(144, 0);
  q4[1] = 0x3c, q4[3] = 0x38;  // d 1, dmin 0.5
  uint8_t* scales = q4.data() + 4;
  scales[0] = 2 | 3 << 6;  // g 0: scale 2; g 4: scale's high bits 3
  scales[4] = 6 | 1 << 6;  // g 0: min 6; g 4: min's high bits 1
  scales[8] = 5 | 7 << 4;  // g 4: scale 48 + 5, min 16 + 7
  q4[16] = 0x94;           // g 0 element 0: 4, g 1 element 0: 9 (scale 0)
  q4[16 + 64] = 0x01;      // g 4 element 0: 1
  auto values = unpacked(Storage::q4_k, q4);
  EXPECT_EQ(values[0], 2 * 4 - 0.5f * 6);
  EXPECT_EQ(values[1], -3);
  EXPECT_EQ(values[32], 0);
  EXPECT_EQ(values[128], 53 - 0.5f * 23);

  std::vector<uint8_t> q5(176, 0);
  q5[1] = 0x3c, q5[3] = 0x38;
  q5[4] = 1, q5[5] = 2;  // scales of g 0 and 1
  q5[16] = 0x02;         // element 0 of g 1 has its fifth bit
  q5[48] = 0x37;         // element 0: 7 in g 0, 3 in g 1
  values = unpacked(Storage::q5_k, q5);
  EXPECT_EQ(values[0], 7);
  EXPECT_EQ(values[32], 2 * (16 + 3));

  std::vector<uint8_t> q6(210, 0);
  q6[209] = 0x3c;
  auto* sixteen = reinterpret_cast<int8_t*>(q6.data() + 192);
  std::fill(sixteen, sixteen + 16, int8_t{-1});
  sixteen[4] = 3;  // elements 64..79
  q6[0] = 0x5a;    // element 0: 10, element 64: 5
  q6[128] = 0x21;  // high bits: element 0: 1, element 32: 0, element 64: 2, element 96: 0
  values = unpacked(Storage::q6_k, q6);
  EXPECT_EQ(values[0], -(10 + 16 - 32));
  EXPECT_EQ(values[64], 3 * (5 + 32 - 32));
  EXPECT_EQ(values[96], 32);
}

// |error| is at most half a step, plus what rounding the scale to f16 (2^-11) moves the largest
// integer; q4_0's and q5_0's largest positive may be cut by a whole step.
TEST(Storage, RoundTripErrorsStayWithinHalfAStep) {
  constexpr size_t kCount = 32 * 512;
  const std::vector<float> from = normal(kCount, 1);
  struct Bound {
    Storage storage;
    float steps;   // integers across the largest magnitude, or across the range
    bool range;    // the step is of the range
    float within;  // steps
  };
  for (const Bound& bound :
       {Bound{Storage::q8_0, 127, false, 0.5f}, Bound{Storage::q4_0, 8, false, 1.0f},
        Bound{Storage::q5_0, 16, false, 1.0f}, Bound{Storage::q4_1, 15, true, 0.5f},
        Bound{Storage::q5_1, 31, true, 0.5f}}) {
    const auto back = unpacked(bound.storage, packed(bound.storage, from));
    for (size_t block = 0; block < kCount; block += 32) {
      const auto [low, high] = std::minmax_element(&from[block], &from[block] + 32);
      const float most = std::max(std::fabs(*low), std::fabs(*high));
      const float span = bound.range ? *high - *low : most;
      const float step = span / bound.steps;
      const float allowed = bound.within * step * 1.0001f + (span + most) * 0x1p-11f;
      for (size_t i = block; i < block + 32; ++i) {
        ASSERT_LE(std::fabs(back[i] - from[i]), allowed) << storage_info(bound.storage).name;
      }
    }
  }
}

double relative_rms(Storage storage, const std::vector<float>& from) {
  const auto back = unpacked(storage, packed(storage, from));
  double error = 0, power = 0;
  for (size_t i = 0; i < from.size(); ++i) {
    error += std::pow(double(back[i]) - from[i], 2);
    power += std::pow(double(from[i]), 2);
  }
  return std::sqrt(error / power);
}

// A uniform step s gives an error of s / sqrt(12). Of 32 normal numbers the range is 4.1 sigma and
// the largest magnitude 2.3 to 2.4 (means), so the bounds follow; the searches must do better than
// the plain range of the same bits.
TEST(Storage, RoundTripErrorsAreSmallOnAverage) {
  const std::vector<float> from = normal(256 * 400, 2);
  EXPECT_EQ(relative_rms(Storage::f32, from), 0);
  EXPECT_LT(relative_rms(Storage::f16, from), 0x1p-12);
  EXPECT_LT(relative_rms(Storage::bf16, from), 0x1p-9);
  EXPECT_LT(relative_rms(Storage::q8_0, from), 0.0060);
  EXPECT_LT(relative_rms(Storage::q4_0, from), 0.100);
  EXPECT_LT(relative_rms(Storage::q4_1, from), 0.085);
  EXPECT_LT(relative_rms(Storage::q5_0, from), 0.050);
  EXPECT_LT(relative_rms(Storage::q5_1, from), 0.042);
  EXPECT_LT(relative_rms(Storage::q4_k, from), relative_rms(Storage::q4_1, from));
  EXPECT_LT(relative_rms(Storage::q5_k, from), relative_rms(Storage::q5_1, from));
  EXPECT_LT(relative_rms(Storage::q6_k, from), 0.020);
  EXPECT_LT(relative_rms(Storage::mxfp4, from), 0.15);
  // A relative step of 2^-3 to 2^-4 of each number.
  EXPECT_LT(relative_rms(Storage::fp8, from), 0.030);
}

TEST(Storage, E4m3RoundsToTheNearest) {
  for (int code = 0; code < 256; ++code) {
    const float value = e4m3_to_f32(uint8_t(code));
    if ((code & 0x7f) == 0x7f) {
      EXPECT_TRUE(std::isnan(value));
      continue;
    }
    EXPECT_EQ(f32_to_e4m3(value), code);
    if ((code & 0x7f) >= 0x7e) continue;
    // Half way to the next number: the even code. A little less or more: the nearer one.
    const float next = e4m3_to_f32(uint8_t(code + 1)), middle = (value + next) / 2;
    EXPECT_EQ(f32_to_e4m3(middle), code + code % 2) << code;
    EXPECT_EQ(f32_to_e4m3(std::nextafter(middle, value)), code);
    EXPECT_EQ(f32_to_e4m3(std::nextafter(middle, next)), code + 1);
  }
  EXPECT_EQ(e4m3_to_f32(0x01), 0x1p-9f);
  EXPECT_EQ(e4m3_to_f32(0x08), 0x1p-6f);
  EXPECT_EQ(e4m3_to_f32(0xfe), -448);
  EXPECT_EQ(f32_to_e4m3(1e9f), 0x7e);
  EXPECT_EQ(f32_to_e4m3(-std::numeric_limits<float>::infinity()), 0xfe);
  EXPECT_EQ(f32_to_e4m3(std::numeric_limits<float>::quiet_NaN()) & 0x7f, 0x7f);
}

TEST(Storage, ShiftedAndFlatNumbersSurvive) {
  for (Storage storage : all_storages()) {
    const std::vector<float> zeros(256, 0.0f);
    EXPECT_EQ(unpacked(storage, packed(storage, zeros)), zeros) << storage_info(storage).name;
    const std::vector<float> flat(256, -0.5f);
    for (float value : unpacked(storage, packed(storage, flat))) {
      EXPECT_NEAR(value, -0.5f, 0.005f) << storage_info(storage).name;
    }
    if (storage == Storage::mxfp4) continue;  // no format for numbers that are all alike
    EXPECT_LT(relative_rms(storage, normal(256 * 8, 3, 0.05f)), 0.07) << storage_info(storage).name;
  }
}

// What a block format cannot hold must not trap; what it holds stays exact.
TEST(Storage, NumbersThatAreNoneDoNotTrap) {
  std::vector<float> odd(256, 1.0f);
  odd[3] = std::numeric_limits<float>::quiet_NaN();
  odd[70] = std::numeric_limits<float>::infinity();
  odd[200] = -std::numeric_limits<float>::max();
  for (Storage storage : all_storages()) EXPECT_EQ(packed(storage, odd).size() % 2, 0u);
}

TEST(Storage, QuantizingWhatWasUnpackedGivesItBack) {
  for (Storage storage :
       {Storage::f16, Storage::bf16, Storage::q8_0, Storage::q4_0, Storage::mxfp4, Storage::fp8}) {
    const auto once = unpacked(storage, packed(storage, normal(4096, 4)));
    const auto twice = unpacked(storage, packed(storage, once));
    for (size_t i = 0; i < once.size(); ++i) {
      ASSERT_NEAR(once[i], twice[i], std::fabs(once[i]) * 0x1p-10f) << storage_info(storage).name;
    }
  }
}

}  // namespace
}  // namespace ridge
