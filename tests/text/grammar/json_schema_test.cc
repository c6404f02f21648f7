// Which documents each keyword lets through.
#include "text/grammar/json_schema.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "text/grammar/grammars.h"

namespace ridge {
namespace {

using sample::grammar_of;
using sample::is_document;

struct Case {
  std::string_view schema;
  std::vector<std::string_view> documents, refused;
};

void check(const std::vector<Case>& cases) {
  for (const Case& c : cases) {
    SCOPED_TRACE(c.schema);
    const auto grammar = grammar_of(c.schema);
    for (std::string_view text : c.documents) EXPECT_TRUE(is_document(grammar, text)) << text;
    for (std::string_view text : c.refused) EXPECT_FALSE(is_document(grammar, text)) << text;
  }
}

std::string error_of(std::string_view schema) {
  try {
    WorkLimit work("the schema", kMaxGrammarSteps);
    grammar::compile_schema(Json::parse(schema), work);
  } catch (const OptionError& error) {
    EXPECT_EQ(error.option(), "response_format");
    return error.what();
  }
  return "no error";
}

TEST(JsonSchema, ScalarTypes) {
  check({
      {R"({"type":"boolean"})", {"true", "false"}, {"null", "True", "tru", "true "}},
      {R"({"type":"null"})", {"null"}, {"nul", "0", ""}},
      {R"({"type":"integer"})",
       {"0", "-1", "10", "999999999999999999", "-999999999999999999"},
       {"-0", "01", "1.0", "1e2", "+1", "1000000000000000000", "-", ""}},
      {R"({"type":"number"})",
       {"0", "-0", "0.5", "-12.25", "1e5", "1E+05", "1.5e-10", "123456789012345678"},
       {"00", "01", ".5", "1.", "1e", "1e+", "--1", "1e100", "NaN", "0x1"}},
      {R"({"type":["string","null"]})", {"\"a\"", "null"}, {"1", "a"}},
      {R"({"type":["integer","number"]})", {"1", "1.5"}, {"\"1\""}},
      {R"({"type":"integer","nullable":true})", {"1", "null"}, {"true"}},
      {R"({"type":"number","minimum":0})", {"0", "0.1", "7"}, {"-1", "-0"}},
  });
}

TEST(JsonSchema, Strings) {
  check({
      {R"({"type":"string"})",
       {R"("")", R"("a b")", R"("\"\\\/\b\f\n\r\t")", R"("\u00e9\uD7ff\uE000")",
        R"("\ud83d\ude00")", "\"é€😀\x7f\"", "\"\xEF\xBF\xBF\xF4\x8F\xBF\xBF\""},
       {"\"",
        "a",
        "\"\n\"",
        "\"\\x\"",
        R"("\u12")",
        R"("\u12g4")",
        R"("\ud83d")",
        R"("\ud83dx")",
        R"("\ud83d\n")",
        R"("\ud83d\ud83d")",
        R"("\ude00")",
        "\"\x80\"",
        "\"\xC0\x80\"",
        "\"\xC3\"",
        "\"\xE0\x80\x80\"",
        "\"\xED\xA0\x80\"",
        "\"\xF0\x80\x80\x80\"",
        "\"\xF4\x90\x80\x80\"",
        "\"\xF5\x80\x80\x80\"",
        "\"\xFF\"",
        "\"a\"b"}},
      {R"({"type":"string","minLength":2,"maxLength":3})",
       {R"("ab")", R"("abc")", "\"é€😀\"", R"("\ud83d\ude00\n")", R"("\u0041b")"},
       {R"("")", R"("a")", "\"😀\"", R"("\ud83d\ude00")", R"("abcd")", "\"é€😀a\""}},
      {R"({"type":"string","maxLength":0})", {R"("")"}, {R"("a")"}},
      {R"({"minLength":1})", {R"("a")"}, {R"("")", "1"}},
      {R"({"type":"string","minLength":3})", {R"("abc")", R"("abcdefgh")"}, {R"("ab")"}},
  });
}

TEST(JsonSchema, IntegerBounds) {
  check({
      {R"({"type":"integer","minimum":0})", {"0", "5", "123"}, {"-1"}},
      {R"({"type":"integer","exclusiveMinimum":0,"exclusiveMaximum":10})",
       {"1", "9"},
       {"0", "10", "-1"}},
      {R"({"type":"integer","minimum":-5,"maximum":-5})", {"-5"}, {"5", "-4", "-55", "0"}},
      {R"({"type":"integer","minimum":0.5,"maximum":2.5})", {"1", "2"}, {"0", "3"}},
      {R"({"type":"integer","maximum":9223372036854775807,"minimum":9223372036854775806})",
       {"9223372036854775806", "9223372036854775807"},
       {"9223372036854775805", "9223372036854775808", "0"}},
      {R"({"type":"integer","minimum":-9223372036854775808,"maximum":-9223372036854775807})",
       {"-9223372036854775808", "-9223372036854775807"},
       {"-9223372036854775809", "-1"}},
      {R"({"type":"integer","maximum":1e30,"minimum":9e18})",
       {"9000000000000000000", "9223372036854775807"},
       {"9223372036854775808", "1"}},
      {R"({"type":"integer","minimum":1e18})",
       {"1000000000000000000", "9223372036854775807"},
       {"999999999999999999"}},
  });
  // Every range of a small square, each integer of a larger one.
  for (int low = -112; low <= 112; low += 7) {
    for (int high : {low, low + 1, low + 9, low + 95, low + 130}) {
      const Json schema = {{"type", "integer"}, {"minimum", low}, {"maximum", high}};
      const auto grammar = grammar_of(schema.dump());
      for (int value = -260; value <= 260; ++value) {
        GrammarState state(grammar);
        const bool taken = state.accept(std::to_string(value)) && state.may_end();
        ASSERT_EQ(taken, value >= low && value <= high) << schema << " " << value;
      }
    }
  }
}

TEST(JsonSchema, EnumAndConst) {
  check({
      {R"({"enum":["red","green","redder",1,12,null,true,{"a":[1,{}]},"é\"\n"]})",
       {R"("red")", R"("redder")", R"("green")", "1", "12", "null", "true", R"({"a":[1,{}]})",
        R"({ "a": [ 1, { } ] })", R"("é\"\n")"},
       {R"("re")", R"("redd")", "2", "11", "false", R"({"a":[1]})", R"({"a":[1,{},2]})", "{}"}},
      {R"({"enum":["a",1,1.5,2.0,null],"type":["string","integer"]})",
       {R"("a")", "1", "2.0"},
       {"1.5", "null"}},
      {R"({"const":"x"})", {R"("x")"}, {R"("y")", R"("\u0078")"}},
      {R"({"const":[]})", {"[]", "[ ]"}, {"[1]"}},
  });
}

