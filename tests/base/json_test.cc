#include "base/json.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace ridge {
namespace {

std::string parse_error(std::string_view text) {
  try {
    parse_json(text, "x.json");
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(ParseJson, ReadsStrictJson) {
  const auto value = parse_json(R"({"a": [1, 2.5, true, null, "é\n"]})", "x.json");
  EXPECT_EQ(value["a"][1], 2.5);
  EXPECT_EQ(value["a"][4], "é\n");
}

TEST(ParseJson, ErrorsNameFileAndLine) {
  EXPECT_EQ(parse_error("{\n\"a\": 1,\n\"b\": x}"),
            "x.json: line 3: not valid JSON: invalid literal");
  EXPECT_EQ(parse_error(""), "x.json: line 1: not valid JSON: unexpected end of input");
  EXPECT_EQ(parse_error("{\n\n"), "x.json: line 3: not valid JSON: unexpected end of input");
}

TEST(ParseJson, RefusesWhatIsNotJson) {
  for (const char* text :
       {"NaN", "[Infinity]", "[-Infinity]", "{'a': 1}", "{\"a\": 1,}", "[1 2]", "// note\n1",
        "\"a\nb\"", "01", "1 1", "\"\\ud800\"", "\"open", "]", "\""}) {
    EXPECT_NE(parse_error(text), "") << text;
  }
}

TEST(ParseJson, RefusesInvalidUtf8InOnePrintableLine) {
  const std::string message = parse_error("[\"ok\",\n\"\xff\xfe\"]");
  EXPECT_EQ(message, "x.json: line 2: not valid JSON: invalid string: ill-formed UTF-8 byte");
}

TEST(ParseJson, NumbersMustBeFinite) {
  EXPECT_EQ(parse_error("{\"1e999\": 1,\n\"b\": -1e999}"),
            "x.json: line 2: number too large for a double");
  EXPECT_EQ(parse_json("1e-999", "x.json"), 0.0);
  EXPECT_EQ(parse_json("123456789012345678901234567890", "x.json"),
            123456789012345678901234567890.0);
}

TEST(ParseJson, BoundsDepthOutsideStrings) {
  const auto nested = [](int depth) {
    const auto n = static_cast<size_t>(depth);
    return std::string(n, '[') + std::string(n, ']');
  };
  EXPECT_EQ(parse_error(nested(kMaxJsonDepth)), "");
  EXPECT_EQ(parse_error(nested(kMaxJsonDepth + 1)), "x.json: line 1: nested deeper than 64 levels");
  EXPECT_NE(parse_error(std::string(1 << 20, '[')), "");
  EXPECT_EQ(parse_error("[\"" + std::string(1000, '[') + "\\\"" + std::string(1000, '{') + "\"]"),
            "");
}

TEST(ParseJson, BoundsSize) {
  EXPECT_EQ(parse_error(std::string(kMaxJsonBytes + 1, ' ')), "x.json: JSON larger than 64 MiB");
}

TEST(ReadJson, NamesTheMissingFile) { EXPECT_THROW(read_json("/nonexistent/x.json"), Error); }

TEST(ParseJson, RefusesNulBytes) {
  const std::string text("{}\n\0{", 5);
  EXPECT_EQ(parse_error(text), "x.json: line 2: not valid JSON: a NUL byte");
}

class Fields : public testing::Test {
 protected:
  const nlohmann::json object_ = parse_json(
      R"({"i": 7, "whole": 4096.0, "f": 2.5, "s": "text", "b": true, "null": null,
          "big": 18446744073709551615, "neg": -3, "list": []})",
      "x.json");

  template <typename Read>
  std::string error_of(Read read) {
    try {
      read();
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }
};

TEST_F(Fields, MissingOrNullGivesNothing) {
  EXPECT_FALSE(number_field(object_, "none", "x", 0, 1));
  EXPECT_FALSE(number_field(object_, "null", "x", 0, 1));
  EXPECT_FALSE(integer_field(object_, "null", "x", 0, 1));
  EXPECT_FALSE(bool_field(object_, "null", "x"));
  EXPECT_FALSE(string_field(object_, "null", "x"));
}

TEST_F(Fields, ReadTheirType) {
  EXPECT_EQ(number_field(object_, "f", "x", 0, 10), 2.5);
  EXPECT_EQ(number_field(object_, "i", "x", 7, 7), 7.0);
  EXPECT_EQ(integer_field(object_, "i", "x", 7, 7), 7);
  EXPECT_EQ(integer_field(object_, "neg", "x", -5, 5), -3);
  EXPECT_EQ(integer_field(object_, "whole", "x", 0, 9999), 4096);
  EXPECT_EQ(bool_field(object_, "b", "x"), true);
  EXPECT_EQ(string_field(object_, "s", "x"), "text");
}

TEST_F(Fields, WrongTypesSayWhatWouldBeRight) {
  EXPECT_EQ(error_of([&] { number_field(object_, "s", "x", 0, 1); }),
            "x: s must be a number, not string");
  EXPECT_EQ(error_of([&] { integer_field(object_, "b", "x", 0, 1); }),
            "x: b must be an integer, not boolean");
  EXPECT_EQ(error_of([&] { bool_field(object_, "i", "x"); }),
            "x: i must be true or false, not number");
  EXPECT_EQ(error_of([&] { string_field(object_, "list", "x"); }),
            "x: list must be a string, not array");
  EXPECT_NE(error_of([&] { number_field(object_["list"], "i", "x", 0, 1); }), "");
}

TEST_F(Fields, RangesAreInclusiveAndKept) {
  EXPECT_EQ(error_of([&] { number_field(object_, "f", "x", 3, 4); }),
            "x: f must be a number from 3 to 4, not 2.5");
  EXPECT_EQ(error_of([&] { integer_field(object_, "i", "x", 8, 9); }),
            "x: i must be an integer from 8 to 9, not 7");
  EXPECT_EQ(error_of([&] { integer_field(object_, "f", "x", 0, 9); }),
            "x: f must be an integer from 0 to 9, not 2.5");
  EXPECT_NE(error_of([&] { integer_field(object_, "big", "x", 0, INT64_MAX); }), "");
}

}  // namespace
}  // namespace ridge
