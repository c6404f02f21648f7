// The vocabulary in a GGUF's metadata.
#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "model/gguf.h"
#include "text/tokenizer/pipeline.h"
#include "text/tokenizer/pre_patterns.h"
#include "text/tokenizer/special.h"

namespace ridge {
namespace {

constexpr size_t kMaxTokens = 1 << 24;

class GgufTokenizerReader {
 public:
  GgufTokenizerReader(std::string_view file, const std::string& where)
      : file_(file), where_(where), header_(parse_gguf(file, where)) {}

  std::unique_ptr<Tokenizer> read() {
    const std::string kind = text("tokenizer.ggml.model").value_or("");
    if (kind.empty()) throw Error("{}: holds no tokenizer", where_);
    if (kind != "gpt2" && kind != "llama" && kind != "t5") {
      throw Error("{}: tokenizer.ggml.model '{}' is not supported; gpt2, llama and t5 are", where_,
                  kind.substr(0, 40));
    }
    read_vocabulary();
    if (kind == "gpt2") {
      read_bpe();
    } else if (kind == "llama") {
      read_scored();
    } else {
      read_unigram();
    }
    read_special();
    out_->chat_template = text("tokenizer.chat_template").value_or("");
    out_->tool_template = text("tokenizer.chat_template.tool_use").value_or("");
    return std::move(out_);
  }

 private:
  const nlohmann::json* value(std::string_view key) const {
    const auto found = header_.values.find(key);
    return found == header_.values.end() ? nullptr : &found->second;
  }
  std::optional<std::string> text(std::string_view key) const {
    const nlohmann::json* found = value(key);
    if (found == nullptr) return std::nullopt;
    if (!found->is_string()) throw Error("{}: {} must be a string", where_, key);
    return found->get<std::string>();
  }
  bool flag(std::string_view key, bool otherwise) const {
    const nlohmann::json* found = value(key);
    if (found == nullptr) return otherwise;
    if (!found->is_boolean()) throw Error("{}: {} must be true or false", where_, key);
    return found->get<bool>();
  }
  // Files name ids that are not there (padding of another vocabulary): as good as none.
  std::optional<Token> token(std::string_view key) const {
    const nlohmann::json* found = value(key);
    if (found == nullptr || !found->is_number_integer()) return std::nullopt;
    if (*found < 0 || *found >= out_->vocabulary.size()) return std::nullopt;
    return found->get<Token>();
  }

  void read_vocabulary() {
    const auto pieces = gguf_strings(file_, header_, "tokenizer.ggml.tokens", where_);
    const auto scores = gguf_numbers(file_, header_, "tokenizer.ggml.scores", where_);
    const auto kinds = gguf_numbers(file_, header_, "tokenizer.ggml.token_type", where_);
    if (pieces.empty()) throw Error("{}: the vocabulary is empty", where_);
    if (pieces.size() > kMaxTokens)
      throw Error("{}: {} tokens are too many", where_, pieces.size());
    for (const auto* list : {&scores, &kinds}) {
      if (!list->empty() && list->size() < pieces.size()) {
        throw Error("{}: {} tokens but {} scores or types", where_, pieces.size(), list->size());
      }
    }
    for (size_t i = 0; i < pieces.size(); ++i) {
      const double number = kinds.empty() ? 1 : kinds[i];
      const bool known = number >= 1 && number <= 6 && number == std::floor(number);
      out_->vocabulary.set(static_cast<Token>(i), std::string(pieces[i]),
                           scores.empty() ? 0 : scores[i],
                           known ? static_cast<TokenKind>(int(number)) : TokenKind::normal);
    }
    out_->vocabulary.index();
    add_tokens();
  }

  void add_tokens() {
    const Vocabulary& vocabulary = out_->vocabulary;
    // Phi 3's tokens take the white space after them; GGUF has no place to say so, only the name.
    std::string name = text("general.name").value_or("");
    std::transform(name.begin(), name.end(), name.begin(),
                   [](char c) { return c >= 'A' && c <= 'Z' ? char(c - 'A' + 'a') : c; });
    const bool strips = name.find("phi-3") != name.npos || name.find("phi3") != name.npos;
    out_->verbatim.resize(size_t(vocabulary.size()));
    for (Token id = 0; id < vocabulary.size(); ++id) {
      const TokenKind kind = vocabulary[id].kind;
      const bool special = kind == TokenKind::control || kind == TokenKind::unknown;
      if (!special && kind != TokenKind::user_defined) continue;
      out_->verbatim[size_t(id)] = true;
      if (vocabulary.find(vocabulary[id].text) != id) continue;  // another has the same text
      AddedToken token;
      token.text = vocabulary[id].text;
      token.id = id;
      token.special = special;
      token.right_strip =
          strips && token.text != "<unk>" && token.text != "<s>" && token.text != "<|endoftext|>";
      out_->added.add(std::move(token));
    }
    out_->added.index();
  }