TEST(JsonSchema, Objects) {
  check({
      {R"({"type":"object","properties":{"b":{"type":"integer"},"a":{"type":"boolean"}},
           "required":["b","a"],"additionalProperties":false})",
       {R"({"b":1,"a":true})", R"({"b": 1, "a": true})", "{\n  \"b\": 1,\n  \"a\": true\n}"},
       {R"({"a":true,"b":1})", R"({"b":1})", "{}", R"({"b":1,"a":true,"c":1})",
        R"({"b" :1,"a":true})", R"({"b":1 ,"a":true})", R"({"b":  1,"a":true})",
        R"({"b":1,"a":true,})", R"({"b":1,"b":2,"a":true})"}},
      {R"({"type":"object","properties":{"a":{"type":"integer"},"ab":{"type":"integer"},
           "c":{"type":"integer"}},"required":["c"],"additionalProperties":false})",
       {R"({"c":1})", R"({"a":1,"c":1})", R"({"ab":1,"c":1})", R"({"a":1,"ab":2,"c":3})"},
       {R"({"a":1})", R"({"c":1,"a":1})", R"({"ab":1,"a":1,"c":1})", "{}", R"({"abc":1,"c":1})"}},
      {R"({"type":"object","properties":{"ab":{"type":"integer"}}})",
       {"{}", R"({"ab":1})", R"({"ab":1,"x":[null]})", R"({"x":1})", R"({"a":"s"})", R"({"abc":1})",
        R"({"":1})", "{\"é\":1,\"\\n\":2}"},
       {R"({"ab":"s"})", R"({"x":1,"ab":1})", R"({"x":1,"ab":"s"})", R"({"\u0061b":"s"})",
        R"({"ab":1,"ab":2})"}},
      {R"({"type":"object","properties":{"n":{"type":"null"}},"required":["n","z"],
           "additionalProperties":{"type":"integer"}})",
       {R"({"n":null,"z":1})", R"({"n":null,"z":1,"y":2,"x":3})"},
       {R"({"n":null})", R"({"n":null,"z":"s"})", R"({"n":null,"y":1,"z":1})",
        R"({"n":null,"z":1,"y":null})"}},
      {R"({"type":"object","additionalProperties":false})", {"{}", "{ }"}, {R"({"a":1})"}},
      {R"({"properties":{"a\u0001\"":{"type":"null"}},"additionalProperties":{"type":"null"}})",
       {R"({"a\u0001\"":null})", R"({"a":null})", R"({"a\\":null})"},
       {R"({"a\u0002":null})", "[]"}},
      {R"({"type":"object"})",
       {"{}", R"({"a":{"b":[1,-2.5e3,"x",true,false,null,{}]},"\u0041":[]})"},
       {"[]", "1", "{a:1}", R"({"a"})", R"({"a":})", R"({"a":1,})", R"({,})", R"({"a":1"b":2})"}},
  });
}

