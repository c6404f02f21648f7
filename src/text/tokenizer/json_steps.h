// tokenizer.json's normaliser and pre-tokeniser.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "text/tokenizer/normalize.h"
#include "text/tokenizer/pretokenize.h"

namespace ridge {

// `value` is the object, or null for none. Throw Error for kinds and settings that are not known.
void read_normalizer(const nlohmann::json& value, const std::string& where, Normalizer& out);
void read_pre_tokenizer(const nlohmann::json& value, const std::string& where, PreTokenizer& out);

// A list under `key`; empty where it is missing or null.
const nlohmann::json& json_list(const nlohmann::json& object, const char* key,
                                const std::string& where);
// A text that must be there.
std::string json_text(const nlohmann::json& object, const char* key, const std::string& where);

}  // namespace ridge
