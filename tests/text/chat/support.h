// Tokenizers and conversations for the tests of chat templates.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "../tokenizer/vocabularies.h"
#include "base/file.h"
#include "base/json.h"
#include "text/tokenizer/tokenizer.h"

namespace ridge {

// 26 July 2024, 12:00 in UTC: the same day in nearly every zone.
inline constexpr std::time_t kChatTime = 1721995200;

inline std::string chat_file(const std::string& name) {
  return read_file(RIDGE_SOURCE_DIR "/tests/data/chat/" + name, kMaxJsonBytes);
}

// Every byte a token, then these as special tokens from 256 on; <s> and </s> are the first two.
inline std::unique_ptr<Tokenizer> chat_tokenizer(const std::string& chat_template,
                                                 std::vector<std::string> special = {}) {
  special.insert(special.begin(), {"<s>", "</s>"});
  nlohmann::json json = sample::byte_level_json({});
  int id = 256;
  for (const std::string& text : special) {
    json["added_tokens"].push_back(sample::added_token(id++, text, true));
  }
  auto tokenizer = tokenizer_from_json(json.dump(), "test");
  tokenizer->bos = 256;
  tokenizer->eos = 257;
  tokenizer->adds_bos = false;
  tokenizer->chat_template = chat_template;
  return tokenizer;
}

}  // namespace ridge
