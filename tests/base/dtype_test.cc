#include "base/dtype.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace ridge {
namespace {

std::string format_error(std::string_view name) {
  try {
    format_from_name(name);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(DType, NamesRoundTrip) {
  for (int i = 0; i < kDTypeCount; ++i) {
    const auto dtype = static_cast<DType>(i);
    EXPECT_EQ(dtype_from_name(dtype_name(dtype)), dtype);
  }
}

TEST(DType, KnowsStoredBits) {
  EXPECT_EQ(dtype_bits(DType::fp64), 64);
  EXPECT_EQ(dtype_bits(DType::tf32), 32);
  EXPECT_EQ(dtype_bits(DType::bf16), 16);
  EXPECT_EQ(dtype_bits(DType::fp8), 8);
  EXPECT_EQ(dtype_bits(DType::int4), 4);
}

TEST(DType, RefusesUnknownNames) { EXPECT_THROW(dtype_from_name("fp12"), Error); }

struct Expected {
  const char* name;
  DType dtype;
  double bits;
};

class FormatBits : public testing::TestWithParam<Expected> {};

TEST_P(FormatBits, CountScalesAndZeroPoints) {
  const Format format = format_from_name(GetParam().name);
  EXPECT_EQ(format.dtype, GetParam().dtype);
  EXPECT_DOUBLE_EQ(format.bits, GetParam().bits);
  EXPECT_EQ(format.name, GetParam().name);
}

INSTANTIATE_TEST_SUITE_P(
    All, FormatBits,
    testing::Values(Expected{"fp32", DType::fp32, 32}, Expected{"bf16", DType::bf16, 16},
                    Expected{"fp16", DType::fp16, 16}, Expected{"fp8", DType::fp8, 8},
                    Expected{"fp8-block", DType::fp8, 8.001953125},
                    Expected{"int8", DType::int8, 8}, Expected{"int4", DType::int4, 4.15625},
                    Expected{"int4-g128", DType::int4, 4.15625},
                    Expected{"int4-g32", DType::int4, 4.625}, Expected{"nf4", DType::int4, 4.5},
                    Expected{"mxfp4", DType::fp4, 4.25}, Expected{"nvfp4", DType::fp4, 4.5},
                    Expected{"q8_0", DType::int8, 8.5}, Expected{"q6_k", DType::int8, 6.5625},
                    Expected{"q5_0", DType::int8, 5.5}, Expected{"q5_1", DType::int8, 6.0},
                    Expected{"q5_k", DType::int8, 5.5}, Expected{"q4_0", DType::int4, 4.5},
                    Expected{"q4_1", DType::int4, 5.0}, Expected{"q4_k", DType::int4, 4.5},
                    Expected{"q3_k", DType::int4, 3.4375}, Expected{"q2_k", DType::int4, 2.625},
                    Expected{"iq4_nl", DType::int4, 4.5}, Expected{"iq4_xs", DType::int4, 4.25}),
    [](const auto& test) {
      std::string name = test.param.name;
      for (char& c : name) c = c == '-' ? '_' : c;
      return name;
    });

TEST(Format, UnderstandsOtherSpellings) {
  EXPECT_EQ(format_from_name("F16"), format_from_name("fp16"));
  EXPECT_EQ(format_from_name("f32"), format_from_name("fp32"));
  EXPECT_EQ(format_from_name("bfloat16"), format_from_name("bf16"));
  EXPECT_EQ(format_from_name("fp8_e4m3"), format_from_name("fp8"));
  EXPECT_EQ(format_from_name("fp8_e5m2"), format_from_name("fp8"));
  EXPECT_EQ(format_from_name("Q4_K").name, "q4_k");
}

TEST(Format, LimitsGroupSizes) {
  EXPECT_NO_THROW(format_from_name("int4-g8"));
  EXPECT_NO_THROW(format_from_name("int4-g4096"));
  for (const char* name : {"int4-g7", "int4-g4097", "int4-g0", "int4-g-8", "int4-g", "int4-g128x",
                           "int4-g99999999999999999999"}) {
    EXPECT_NE(format_error(name).find("from 8 to 4096"), std::string::npos) << name;
  }
}

TEST(Format, UnknownNameListsNearestFirst) {
  const std::string message = format_error("q4-k_m");
  const size_t nearest = message.find("q4_k"), other = message.find("fp32");
  EXPECT_NE(nearest, std::string::npos) << message;
  EXPECT_LT(nearest, other) << message;
  EXPECT_EQ(message.find('\n'), std::string::npos);
}

}  // namespace
}  // namespace ridge
