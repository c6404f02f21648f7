#include "base/units.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/error.h"

namespace ridge {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

TEST(Pretty, ThreeDigitsAndPrefix) {
  EXPECT_EQ(pretty_bytes(140e9), "140 GB");
  EXPECT_EQ(pretty_rate(3.35e12), "3.35 TB/s");
  EXPECT_EQ(pretty_flops(141e9), "141 GFLOP");
  EXPECT_EQ(pretty_flop_rate(989.4e12), "989 TFLOP/s");
  EXPECT_EQ(pretty_bytes(512), "512 B");
  EXPECT_EQ(pretty_bytes(0.53125), "0.531 B");
}

TEST(Pretty, RoundingMovesToTheNextPrefix) {
  EXPECT_EQ(pretty_bytes(999.4), "999 B");
  EXPECT_EQ(pretty_bytes(999.6), "1.00 kB");
  EXPECT_EQ(pretty_bytes(999.6e9), "1.00 TB");
  EXPECT_EQ(pretty_bytes(9.996e6), "10.0 MB");
  EXPECT_EQ(pretty_bytes(99.96e6), "100 MB");
  EXPECT_EQ(pretty_binary(1023.9 * 1024), "1.00 MiB");
}

TEST(Pretty, ZeroNegativeUnknownInfinite) {
  EXPECT_EQ(pretty_bytes(0), "0 B");
  EXPECT_EQ(pretty_time(0), "0 s");
  EXPECT_EQ(pretty_percent(0), "0 %");
  EXPECT_EQ(pretty_bytes(-999.6), "-1.00 kB");
  EXPECT_EQ(pretty_time(-0.004), "-4.00 ms");
  for (const auto pretty :
       {pretty_bytes, pretty_binary, pretty_rate, pretty_flops, pretty_flop_rate, pretty_time,
        pretty_count, pretty_number, pretty_percent}) {
    EXPECT_EQ(pretty(kNan), "?");
    EXPECT_EQ(pretty(kInf), "inf");
    EXPECT_EQ(pretty(-kInf), "-inf");
  }
}

TEST(Pretty, StaysShortAtTheEndsOfDouble) {
  for (const auto pretty :
       {pretty_bytes, pretty_binary, pretty_rate, pretty_flops, pretty_flop_rate, pretty_time,
        pretty_count, pretty_number, pretty_percent}) {
    EXPECT_LT(pretty(1e308).size(), 20u) << pretty(1e308);
    EXPECT_LT(pretty(5e-324).size(), 20u) << pretty(5e-324);
  }
}

TEST(Pretty, BinarySizes) {
  EXPECT_EQ(pretty_binary(228 << 10), "228 KiB");
  EXPECT_EQ(pretty_binary(50 << 20), "50 MiB");
  EXPECT_EQ(pretty_binary(80.0 * (1 << 30)), "80 GiB");
  EXPECT_EQ(pretty_binary(1.5 * (1 << 20)), "1.50 MiB");
}

TEST(Pretty, TimeFromNanosecondsToDays) {
  EXPECT_EQ(pretty_time(1.2e-10), "0.12 ns");
  EXPECT_EQ(pretty_time(999.6e-9), "1.00 us");
  EXPECT_EQ(pretty_time(13.6e-6), "13.6 us");
  EXPECT_EQ(pretty_time(4.02e-3), "4.02 ms");
  EXPECT_EQ(pretty_time(0.9996), "1.00 s");
  EXPECT_EQ(pretty_time(59.9), "59.9 s");
  EXPECT_EQ(pretty_time(59.96), "1 m 0 s");
  EXPECT_EQ(pretty_time(72), "1 m 12 s");
  EXPECT_EQ(pretty_time(3599.7), "1 h 0 m");
  EXPECT_EQ(pretty_time(7500), "2 h 5 m");
  EXPECT_EQ(pretty_time(86399), "1 d 0 h");
  EXPECT_EQ(pretty_time(3.5 * 86400), "3 d 12 h");
  EXPECT_EQ(pretty_time(1000 * 86400.0), "1000 d");
}

TEST(Pretty, CountsKeepDimensionsExact) {
  EXPECT_EQ(pretty_count(8192), "8192");
  EXPECT_EQ(pretty_count(13000), "13 k");
  EXPECT_EQ(pretty_count(13120), "13.1 k");
  EXPECT_EQ(pretty_count(70.55e9), "70.5 B");
  EXPECT_EQ(pretty_count(999.9e6), "1.00 B");
  EXPECT_EQ(pretty_count(1e12), "1 T");
}

TEST(Pretty, NumberAndPercent) {
  EXPECT_EQ(pretty_number(295.2), "295");
  EXPECT_EQ(pretty_number(2), "2");
  EXPECT_EQ(pretty_number(2.5), "2.50");
  EXPECT_EQ(pretty_number(0.0625), "0.0625");
  EXPECT_EQ(pretty_percent(0.43), "43 %");
  EXPECT_EQ(pretty_percent(0.0432), "4.3 %");
  EXPECT_EQ(pretty_percent(0.0998), "10 %");
  EXPECT_EQ(pretty_percent(0.9996), "100 %");
  EXPECT_EQ(pretty_percent(0.0001), "<0.1 %");
}

TEST(ParseSeconds, ReadsUnits) {
  EXPECT_DOUBLE_EQ(parse_seconds("28ms", "--ttft"), 0.028);
  EXPECT_DOUBLE_EQ(parse_seconds(" 0.9 s ", "--ttft"), 0.9);
  EXPECT_DOUBLE_EQ(parse_seconds("280us", "--ttft"), 280e-6);
  EXPECT_DOUBLE_EQ(parse_seconds("280µs", "--ttft"), 280e-6);
  EXPECT_DOUBLE_EQ(parse_seconds("3", "--ttft"), 3);
  EXPECT_DOUBLE_EQ(parse_seconds("2h", "--ttft"), 7200);
}

TEST(ParseSeconds, RefusesWhatIsNoTime) {
  for (const char* text : {"", " ", "ms", "-1s", "1 parsec", "1ss", "1 s s", "inf", "nan", "1e999",
                           "0x10", "1,5s", "--1"}) {
    EXPECT_THROW(parse_seconds(text, "--ttft"), Error) << text;
  }
}

TEST(ParseSeconds, ErrorNamesTheOption) {
  try {
    parse_seconds("soon", "--ttft");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()).find("--ttft"), 0u) << error.what();
  }
}

