#include "text/grammar/json_string.h"

#include <string_view>

namespace ridge::grammar {

namespace {

using string_detail::Table;

// States beside kStringBody. Hex counts the digits that are left; a high surrogate's escape must be
// followed by a low one's.
enum : StringState {
  kEscape = 1,  // after a backslash
  kHex4,
  kHex3,
  kHex2,
  kHex1,  // after \u
  kHexD,  // after \uD: a surrogate or a Korean syllable
  kHigh2,
  kHigh1,  // after \uD8 to \uDB
  kLowEscape,
  kLowU,
  kLowD,
  kLowC,  // then \ u D and C to F
  kTail1,
  kTail2,
  kTail3,  // UTF-8 continuation bytes that are left
  kTailE0,
  kTailED,
  kTailF0,
  kTailF4  // after the lead bytes that restrict the next byte
};
static_assert(kTailF4 + 1 == string_detail::kStates);

constexpr void set_range(Table& table, StringState from, int low, int high, StringState to) {
  for (int byte = low; byte <= high; ++byte) table[from][static_cast<size_t>(byte)] = to;
}

constexpr void set_hex(Table& table, StringState from, StringState to) {
  set_range(table, from, '0', '9', to);
  set_range(table, from, 'a', 'f', to);
  set_range(table, from, 'A', 'F', to);
}

constexpr Table make_table(StringKind kind) {
  Table table{};
  for (auto& row : table) {
    for (StringState& to : row) to = kStringFail;
  }
  set_range(table, kStringBody, 0x20, 0x7F, kStringBody);
  table[kStringBody]['"'] = kStringEnd;
  table[kStringBody]['\\'] = kEscape;
  set_range(table, kStringBody, 0xC2, 0xDF, kTail1);
  set_range(table, kStringBody, 0xE0, 0xEF, kTail2);
  table[kStringBody][0xE0] = kTailE0;
  table[kStringBody][0xED] = kTailED;
  set_range(table, kStringBody, 0xF1, 0xF3, kTail3);
  table[kStringBody][0xF0] = kTailF0;
  table[kStringBody][0xF4] = kTailF4;
  set_range(table, kTail1, 0x80, 0xBF, kStringBody);
  set_range(table, kTail2, 0x80, 0xBF, kTail1);
  set_range(table, kTail3, 0x80, 0xBF, kTail2);
  set_range(table, kTailE0, 0xA0, 0xBF, kTail1);  // no overlong forms
  set_range(table, kTailED, 0x80, 0x9F, kTail1);  // no surrogates
  set_range(table, kTailF0, 0x90, 0xBF, kTail2);  // no overlong forms
  set_range(table, kTailF4, 0x80, 0x8F, kTail2);  // nothing above U+10FFFF
  for (char c : std::string_view("\"\\bfnrt"))
    table[kEscape][static_cast<uint8_t>(c)] = kStringBody;
  if (kind == StringKind::key) return table;

  table[kEscape]['/'] = kStringBody;
  table[kEscape]['u'] = kHex4;
  set_hex(table, kHex4, kHex3);
  table[kHex4]['d'] = table[kHex4]['D'] = kHexD;
  set_hex(table, kHex3, kHex2);
  set_hex(table, kHex2, kHex1);
  set_hex(table, kHex1, kStringBody);
  set_range(table, kHexD, '0', '7', kHex2);
  for (char c : std::string_view("89abAB")) table[kHexD][static_cast<uint8_t>(c)] = kHigh2;
  set_hex(table, kHigh2, kHigh1);
  set_hex(table, kHigh1, kLowEscape);
  table[kLowEscape]['\\'] = kLowU;
  table[kLowU]['u'] = kLowD;
  table[kLowD]['d'] = table[kLowD]['D'] = kLowC;
  for (char c : std::string_view("cdefCDEF")) table[kLowC][static_cast<uint8_t>(c)] = kHex2;
  return table;
}

}  // namespace

constexpr std::array<Table, kStringKinds> string_detail::kTables = {make_table(StringKind::value),
                                                                    make_table(StringKind::key)};

}  // namespace ridge::grammar