  void read_bpe() {
    const PrePatterns pre = pre_patterns(text("tokenizer.ggml.pre").value_or(""), where_);
    out_->spelling = pre.spaces ? Spelling::spaces : Spelling::bytes;
    if (pre.spaces) out_->normalizer.add(replace_step(" ", std::string(kSpaceMark)));
    for (const char* pattern : pre.patterns) {
      out_->pre_tokenizer.split(Regex::pattern(pattern, where_), SplitBehaviour::isolated);
    }
    if (!pre.spaces) out_->pre_tokenizer.byte_level(false, false, where_);
    out_->adds_bos = pre.adds_bos;

    BpeRules rules;
    rules.whole_words = pre.whole_words;
    rules.byte_fallback = pre.spaces;
    const auto merges = gguf_strings(file_, header_, "tokenizer.ggml.merges", where_);
    if (merges.empty()) throw Error("{}: tokenizer.ggml.merges is missing", where_);
    rules.merges.reserve(merges.size());
    rules.merged.reserve(merges.size());
    const Vocabulary& vocabulary = out_->vocabulary;
    for (std::string_view merge : merges) {
      const size_t space = merge.find(' ', 1);
      const size_t rank = rules.merges.size();
      if (space == merge.npos) throw Error("{}: merge {} must be two pieces", where_, rank);
      const std::string left(merge.substr(0, space)), right(merge.substr(space + 1));
      const auto first = vocabulary.find(left), second = vocabulary.find(right);
      const auto made = vocabulary.find(left + right);
      if (!first || !second || !made) {
        throw Error("{}: merge {} ('{}' and '{}') needs a piece that is not in the vocabulary",
                    where_, rank, left.substr(0, 40), right.substr(0, 40));
      }
      rules.merges.emplace_back(*first, *second);
      rules.merged.push_back(*made);
    }
    out_->model = make_bpe(vocabulary, std::move(rules));
  }

  std::optional<Token> unknown() const {
    if (const auto named = token("tokenizer.ggml.unknown_token_id")) return named;
    for (Token id = 0; id < out_->vocabulary.size(); ++id) {
      if (out_->vocabulary[id].kind == TokenKind::unknown) return id;
    }
    return std::nullopt;
  }

  void read_scored() {
    out_->spelling = Spelling::spaces;
    out_->strips_first_space = flag("tokenizer.ggml.add_space_prefix", true);
    if (out_->strips_first_space) out_->normalizer.add(prepend_step(std::string(kSpaceMark)));
    out_->normalizer.add(replace_step(" ", std::string(kSpaceMark)));
    out_->model = make_scored_bpe(out_->vocabulary, unknown());
    out_->adds_bos = true;
  }

  void read_unigram() {
    out_->spelling = Spelling::spaces;
    const bool prefix = flag("tokenizer.ggml.add_space_prefix", true);
    const bool merges = flag("tokenizer.ggml.remove_extra_whitespaces", false);
    out_->strips_first_space = prefix || merges;
    const auto map = gguf_numbers(file_, header_, "tokenizer.ggml.precompiled_charsmap", where_);
    if (!map.empty()) {
      std::string bytes;
      bytes.reserve(map.size());
      for (double byte : map) {
        const bool whole = byte >= -128 && byte <= 255 && byte == std::floor(byte);
        if (!whole) throw Error("{}: precompiled_charsmap must hold bytes", where_);
        bytes += static_cast<char>(static_cast<int>(byte));
      }
      out_->normalizer.add(character_map_step(std::move(bytes), true, where_));
    }
    out_->normalizer.add([=](std::string_view given, const Normalizer::Room&) {
      return mark_words(given, prefix, merges);
    });
    out_->model = make_unigram(out_->vocabulary, {unknown(), false, true});
    out_->adds_eos = true;
  }

  // Spaces to marks; one before the first word where `prefix`, exactly one before every word where
  // `merges`.
  static std::string mark_words(std::string_view given, bool prefix, bool merges) {
    std::string out;
    bool marked = false, in_word = false;
    for (char c : given) {
      if (c == ' ') {
        in_word = false;
        if (!merges) out += kSpaceMark;
        continue;
      }
      if (!in_word && ((prefix && !marked) || merges)) {
        out += kSpaceMark;
        marked = true;
      }
      in_word = true;
      out += c;
    }
    return out;
  }

  void read_special() {
    out_->bos = token("tokenizer.ggml.bos_token_id");
    out_->eos = token("tokenizer.ggml.eos_token_id");
    out_->adds_bos = flag("tokenizer.ggml.add_bos_token", out_->adds_bos) && out_->bos;
    out_->adds_eos = flag("tokenizer.ggml.add_eos_token", out_->adds_eos) && out_->eos;
    add_known_ends(*out_);
    for (const char* key : {"tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"}) {
      if (const auto end = token(key)) add_end(*out_, *end);
    }
  }

  std::string_view file_;
  const std::string& where_;
  GgufHeader header_;
  std::unique_ptr<Pipeline> out_ = std::make_unique<Pipeline>();
};

}  // namespace

std::unique_ptr<Tokenizer> tokenizer_from_gguf(std::string_view file, const std::string& where) {
  return GgufTokenizerReader(file, where).read();
}

}  // namespace ridge