TEST(JsonSchema, Arrays) {
  check({
      {R"({"type":"array","items":{"type":"integer"}})",
       {"[]", "[1]", "[1,2, 3]", "[\n  1,\n  2\n]", "[ ]"},
       {"[1,]", "[,1]", "[1 ,2]", "[true]", "[1", "[[1]]"}},
      {R"({"type":"array","items":{"type":"integer"},"minItems":1})", {"[1]", "[1,2]"}, {"[]"}},
      {R"({"type":"array","items":{"type":"integer"},"minItems":2,"maxItems":3})",
       {"[1,2]", "[1,2,3]"},
       {"[]", "[1]", "[1,2,3,4]"}},
      {R"({"type":"array","items":{"type":"integer"},"minItems":3})",
       {"[1,2,3]", "[1,2,3,4,5]"},
       {"[1,2]"}},
      {R"({"type":"array","maxItems":0})", {"[]"}, {"[1]"}},
      {R"({"type":"array","items":false})", {"[]"}, {"[1]"}},
      {R"({"type":"array","items":{"type":"array","items":{"type":"object","properties":
           {"a":{"type":"string","minLength":1}},"additionalProperties":false},
           "minItems":1,"maxItems":2},"maxItems":2})",
       {"[]", R"([[{}],[{"a":"x"},{}]])"},
       {"[[]]", "[[{},{},{}]]", "[[{}],[{}],[{}]]", R"([[{"a":""}]])"}},
      {R"({"prefixItems":[{"type":"integer"},{"type":"string"}]})",
       {"[]", "[1]", R"([1,"a"])", R"([1,"a",null,[]])"},
       {R"(["a"])", "[1,2]"}},
      {R"({"prefixItems":[{"type":"integer"},{"type":"string"}],"items":false,"minItems":2})",
       {R"([1,"a"])"},
       {"[]", "[1]", R"([1,"a",2])"}},
      {R"({"prefixItems":[{"type":"integer"}],"items":{"type":"null"},"minItems":2,"maxItems":4})",
       {"[1,null]", "[1,null,null,null]"},
       {"[1]", "[1,null,null,null,null]", "[1,2]"}},
      {R"({"prefixItems":[{"type":"integer"},{"type":"null"}],"maxItems":1})",
       {"[]", "[1]"},
       {"[1,null]"}},
      {R"({"type":"array"})", {"[]", R"([1,"a",[{}]])"}, {"{}"}},
  });
}

