#include "text/tokenizer/normalize.h"

#include <gtest/gtest.h>

#include <cstring>

#include "base/error.h"
#include "text/tokenizer/json_steps.h"
#include "text/tokenizer/tokenizer.h"
#include "text/tokenizer/unicode.h"

namespace ridge {
namespace {

TEST(Unicode, NormalFormsOfTheStandardsExamples) {
  // Unicode Standard Annex 15, figures 3 to 6.
  EXPECT_EQ(to_normal_form("\u212b", NormalForm::nfc), "\u00c5");
  EXPECT_EQ(to_normal_form("\u212b", NormalForm::nfd), "A\u030a");
  EXPECT_EQ(to_normal_form("\u1e9b\u0323", NormalForm::nfc), "\u1e9b\u0323");
  EXPECT_EQ(to_normal_form("\u1e9b\u0323", NormalForm::nfd), "\u017f\u0323\u0307");
  EXPECT_EQ(to_normal_form("\u1e9b\u0323", NormalForm::nfkc), "\u1e69");
  EXPECT_EQ(to_normal_form("\u1e9b\u0323", NormalForm::nfkd), "s\u0323\u0307");
  EXPECT_EQ(to_normal_form("\ufb01 2\u2075", NormalForm::nfkc), "fi 25");
  EXPECT_EQ(to_normal_form("d\u0307\u0323", NormalForm::nfc), "\u1e0d\u0307");
}

TEST(Unicode, HangulComposesByArithmetic) {
  EXPECT_EQ(to_normal_form("\u1112\u1161\u11ab", NormalForm::nfc), "\ud55c");
  EXPECT_EQ(to_normal_form("\ud55c", NormalForm::nfd), "\u1112\u1161\u11ab");
  EXPECT_EQ(to_normal_form("\ud558\u11ab", NormalForm::nfc), "\ud55c");
}

TEST(Unicode, ExcludedCompositionsStayApart) {
  EXPECT_EQ(to_normal_form("\u0958", NormalForm::nfc), "\u0915\u093c");
  EXPECT_EQ(to_normal_form("\u2add\u0338", NormalForm::nfc), "\u2add\u0338");
}

TEST(Unicode, BytesThatAreNotTextStay) {
  EXPECT_EQ(to_normal_form("e\u0301\xFF\u0301", NormalForm::nfc), "\u00e9\xFF\u0301");
}

TEST(Unicode, LowerCase) {
  EXPECT_EQ(to_lower("ÀÉ ΑΣ ЖЯ İ Ⅷ Ა"), "àé ασ жя i\u0307 ⅷ ა");
}

std::string normalized(const char* json, std::string_view text) {
  Normalizer normalizer;
  read_normalizer(nlohmann::json::parse(json), "test", normalizer);
  WorkLimit work("the tokenizer", encode_steps(text.size()));
  return normalizer.apply(text, {grown_bytes(text.size()), work});
}

TEST(NormalizerJson, ReadsEveryKind) {
  EXPECT_EQ(normalized(R"({"type":"NFC"})", "e\u0301"), "é");
  EXPECT_EQ(normalized(R"({"type":"Strip"})", "\u00a0 a b \n"), "a b");
  EXPECT_EQ(normalized(R"({"type":"Strip","strip_left":false})", " a "), " a");
  EXPECT_EQ(normalized(R"({"type":"Prepend","prepend":"_"})", "a"), "_a");
  EXPECT_EQ(normalized(R"({"type":"Prepend","prepend":"_"})", ""), "");
  EXPECT_EQ(normalized(R"({"type":"Replace","pattern":{"Regex":" {2,}"},"content":" "})", "a   b"),
            "a b");
  EXPECT_EQ(normalized(R"({"type":"Sequence","normalizers":[{"type":"NFD"},{"type":"StripAccents"},
                           {"type":"Lowercase"}]})",
                       "ÀB"),
            "ab");
  EXPECT_THROW(normalized(R"({"type":"Sorcery"})", "a"), Error);
}

// A double array by hand: the root's children at offset 256 ^ label, "A" a leaf's parent.
TEST(CharacterMap, ReplacesWhatItKnows) {
  std::vector<uint32_t> units(512, 0);
  units[0] = 256u << 10;                                          // root: children from 256
  units[256 ^ 'A'] = 'A' | 1u << 8 | ((256u ^ 'A' ^ 300) << 10);  // its leaf lies at 300
  units[300] = 1u << 31 | 0;                                      // value 0: the first replacement
  const uint32_t bytes = uint32_t(units.size() * 4);
  std::string map(4 + bytes, '\0');
  std::memcpy(map.data(), &bytes, 4);
  std::memcpy(map.data() + 4, units.data(), bytes);
  map += std::string("bc\0", 3);
  WorkLimit work("the tokenizer", 1000);
  const Normalizer::Room room{100, work};
  EXPECT_EQ(character_map_step(map, true, "test")("xAy", room), "xbcy");
  EXPECT_EQ(character_map_step(map, false, "test")("xAy", room), "xbcy");
  EXPECT_EQ(character_map_step(map, true, "test")("x\xFF", room), "x\ufffd");
  const std::string many(50, 'A');
  for (const bool longest : {false, true}) {
    EXPECT_EQ(character_map_step(map, longest, "test")(many, room).size(), 100u);
    EXPECT_THROW(character_map_step(map, longest, "test")(many + "A", room), Error);
  }
  EXPECT_THROW(character_map_step(map.substr(0, 100), true, "test"), Error);
  EXPECT_THROW(character_map_step("", true, "test"), Error);
}

}  // namespace
}  // namespace ridge
