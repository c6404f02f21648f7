#include "text/tokenizer/special.h"

#include <algorithm>

namespace ridge {

void add_end(Tokenizer& tokenizer, Token token) {
  auto& ends = tokenizer.ends;
  if (std::find(ends.begin(), ends.end(), token) == ends.end()) ends.push_back(token);
}

void add_known_ends(Pipeline& tokenizer) {
  // Llama 3, ChatML, Phi 3, Gemma, GPT-2 and Qwen, Llama 3.1's tools, CodeLlama, DeepSeek, gpt-oss,
  // Command R.
  static constexpr const char* kEnds[] = {
      "<|eot_id|>",           "<|im_end|>", "<|end|>", "<end_of_turn>",         "<|endoftext|>",
      "<|end_of_text|>",      "<|eom_id|>", "<EOT>",   "<｜end▁of▁sentence｜>", "<|return|>",
      "<|END_OF_TURN_TOKEN|>"};
  const auto add = [&](const char* text) {
    const auto token = tokenizer.find(text);
    if (!token) return;
    const TokenKind kind = tokenizer.vocabulary[*token].kind;
    if (kind == TokenKind::control || kind == TokenKind::user_defined) add_end(tokenizer, *token);
  };
  if (tokenizer.eos) add_end(tokenizer, *tokenizer.eos);
  for (const char* text : kEnds) add(text);
  // A tokenizer.json alone does not name its eos. Where nothing else ends, SentencePiece's names
  // do.
  for (const char* text : {"</s>", "<eos>"}) {
    if (tokenizer.ends.empty()) add(text);
  }
}

}  // namespace ridge
