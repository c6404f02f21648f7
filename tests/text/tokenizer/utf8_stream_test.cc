#include <gtest/gtest.h>

#include "text/tokenizer/tokenizer.h"

namespace ridge {
namespace {

TEST(Utf8Stream, ShowsWholeCharacters) {
  Utf8Stream stream;
  EXPECT_EQ(stream.push("a\xF0\x9F"), "a");
  EXPECT_EQ(stream.push("\xA6"), "");
  EXPECT_EQ(stream.push("\x99!"), "🦙!");
  EXPECT_EQ(stream.push("\xC3"), "");
  EXPECT_EQ(stream.finish(), "\ufffd");
  EXPECT_EQ(stream.finish(), "");
}

TEST(Utf8Stream, WhatNeverBecomesACharacterIsReplaced) {
  Utf8Stream stream;
  EXPECT_EQ(stream.push("\xFF"
                        "a"),
            "\ufffd"
            "a");
  EXPECT_EQ(stream.push("\xE2\x82"
                        "b"),
            "\ufffd"
            "b");
  EXPECT_EQ(stream.push("\xED\xA0\x80"), "\ufffd\ufffd\ufffd");  // a surrogate
  EXPECT_EQ(stream.push("\xF0\x9F\xA6"), "");
  EXPECT_EQ(stream.push("\xC3\xA9"), "\ufffdé");
}

TEST(Utf8Stream, AnyCutGivesTheSameText) {
  const std::string text = "aé€🦙 \xFF\xE2\x82 z\xC3";
  for (size_t cut = 0; cut <= text.size(); ++cut) {
    Utf8Stream whole, parts;
    std::string wanted = whole.push(text);
    wanted += whole.finish();
    std::string got = parts.push(text.substr(0, cut));
    got += parts.push(text.substr(cut));
    got += parts.finish();
    EXPECT_EQ(got, wanted) << cut;
  }
}

}  // namespace
}  // namespace ridge
