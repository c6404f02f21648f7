// Unicode normal forms and lower case, from a table that tools/unicode/make_tables.py wrote
// (Unicode 14, the version PCRE2 10.42 has). Bytes that are not UTF-8 stay as they are.
#pragma once

#include <string>
#include <string_view>

namespace ridge {

enum class NormalForm { nfc, nfd, nfkc, nfkd };  // Unicode Standard Annex 15

std::string to_normal_form(std::string_view text, NormalForm form);
// Character by character, as Hugging Face's Lowercase does: no final sigma.
std::string to_lower(std::string_view text);

}  // namespace ridge
