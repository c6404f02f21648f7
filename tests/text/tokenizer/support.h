#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "text/tokenizer/tokenizer.h"

namespace ridge {

inline std::unique_ptr<Tokenizer> from_json(const nlohmann::json& json) {
  return tokenizer_from_json(json.dump(), "test");
}

inline std::vector<std::string> pieces(const Tokenizer& tokenizer, std::string_view text,
                                       bool special = false) {
  std::vector<std::string> all;
  for (Token token : tokenizer.encode(text, special)) all.emplace_back(tokenizer.piece(token));
  return all;
}

inline std::string decoded(const Tokenizer& tokenizer, const std::vector<Token>& tokens,
                           bool special = false) {
  return tokenizer.decode(std::span(tokens), special);
}

using Strings = std::vector<std::string>;

}  // namespace ridge