TEST(JsonSchema, AlternativesAndReferences) {
  check({
      {R"({"anyOf":[{"type":"object","properties":{"kind":{"const":"a"},"x":{"type":"integer"}},
           "required":["kind","x"],"additionalProperties":false},
          {"type":"object","properties":{"kind":{"const":"b"},"y":{"type":"string"}},
           "required":["kind","y"],"additionalProperties":false}]})",
       {R"({"kind":"a","x":1})", R"({"kind":"b","y":"s"})"},
       {R"({"kind":"a","y":"s"})", R"({"kind":"b","x":1})", R"({"kind":"a"})"}},
      {R"({"oneOf":[{"type":"integer"},{"type":"number"}]})", {"1", "1.5"}, {"null"}},
      {R"({"allOf":[{"$ref":"#/definitions/P"}],"description":"d","definitions":
           {"P":{"type":"null"}}})",
       {"null"},
       {"1"}},
      {R"({"$defs":{"node":{"type":"object","properties":{"v":{"type":"integer"},
           "next":{"anyOf":[{"$ref":"#/$defs/node"},{"type":"null"}]}},"required":["v","next"],
           "additionalProperties":false}},"$ref":"#/$defs/node"})",
       {R"({"v":1,"next":null})", R"({"v":1,"next":{"v":2,"next":null}})"},
       {R"({"v":1})", R"({"v":1,"next":{"v":2}})"}},
      {R"({"type":"array","items":{"$ref":"#"}})", {"[]", "[[],[[]]]"}, {"[1]"}},
      {R"({"anyOf":[{"type":"array","items":{"$ref":"#"},"minItems":1},{"type":"null"}]})",
       {"null", "[null,[null]]"},
       {"[]", "[[]]"}},
      {"true", {"1", "{}", "[]", "\"\""}, {"x"}},
      {"{}", {"1", R"({"a":1})", "null"}, {""}},
      {R"({"title":"t","description":"d","default":1,"examples":[1],"x-mine":{"not":{}},
           "$schema":"s","format":"int32","type":"integer"})",
       {"3"},
       {"null"}},
  });
}

TEST(JsonSchema, WhitespaceIsBounded) {
  const auto grammar = grammar_of(R"({"type":"array","items":{"type":"null"}})");
  const std::string indent(grammar::kMaxIndent, ' ');
  EXPECT_TRUE(is_document(grammar, "[\n" + indent + "null\n" + indent + "]"));
  EXPECT_FALSE(is_document(grammar, "[\n" + indent + " null]"));
  EXPECT_FALSE(is_document(grammar, "[\n\nnull]"));
  EXPECT_FALSE(is_document(grammar, "[  null]"));
  EXPECT_FALSE(is_document(grammar, " [null]"));
  EXPECT_FALSE(is_document(grammar, "[null] "));
}

