#include "text/tokenizer/pipeline.h"

#include <algorithm>

#include "text/tokenizer/byte_level.h"

namespace ridge {

// What one call needs.
struct Pipeline::Encoding {
  WorkLimit& limit;
  std::vector<Token> tokens;
  Words words;
  WordCache* cache;  // null while another thread has it
};

void Pipeline::encode_word(std::string_view word, Encoding& work) const {
  work.limit.spend();
  if (work.cache == nullptr || word.size() > WordCache::kLongest) {
    return model->encode(word, work.words.as_bytes, work.tokens, work.limit);
  }
  if (work.cache->fetch(word, work.tokens)) return;
  const size_t before = work.tokens.size();
  model->encode(word, work.words.as_bytes, work.tokens, work.limit);
  work.cache->store(word, work.tokens.data() + before, work.tokens.size() - before);
}

void Pipeline::encode_text(std::string_view text, bool first, size_t most, Encoding& work) const {
  pre_tokenizer.apply(text, first, model->takes_bytes(), most, work.words, work.limit);
  const WordCuts cuts = work.words.as_bytes ? WordCuts() : model->cuts();
  for (std::string_view word : work.words.words) {
    while (!word.empty()) {
      const size_t end = cuts.first(word);
      encode_word(word.substr(0, end), work);
      word.remove_prefix(end);
    }
  }
}

std::vector<Token> Pipeline::encode_parts(std::span<const TextPart> parts, WorkLimit& limit) const {
  std::string joined;
  std::string_view text;
  std::vector<AddedTokens::Range> special;
  size_t length = 0;
  for (const TextPart& part : parts) {
    const size_t end = length + part.text.size();
    if (part.parse_special) special.push_back({length, end});
    length = end;
    if (parts.size() > 1) joined += part.text;
  }
  text = parts.size() == 1 ? parts[0].text : std::string_view(joined);

  Encoding work{limit, {}, {}, nullptr};
  work.tokens.reserve(text.size() / 3);
  const std::unique_lock lock(cache_mutex_, std::try_to_lock);
  if (lock) work.cache = &cache_;
  size_t at = 0;
  for (const TextSegment& segment : added.split(text, special, limit)) {
    const size_t start = at;
    at += segment.text.size();
    if (segment.id >= 0) {
      work.tokens.push_back(segment.id);
      continue;
    }
    const size_t most = grown_bytes(segment.text.size());
    std::string normalized;
    std::string_view now = segment.text;
    if (!normalizer.empty()) now = normalized = normalizer.apply(segment.text, {most, limit});
    if (added_normalized.empty()) {
      if (!now.empty()) encode_text(now, start == 0, most, work);
      continue;
    }
    // Places have moved: special tokens count here where they do in all of the segment.
    std::vector<AddedTokens::Range> allowed;
    const auto range = std::partition_point(special.begin(), special.end(),
                                            [&](const auto& one) { return one.end < at; });
    if (range != special.end() && range->begin <= start) allowed.push_back({0, now.size()});
    bool first = start == 0;
    for (const TextSegment& part : added_normalized.split(now, allowed, limit)) {
      if (part.id >= 0) {
        work.tokens.push_back(part.id);
      } else {
        encode_text(part.text, first, most, work);
      }
      first = false;
    }
  }
  return std::move(work.tokens);
}

std::string_view Pipeline::piece(Token token) const {
  if (token < 0 || token >= vocabulary.size()) return {};
  return vocabulary[token].text;
}

bool Pipeline::is_special(Token token) const {
  if (token < 0 || token >= vocabulary.size()) return false;
  const TokenKind kind = vocabulary[token].kind;
  return kind == TokenKind::control || kind == TokenKind::unknown;
}

std::string Pipeline::decode(Token token, bool special) const {
  if (token < 0 || token >= vocabulary.size()) return {};
  const Piece& piece = vocabulary[token];
  if (is_special(token) && !special) return {};
  if (is_special(token)) return piece.text;
  if (spelling == Spelling::bytes) {
    const auto at = static_cast<size_t>(token);
    if (at < verbatim.size() && verbatim[at]) return piece.text;
    if (auto bytes = from_byte_characters(piece.text)) return *bytes;
    return piece.text;
  }
  if (spelling == Spelling::spaces) {
    if (const auto byte = byte_of_piece(piece.text); byte && piece.kind == TokenKind::byte) {
      return std::string(1, static_cast<char>(*byte));
    }
    return replace_all(piece.text, kSpaceMark, " ");
  }
  return piece.text;
}

std::string Pipeline::decode(std::span<const Token> tokens, bool special) const {
  std::string text;
  for (Token token : tokens) text += decode(token, special);
  if (strips_first_space && text.starts_with(' ')) text.erase(0, 1);
  return text;
}

}  // namespace ridge
