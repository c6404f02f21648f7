#include "base/text.h"

#include <gtest/gtest.h>

#include <cmath>

namespace ridge {
namespace {

class Coloured : public testing::Test {
 protected:
  void SetUp() override { force_colour(true); }
  void TearDown() override { force_colour(false); }
};

TEST(DisplayWidth, CountsCodePoints) {
  EXPECT_EQ(display_width(""), 0u);
  EXPECT_EQ(display_width("abc"), 3u);
  EXPECT_EQ(display_width("µs █▌"), 5u);
  EXPECT_EQ(display_width("e\xCC\x81"), 1u);  // e and a combining acute accent
}

TEST(DisplayWidth, SkipsColourCodes) {
  EXPECT_EQ(display_width("\x1b[1;31mabc\x1b[0m"), 3u);
  EXPECT_EQ(display_width("abc\x1b[3"), 3u);  // cut off inside a code
  EXPECT_EQ(display_width("\x1b["), 0u);
}

TEST_F(Coloured, PaintWrapsText) {
  EXPECT_EQ(paint(Colour::red, "x"), "\x1b[31mx\x1b[0m");
  EXPECT_EQ(paint(Colour::none, "x"), "x");
  EXPECT_EQ(paint(Colour::red, ""), "");
}

TEST(Paint, LeavesTextAloneWithoutColour) {
  force_colour(false);
  EXPECT_EQ(paint(Colour::red, "x"), "x");
}

TEST(Table, AlignsNumbersRightAndWordsLeft) {
  force_colour(false);
  Table table({"op", "time", "share"});
  table.add({"attention", "4.02 ms", "43 %"});
  table.add({"mlp", "13.6 us", "?"});
  table.rule();
  table.add({"all", "1 m 12 s", "100 %"});
  EXPECT_EQ(table.text(),
            "op             time  share\n"
            "──────────────────────────\n"
            "attention   4.02 ms   43 %\n"
            "mlp         13.6 us      ?\n"
            "──────────────────────────\n"
            "all        1 m 12 s  100 %\n");
}

TEST(Table, NamesThatHoldDigitsStayLeft) {
  force_colour(false);
  Table table({"machine", "n"});
  table.add({"8 x H100", "1"});
  table.add({"l4", "22"});
  EXPECT_EQ(table.text(),
            "machine    n\n"
            "────────────\n"
            "8 x H100   1\n"
            "l4        22\n");
}

TEST_F(Coloured, TableIgnoresColourInWidths) {
  Table table({"a", "b"});
  table.add({paint(Colour::red, "x"), "1"});
  table.add({"yyy", paint(Colour::green, "10")});
  EXPECT_NE(table.text().find("\x1b[31mx\x1b[0m     1\n"), std::string::npos) << table.text();
  EXPECT_EQ(table.csv(), "a,b\nx,1\nyyy,10\n");
}

TEST(Table, PadsShortRowsAndLeavesNoTrailingBlanks) {
  force_colour(false);
  Table table({"a", "b"});
  table.add({"x"});
  table.add({"yy", "word"});
  EXPECT_EQ(table.text(), "a   b\n────────\nx\nyy  word\n");
}

TEST(Csv, QuotesOnlyWhereNeeded) {
  EXPECT_EQ(escape_csv("plain text"), "plain text");
  EXPECT_EQ(escape_csv("a,b"), "\"a,b\"");
  EXPECT_EQ(escape_csv("say \"hi\""), "\"say \"\"hi\"\"\"");
  EXPECT_EQ(escape_csv("two\nlines"), "\"two\nlines\"");
}

TEST(Csv, LeavesRulesOut) {
  Table table({"a", "b"});
  table.add({"1", "x,y"});
  table.rule();
  table.add({"2", ""});
  EXPECT_EQ(table.csv(), "a,b\n1,\"x,y\"\n2,\n");
}

TEST(Bar, FillsInEighths) {
  EXPECT_EQ(bar(0, 4), "    ");
  EXPECT_EQ(bar(1, 4), "████");
  EXPECT_EQ(bar(0.625, 4), "██▌ ");
  EXPECT_EQ(bar(2, 2), "██");
  EXPECT_EQ(bar(-1, 2), "  ");
  EXPECT_EQ(bar(NAN, 2), "  ");
  EXPECT_EQ(bar(0.5, 0), "");
}

TEST(Bar, IsAlwaysAsWideAsAsked) {
  for (int i = 0; i <= 1000; ++i) EXPECT_EQ(display_width(bar(i / 1000.0, 7)), 7u) << i;
}

const std::vector<std::string> kNames = {"llama-3.1-8b", "llama-3.1-70b", "qwen2.5-7b",
                                         "h100-sxm",     "h200",          "mixtral-8x7b"};

TEST(NearestNames, IgnoresCaseAndSeparators) {
  EXPECT_EQ(nearest_names("Llama_3.1 70B", kNames).at(0), "llama-3.1-70b");
}

TEST(NearestNames, FindsTyposAndParts) {
  EXPECT_EQ(nearest_names("lama-3.1-8b", kNames).at(0), "llama-3.1-8b");
  EXPECT_EQ(nearest_names("mixtral", kNames).at(0), "mixtral-8x7b");
  EXPECT_EQ(nearest_names("h100", kNames).at(0), "h100-sxm");
}

TEST(NearestNames, StaysSilentWhenNothingIsNear) {
  EXPECT_TRUE(nearest_names("zzzzzzzz", kNames).empty());
  EXPECT_TRUE(nearest_names("", kNames).empty());
  EXPECT_TRUE(nearest_names("--", kNames).empty());
  EXPECT_TRUE(nearest_names(std::string(1 << 20, 'a'), kNames).empty());
  EXPECT_TRUE(nearest_names("x", {}).empty());
}

TEST(NearestNames, GivesAtMostAsManyAsAsked) {
  EXPECT_EQ(nearest_names("llama-3.1", kNames, 1).size(), 1u);
  EXPECT_TRUE(nearest_names("llama-3.1", kNames, 0).empty());
}

}  // namespace
}  // namespace ridge