TEST(JsonSchema, NestingIsBounded) {
  const auto grammar = grammar_of(R"({"type":"array","items":{"$ref":"#"}})");
  GrammarState state(grammar);
  int depth = 0;
  while (state.accept("[")) ++depth;
  EXPECT_GE(depth, 60);
  EXPECT_LE(depth, static_cast<int>(grammar::kMaxFrames) + 2);
  while (!state.may_end()) ASSERT_TRUE(state.accept("]"));
}

TEST(JsonSchema, RefusesWhatItCannotEnforce) {
  for (const char* keyword :
       {"not", "if", "dependentRequired", "patternProperties", "contains", "propertyNames",
        "minProperties", "multipleOf", "pattern", "unevaluatedProperties"}) {
    const Json schema = {{"type", "object"}, {"properties", {{"a", {{keyword, 3}}}}}};
    EXPECT_EQ(error_of(schema.dump()),
              fmt::format("JSON schema at #/properties/a: {} is not supported", keyword));
  }
  const std::pair<const char*, const char*> cases[] = {
      {R"({"uniqueItems":true})", "uniqueItems is not supported"},
      {R"({"allOf":[{},{}]})", "allOf of more than one"},
      {R"({"anyOf":[{}],"type":"string"})", "type beside anyOf"},
      {R"({"anyOf":[{}],"properties":{}})", "properties beside anyOf"},
      {R"({"enum":["a"],"minLength":3})", "minLength beside enum"},
      {R"({"const":1,"enum":[1]})", "const beside enum"},
      {R"({"type":"number","maximum":3})", "integers only"},
      {R"({"type":"float"})", "type must be one of"},
      {R"({"type":[]})", "type must name"},
      {R"({"enum":[]})", "no value"},
      {R"({"enum":["a"],"type":"integer"})", "no value"},
      {R"({"enum":3})", "must be a list"},
      {R"({"$ref":"http://x/y"})", "not local"},
      {R"({"$ref":"#/$defs/x"})", "does not exist"},
      {R"({"$ref":"#x"})", "does not exist"},
      {R"({"$ref":"#"})", "leads back to itself"},
      {R"({"anyOf":[{"type":"null"},{"$ref":"#"}]})", "leads back to itself"},
      {R"({"type":"array","items":{"$ref":"#"},"minItems":1})", "no document"},
      {R"({"properties":{"a":{"$ref":"#"}},"required":["a"]})", "no document"},
      {R"({"required":["a"],"additionalProperties":false})", "not among the properties"},
      {R"({"minLength":3,"maxLength":2})", "above maxLength"},
      {R"({"minItems":3,"maxItems":2})", "above maxItems"},
      {R"({"minItems":1,"items":false})", "above the number"},
      {R"({"type":"integer","minimum":3,"maximum":2})", "no integer"},
      {R"({"type":"integer","minimum":1e19})", "leaves no integer"},
      {R"({"type":"integer","exclusiveMaximum":-9223372036854775808})", "leaves no integer"},
      {R"({"minLength":-1})", "must be a count"},
      {R"({"minLength":"1"})", "must be a count"},
      {R"({"properties":[]})", "must be an object"},
      {R"({"required":"a"})", "list of names"},
      {R"({"items":[{}]})", "items must be a schema"},
      {R"({"properties":{"a":false}})", "a schema must be an object or true"},
      {"3", "a schema must be an object or true"},
      {"false", "a schema must be an object or true"},
  };
  for (const auto& [schema, message] : cases) {
    EXPECT_NE(error_of(schema).find(message), std::string::npos)
        << schema << ": " << error_of(schema);
  }
}

TEST(JsonSchema, SizeIsBounded) {
  Json wide;
  for (int i = 0; i < grammar::kMaxSchemaNodes; ++i) {
    wide["properties"]["p" + std::to_string(i)] = {{"type", "null"}};
  }
  EXPECT_NE(error_of(wide.dump()).find("more than 1000"), std::string::npos);
  const Json longer = {{"const", std::string(grammar::kMaxSchemaBytes, 'x')}};
  EXPECT_NE(error_of(longer.dump()).find("64 KiB"), std::string::npos);
  Json deep = {{"type", "null"}};
  for (int i = 0; i < 64; ++i) deep = {{"items", deep}};
  EXPECT_NE(error_of(deep.dump()).find("nests deeper"), std::string::npos);
  Json alternatives;
  for (int i = 0; i < 300; ++i) alternatives["anyOf"].push_back({{"type", "null"}});
  EXPECT_NE(error_of(alternatives.dump()).find("32 alternatives"), std::string::npos);
  // Two long texts with a long common prefix.
  const std::string text(30000, 'x');
  EXPECT_TRUE(is_document(grammar_of(Json({{"enum", {text + "a", text + "b"}}}).dump()),
                          "\"" + text + "b\""));
}

}  // namespace
}  // namespace ridge
