#include "base/json_members.h"

#include <gtest/gtest.h>

#include <string>

#include "base/error.h"

namespace ridge {
namespace {

Json members_of(std::string_view text, const JsonMembers& members, size_t bytes = SIZE_MAX) {
  return parse_members(text, "x", members, bytes);
}

std::string member_at_fault(std::string_view text, const JsonMembers& members,
                            size_t bytes = SIZE_MAX) {
  try {
    members_of(text, members, bytes);
  } catch (const OptionError& error) {
    EXPECT_TRUE(std::string_view(error.what()).starts_with(error.option()));
    return error.option();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

const JsonMembers kAll{.keep = [](std::string_view) { return true; }};

TEST(ParseMembers, KeepsTheTreeInItsOrder) {
  const std::string text =
      R"({"z":[1,-2,2.5,[],[[]],{"b":{},"a":"\n"}],"a":null,"y":true,"big":18446744073709551615})";
  EXPECT_EQ(members_of(text, kAll).dump(), text);
  EXPECT_EQ(members_of("{}", kAll).dump(), "{}");
  for (const char* other : {"[]", "[{}]", "1", "null", "\"a\""}) {
    EXPECT_EQ(member_at_fault(other, kAll), "x must be a JSON object");
  }
}

TEST(ParseMembers, SkipsWhatIsNotKept) {
  const JsonMembers some{.keep = [](std::string_view key) { return key == "a"; }};
  EXPECT_EQ(
      members_of(R"({"b":1,"c":[{"a":1},[]],"a":{"b":[2],"c":3},"d":{"a":{"a":1}},"e":"a"})", some)
          .dump(),
      R"({"a":{"b":[2],"c":3}})");
  EXPECT_EQ(member_at_fault(R"({"b":[1,2)", some),
            "x: line 1: not valid JSON: unexpected end of input");
  const std::string deep = std::string(size_t{kMaxJsonDepth} - 1, '[');
  const std::string ends = std::string(size_t{kMaxJsonDepth} - 1, ']');
  EXPECT_EQ(member_at_fault("{\"b\":" + deep + ends + "}", some), "");
  EXPECT_EQ(member_at_fault("{\"b\":[" + deep + ends + "]}", some),
            "x: line 1: nested deeper than 64 levels");
  size_t bytes = 0, kept = SIZE_MAX;
  EXPECT_THROW(parse_members(R"({"b":"a long string that is not kept"})", "x", some, bytes), Error);
  parse_members(R"({"b":"a long string that is not kept"})", "x", some, kept);
  size_t same = SIZE_MAX;
  parse_members("{}", "x", some, same);
  EXPECT_EQ(kept, same);
}

TEST(ParseMembers, BoundsTheBytesOfTheTree) {
  for (const char* text : {R"({"a":1})", R"({"a":[{},{},{},{},{}]})",
                           R"({"a":{"b":"a string on the heap, 32 bytes"}})",
                           R"({"a":{"a key on the heap of 30 bytes":[1,2,3]}})"}) {
    size_t left = SIZE_MAX;
    parse_members(text, "x", kAll, left);
    const size_t cost = SIZE_MAX - left;
    EXPECT_GT(cost, 3 * std::string_view(text).size());
    EXPECT_EQ(member_at_fault(text, kAll, cost), "");
    EXPECT_EQ(member_at_fault(text, kAll, cost - 1), "a") << text;
  }
}

TEST(ParseMembers, BoundsTheBytesOfAMember) {
  size_t left = SIZE_MAX, left_of_none = SIZE_MAX;
  parse_members(R"({"a":[1,2]})", "x", kAll, left);
  parse_members("{}", "x", kAll, left_of_none);
  JsonMembers bounded = kAll;
  for (const size_t cost = left_of_none - left; const size_t bytes : {cost, cost - 1}) {
    bounded.most_bytes = [bytes](std::string_view key) { return key == "a" ? bytes : SIZE_MAX; };
    EXPECT_EQ(member_at_fault(R"({"a":[1,2],"b":[1,2,3,4]})", bounded), bytes == cost ? "" : "a");
  }
}

TEST(ParseMembers, BoundsTheKeysOfEveryObject) {
  JsonMembers two = kAll;
  two.most_keys = 2;
  EXPECT_EQ(member_at_fault(R"({"a":{"b":1,"c":2},"d":[{"b":1,"c":2}]})", two), "");
  EXPECT_EQ(member_at_fault(R"({"a":1,"d":[{"b":1,"c":2,"e":3}]})", two), "d");
  EXPECT_EQ(member_at_fault(R"({"a":1,"b":2,"c":3})", two), "c");
}

TEST(ParseMembers, RefusesAKeyThatComesTwice) {
  EXPECT_EQ(member_at_fault(R"({"a":1,"b":2,"a":3})", kAll), "a");
  EXPECT_EQ(member_at_fault(R"({"a":1,"b":{"c":{"d":1,"e":2,"d":3}}})", kAll), "b");
  EXPECT_EQ(member_at_fault(R"({"a":{"c":1},"b":{"c":1}})", kAll), "");
}

TEST(ParseMembers, PacksListsOfIntegers) {
  const JsonMembers packed{.keep = kAll.keep,
                           .pack = [](std::string_view key) { return key == "p"; }};
  const auto at = [&](const std::string& value) {
    return members_of("{\"q\":[1],\"p\":" + value + "}", packed)["p"];
  };
  using Integers = std::vector<int32_t>;
  EXPECT_EQ(packed_integers(at("[1,-2,2147483647,-2147483648]")),
            (Integers{1, -2, INT32_MAX, INT32_MIN}));
  EXPECT_EQ(packed_integers(at("[[1,2],[3]]")[1]), Integers{3});
  for (const char* value : {"[]", "1", "[2147483648,1]", "[[],2]", "[null,2]", "{\"a\":1}"}) {
    EXPECT_FALSE(packed_integers(at(value))) << value;
    EXPECT_EQ(at(value).dump(), value);
  }
  for (const char* value :
       {"[1,\"a\"]", "[1,2.5]", "[1,2147483648]", "[1,[2]]", "[1,{}]", "[1,null]"}) {
    EXPECT_EQ(member_at_fault("{\"p\":" + std::string(value) + "}", packed), "p") << value;
  }
  EXPECT_FALSE(packed_integers(members_of(R"({"q":[1]})", packed)["q"]));
}

}  // namespace
}  // namespace ridge
