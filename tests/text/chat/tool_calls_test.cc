#include "text/chat/tool_calls.h"

#include <gtest/gtest.h>

#include "base/json.h"
#include "text/chat/json_scanner.h"

namespace ridge {
namespace {

// What a client has put together at the end: "content|name(arguments)|..."; names come once.
struct Collected {
  std::string content;
  std::vector<std::string> names, arguments;
  int pieces = 0;

  void add(const ToolCallOutput& out) {
    content += out.content;
    for (const ToolCallPiece& piece : out.calls) {
      ++pieces;
      if (!piece.name.empty()) {
        EXPECT_EQ(piece.index, static_cast<int>(names.size()));
        names.push_back(piece.name);
        arguments.emplace_back();
      }
      ASSERT_EQ(piece.index + 1, static_cast<int>(names.size()));
      arguments.back() += piece.arguments;
    }
  }
  std::string text() const {
    std::string all = content;
    for (size_t i = 0; i < names.size(); ++i) all += "|" + names[i] + "(" + arguments[i] + ")";
    return all;
  }
};

Collected collect(ToolCallStyle style, std::string_view text, size_t step) {
  ToolCallParser parser(style);
  Collected collected;
  for (size_t at = 0; at < text.size(); at += step)
    collected.add(parser.push(text.substr(at, step)));
  collected.add(parser.finish());
  EXPECT_EQ(parser.calls(), static_cast<int>(collected.names.size()));
  return collected;
}

// However the text is cut, the client gets the same.
std::string parsed(ToolCallStyle style, std::string_view text) {
  const std::string whole = collect(style, text, text.size() + 1).text();
  for (size_t step : {1, 2, 3, 7}) EXPECT_EQ(collect(style, text, step).text(), whole) << step;
  return whole;
}
std::string tagged(std::string_view text) { return parsed(ToolCallStyle::tagged, text); }
std::string bare(std::string_view text) { return parsed(ToolCallStyle::bare, text); }

TEST(ToolCalls, Tagged) {
  EXPECT_EQ(tagged("<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": [1, {}]}}\n</tool_call>"),
            "|f({\"a\": [1, {}]})");
  EXPECT_EQ(tagged("Let me see.\n\n<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>\n"
                   "<tool_call>{\"arguments\":{\"b\":\"}\\\"\"},\"name\":\"g\"}</tool_call>\n"),
            "Let me see.|f({})|g({\"b\":\"}\\\"\"})");
  EXPECT_EQ(tagged("<tool_call>{\"name\": \"now\"}</tool_call> Done. "), "Done. |now({})");
  EXPECT_EQ(tagged("<tool_call>{\"name\": \"f\", \"arguments\": \"{\\\"a\\\": 1}\"}</tool_call>"),
            "|f({\"a\": 1})");
  EXPECT_EQ(tagged("<tool_call>{\"id\": 3, \"name\": \"f\", \"arguments\": null}</tool_call>"),
            "|f({})");
  EXPECT_EQ(tagged("<tool_call>{\"name\": \"f\", \"arguments\": {\"ü\": \"🦙\"}}"),
            "|f({\"ü\": \"🦙\"})");  // without its closing mark
}

TEST(ToolCalls, WhatIsNoCallIsContent) {
  for (const char* text :
       {"plain text", " leading and trailing \n", "a < b <tool <tool_cal", "<tool_call>",
        "<tool_call>\nnot json</tool_call>",
        "<tool_call>{\"name\": 1, \"arguments\": {}}</tool_call>",
        "<tool_call>{\"name\": \"f\", \"arguments\": [1]}</tool_call>",
        "<tool_call>{\"name\": \"\"}</tool_call>", "<tool_call>{\"other\": 1}</tool_call>",
        "<tool_call>{\"name\": \"f\"", "<tool_call>{}</tool_call>", "<tool_call>{,}</tool_call>",
        "<tool_call>{\"arguments\": {}}</tool_call>", "x<tool_call>{\"name\": \"f\" \"a\"}",
        "<<<tool_call> {", "<tool_<tool_call", ""}) {
    EXPECT_EQ(tagged(text), text);
  }
  EXPECT_EQ(tagged("<tool_call>oops<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>"),
            "<tool_call>oops|f({})");
  EXPECT_EQ(tagged("<tool_call><tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>"),
            "<tool_call>|f({})");
  EXPECT_EQ(parsed(ToolCallStyle::none, "<tool_call>{}"), "<tool_call>{}");
}

TEST(ToolCalls, ACallThatBreaksLateKeepsItsText) {
  EXPECT_EQ(tagged("<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": nope}}</tool_call>"),
            "ope}}</tool_call>|f({\"a\": n)");
  EXPECT_EQ(tagged("<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1} x"), " x|f({\"a\": 1})");
  EXPECT_EQ(tagged("<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"cut of"),
            "|f({\"a\": \"cut of)");  // max_tokens
}

TEST(ToolCalls, Bare) {
  EXPECT_EQ(bare("{\"name\": \"f\", \"parameters\": {\"a\": 1}}"), "|f({\"a\": 1})");
  EXPECT_EQ(bare("<|python_tag|>{\"type\": \"function\", \"name\": \"f\", \"parameters\": {}}"),
            "|f({})");
  EXPECT_EQ(bare("\n{\"name\": \"f\", \"parameters\": {}}; {\"name\": \"g\", \"parameters\": {}}"),
            "|f({})|g({})");
  EXPECT_EQ(bare("I call <|python_tag|>{\"name\": \"f\", \"parameters\": {}}"), "I call|f({})");
  for (const char* text :
       {"{\"answer\": 42}", "{\"name\": \"Bob\"}", "{\"name\": \"Bob\", \"age\": 3}", "{} ", "{x",
        "The JSON {\"name\": \"f\", \"parameters\": {}} is a call.",
        "<|python_tag|>print({\"a\": 1})", "<|python", "[1]", " { \"name\""}) {
    EXPECT_EQ(bare(text), text);
  }
}

TEST(ToolCalls, ArgumentsStreamAsTheyCome) {
  ToolCallParser parser(ToolCallStyle::tagged);
  EXPECT_TRUE(parser.push("<tool_call>{\"name\": \"f\", \"argu").calls.empty());
  const ToolCallOutput first = parser.push("ments\": {\"a");
  ASSERT_EQ(first.calls.size(), 1u);
  EXPECT_EQ(first.calls[0].name, "f");
  EXPECT_EQ(first.calls[0].arguments, "{\"a");
  const ToolCallOutput second = parser.push("\": 1");
  ASSERT_EQ(second.calls.size(), 1u);
  EXPECT_EQ(second.calls[0].name, "");
  EXPECT_EQ(second.calls[0].arguments, "\": 1");
  EXPECT_EQ(parser.push("}}</tool").calls[0].arguments, "}");
  EXPECT_EQ(parser.push("_call>").content, "");
  EXPECT_EQ(parser.finish().content, "");
}

// Content is shown as soon as it cannot be a mark.
TEST(ToolCalls, ContentIsNotHeldBackLongerThanNeeded) {
  ToolCallParser parser(ToolCallStyle::tagged);
  EXPECT_EQ(parser.push("Hello <tool").content, "Hello");
  EXPECT_EQ(parser.push("box").content, " <toolbox");
  EXPECT_EQ(parser.push("!").content, "!");
}

TEST(ToolCalls, StylesAreFoundByTheirMarks) {
  EXPECT_EQ(find_tool_call_style("... '<tool_call>\\n' ..."), ToolCallStyle::tagged);
  EXPECT_EQ(find_tool_call_style("{\"name\": name, \"parameters\": {}}"), ToolCallStyle::bare);
  EXPECT_EQ(find_tool_call_style("<|im_start|>"), ToolCallStyle::none);
}

// The scanner against a whole parser: the same values are accepted, and none ends early.
TEST(JsonScanner, AgreesWithTheParser) {
  for (const char* text :
       {"{}",          "[]",       "{\"a\":[1,-2.5e+3,true,false,null,\"\\u00e9\\n\"]}",
        "[[[]],{}]",   "\"x\"",    "true",
        "[1,]",        "{\"a\"}",  "{\"a\":}",
        "{,}",         "[01]",     "[1 2]",
        "{\"a\":1,}",  "[\"\t\"]", "tru ",
        "\"\\x\"",     "[}",       "{]",
        "[-]",         "[1.]",     "{1:2}",
        "\"\\u12g4\"", "[nul]",    "{\"a\" :\n1 }"}) {
    JsonScanner scanner;
    bool done = false, bad = false;
    for (const char* c = text; *c && !bad; ++c) {
      EXPECT_FALSE(done) << text;
      const JsonScanner::Result result = scanner.read(*c);
      done = result == JsonScanner::Result::done;
      bad = result == JsonScanner::Result::bad;
    }
    EXPECT_EQ(done && !bad, nlohmann::json::accept(text)) << text;
  }
  JsonScanner number;
  EXPECT_EQ(number.read('1'), JsonScanner::Result::more);
  EXPECT_EQ(number.read(','), JsonScanner::Result::after);
}

}  // namespace
}  // namespace ridge