TEST(ParseQuantity, ReadsPrefixesAndUnits) {
  EXPECT_DOUBLE_EQ(parse_quantity("85%", "", "w"), 0.85);
  EXPECT_THROW(parse_quantity("85%", "B", "w"), Error);
  EXPECT_DOUBLE_EQ(parse_quantity("280tok/s", "tok/s", "w"), 280);
  EXPECT_DOUBLE_EQ(parse_quantity("280", "tok/s", "w"), 280);
  EXPECT_DOUBLE_EQ(parse_quantity("1.5 ktok/s", "tok/s", "w"), 1500);
  EXPECT_DOUBLE_EQ(parse_quantity("3.35TB/s", "B/s", "w"), 3.35e12);
  EXPECT_DOUBLE_EQ(parse_quantity("80GB", "B", "w"), 80e9);
  EXPECT_DOUBLE_EQ(parse_quantity("80G", "B", "w"), 80e9);
  EXPECT_DOUBLE_EQ(parse_quantity("80 GiB", "B", "w"), 80.0 * (1 << 30));
  EXPECT_DOUBLE_EQ(parse_quantity("32k", "", "w"), 32000);
  EXPECT_DOUBLE_EQ(parse_quantity("32Ki", "", "w"), 32768);
}

TEST(ParseQuantity, RefusesWhatIsNoQuantity) {
  for (const char* text :
       {"", "B", "80XB", "80GBB", "80 G B x", "-1GB", "nan", "infB", "1e999", "1e308T", "80GB/s"}) {
    EXPECT_THROW(parse_quantity(text, "B", "w"), Error) << text;
  }
}

using Values = std::vector<double>;

TEST(ParseSweep, ListsAndRanges) {
  EXPECT_EQ(parse_sweep("8", "w"), Values({8}));
  EXPECT_EQ(parse_sweep("0.1,0.5", "w"), Values({0.1, 0.5}));
  EXPECT_EQ(parse_sweep("1..4", "w"), Values({1, 2, 3, 4}));
  EXPECT_EQ(parse_sweep("1,2..5", "w"), Values({1, 2, 3, 4, 5}));
  EXPECT_EQ(parse_sweep("1,3..9", "w"), Values({1, 3, 5, 7, 9}));
  EXPECT_EQ(parse_sweep("1,2,4..64", "w"), Values({1, 2, 4, 8, 16, 32, 64}));
  EXPECT_EQ(parse_sweep("1, 2, 3 .. 5", "w"), Values({1, 2, 3, 4, 5}));
  EXPECT_EQ(parse_sweep("1k,2k,4k..16k", "w"), Values({1000, 2000, 4000, 8000, 16000}));
}

TEST(ParseSweep, StopsBeforePassingTheEnd) {
  EXPECT_EQ(parse_sweep("1,3..8", "w"), Values({1, 3, 5, 7}));
  EXPECT_EQ(parse_sweep("1,2,4..100", "w"), Values({1, 2, 4, 8, 16, 32, 64}));
  EXPECT_EQ(parse_sweep("4..4", "w"), Values({4}));
}

TEST(ParseSweep, MayDescend) {
  EXPECT_EQ(parse_sweep("8,4,2..0.5", "w"), Values({8, 4, 2, 1, 0.5}));
  EXPECT_EQ(parse_sweep("4,3..0", "w"), Values({4, 3, 2, 1, 0}));
}

TEST(ParseSweep, LandsOnDecimalEnds) {
  const Values values = parse_sweep("0.1,0.2..1", "w");
  EXPECT_EQ(values.size(), 10u);
  EXPECT_EQ(values.back(), 1.0);
}

TEST(ParseSweep, RefusesWhatDoesNotGoOn) {
  for (const char* text : {"",         ",",     "1,",   "1,,2",   "..4",       "1..",    "1..4..8",
                           "1..4,8",   "0...4", "4..1", "1,1..4", "1,2,7..64", "4,8..1", "1,2,4..0",
                           "0,0,0..1", "a",     "1,b",  "-1",     "1..inf",    "nan"}) {
    EXPECT_THROW(parse_sweep(text, "w"), Error) << text;
  }
}

TEST(ParseSweep, BoundsTheNumberOfValues) {
  EXPECT_EQ(parse_sweep("1..100000", "w").size(), 100000u);
  EXPECT_THROW(parse_sweep("1..100001", "w"), Error);
  EXPECT_THROW(parse_sweep("0,1e-300..1", "w"), Error);
  std::string list = "1";
  for (int i = 0; i < 100000; ++i) list += ",1";
  EXPECT_THROW(parse_sweep(list, "w"), Error);
}

}  // namespace
}  // namespace ridge
