// Text to token ids and back, as the model's own files say.
//
// Three kinds of vocabulary: byte-level BPE (GPT-2, Llama 3, Qwen), SentencePiece-style BPE by
// score or merges (Llama 2, Gemma) and unigram. Read from tokenizer.json or from a GGUF's metadata.
//
// Tokenizers are strangers' text, and so are prompts. Encoding a text spends at most encode_steps()
// of a WorkLimit, whatever the vocabulary; while it is normalised and cut into words it grows to at
// most grown_bytes(). How long a regular expression scans is not counted in steps: where it scans
// the text again and again, encode_time() ends it.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/work_limit.h"

namespace ridge {

using Token = int32_t;

// Text without spaces spends about 10 steps a byte with the vocabularies that are known, and 60
// where normalisation makes each character thirteen.
constexpr uint64_t encode_steps(size_t bytes) {
  return (uint64_t{1} << 20) + 128 * uint64_t{bytes};
}
constexpr std::chrono::seconds encode_time(size_t bytes) {
  return std::chrono::seconds(60 + (bytes >> 20));
}
// One character may become 11 times as long (U+FDFA in NFKC), and then twice that in GPT-2's
// alphabet.
constexpr size_t grown_bytes(size_t bytes) { return 4096 + 32 * bytes; }

// A stretch of a text that is encoded as one.
struct TextPart {
  std::string_view text;
  bool parse_special = false;  // special tokens written in it are tokens, not text
};

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // Tokens of `text`. Special tokens written in the text are text unless `parse_special`; nothing
  // is added before or after it. Any bytes are accepted: what is not UTF-8 falls back to bytes or
  // to the unknown token.
  std::vector<Token> encode(std::string_view text, bool parse_special = false) const {
    const TextPart part{text, parse_special};
    return encode({&part, 1}, {});
  }
  // The parts one after the other, as one text: what a template adds may be parsed while what a
  // user wrote between is not.
  // `cancelled`: the work is given up once it is true.
  std::vector<Token> encode(std::span<const TextPart> parts,
                            const std::function<bool()>& cancelled) const {
    size_t bytes = 0;
    for (const TextPart& part : parts) bytes += part.text.size();
    WorkLimit work("the tokenizer", encode_steps(bytes), encode_time(bytes), cancelled);
    return encode_parts(parts, work);
  }
  virtual std::vector<Token> encode_parts(std::span<const TextPart> parts,
                                          WorkLimit& work) const = 0;
  // The bytes a token stands for; a single token may be part of a character. Control tokens stand
  // for nothing unless `special`.
  virtual std::string decode(Token token, bool special = false) const = 0;
  // The whole, with what only applies at its start (SentencePiece's leading space) undone.
  virtual std::string decode(std::span<const Token> tokens, bool special = false) const = 0;

  virtual Token size() const = 0;  // ids are 0 .. size() - 1
  // As the vocabulary writes it: "Ġthe", "▁the", "<0x0A>". What `ridge tokenize --json` shows.
  virtual std::string_view piece(Token token) const = 0;
  virtual std::optional<Token> find(std::string_view piece) const = 0;  // exact piece
  virtual bool is_special(Token token) const = 0;                       // control tokens

  // What the files ask for. The beginning token is put before a prompt when `adds_bos`.
  std::optional<Token> bos, eos;
  bool adds_bos = false, adds_eos = false;
  std::vector<Token> ends;    // any of these ends a generation: eos, end of turn
  std::string chat_template;  // as the files have it (Jinja); empty: none
  std::string tool_template;  // the one for requests with tools; empty: the same as without
};

// `where` only names the source in errors. Throws Error for what is not understood or does not hold
// (ids out of range or twice, merges of unknown pieces, unknown pre-tokenisers).
std::unique_ptr<Tokenizer> tokenizer_from_json(std::string_view tokenizer_json,
                                               const std::string& where);
std::unique_ptr<Tokenizer> tokenizer_from_gguf(std::string_view file, const std::string& where);
// A folder (tokenizer.json with tokenizer_config.json and generation_config.json where they lie), a
// tokenizer.json, a *.gguf, or a model of the Hugging Face cache ("org/name").
std::unique_ptr<Tokenizer> load_tokenizer(const std::string& path);

// Cuts a stream of token bytes at whole UTF-8 characters.
class Utf8Stream {
 public:
  std::string push(std::string_view bytes);  // what can be shown now
  std::string finish();                      // the rest; what never became a character as U+FFFD

 private:
  std::string pending_;
};

}  // namespace ridge
