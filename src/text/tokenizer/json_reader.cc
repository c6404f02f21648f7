// Hugging Face's tokenizer.json.
#include <algorithm>
#include <array>
#include <limits>

#include "base/error.h"
#include "base/json.h"
#include "text/tokenizer/json_steps.h"
#include "text/tokenizer/pipeline.h"
#include "text/tokenizer/special.h"

namespace ridge {
namespace {

using nlohmann::json;

class JsonTokenizerReader {
 public:
  JsonTokenizerReader(const json& root, const std::string& where) : root_(root), where_(where) {}

  std::unique_ptr<Tokenizer> read() {
    if (!root_.is_object()) throw Error("{}: must be an object", where_);
    const json& model = member("model");
    if (model.is_null()) throw Error("{}: model is missing", where_);
    const std::string type = model_type(model);
    read_normalizer(member("normalizer"), where_ + ": normalizer", out_->normalizer);
    read_pre_tokenizer(member("pre_tokenizer"), where_ + ": pre_tokenizer", out_->pre_tokenizer);
    read_decoder(member("decoder"));
    byte_fallback_ = bool_field(model, "byte_fallback", where_).value_or(false);
    if (type == "BPE") {
      read_vocabulary(model);
    } else {
      read_scored_vocabulary(model);
    }
    read_added_tokens();
    if (out_->vocabulary.size() == 0) throw Error("{}: the vocabulary is empty", where_);
    out_->vocabulary.index();
    out_->model = type == "BPE" ? read_bpe(model) : read_unigram(model);
    normalize_added_tokens();
    read_post_processor(member("post_processor"));
    add_known_ends(*out_);
    return std::move(out_);
  }

 private:
  const json& member(const char* key) const {
    static const json kNull;
    const auto found = root_.find(key);
    return found == root_.end() ? kNull : *found;
  }

  // Old files leave the type out: the fields tell.
  std::string model_type(const json& model) const {
    const std::string guessed = model.is_object() && model.contains("merges") ? "BPE" : "Unigram";
    const std::string type = string_field(model, "type", where_ + ": model").value_or(guessed);
    if (type == "BPE" || type == "Unigram") return type;
    throw Error("{}: model type {} is not supported, BPE and Unigram are", where_, type);
  }

  void set(Token id, std::string text, double score) {
    const bool byte = (byte_fallback_ || bytes_decoded_) && byte_of_piece(text).has_value();
    out_->vocabulary.set(id, std::move(text), score, byte ? TokenKind::byte : TokenKind::normal);
  }

  void read_vocabulary(const json& model) {
    const auto found = model.find("vocab");
    if (found == model.end() || !found->is_object()) {
      throw Error("{}: model.vocab must be an object of ids by piece", where_);
    }
    const Token largest = Vocabulary::largest_id(found->size());
    std::vector<bool> seen(size_t(largest) + 1);
    for (const auto& [text, value] : found->items()) {
      const Token id = id_of(value, text, largest);
      if (seen[size_t(id)]) throw Error("{}: id {} is given to two pieces", where_, id);
      seen[size_t(id)] = true;
      set(id, text, 0);
    }
  }

  Token id_of(const json& value, const std::string& text, Token largest) const {
    if (!value.is_number_integer() || value < 0 || value > largest) {
      throw Error("{}: the id of '{}' must be an integer from 0 to {}, not {}", where_,
                  text.substr(0, 40), largest, value.dump().substr(0, 40));
    }
    return value.get<Token>();
  }

  void read_scored_vocabulary(const json& model) {
    Token id = 0;
    for (const json& entry : json_list(model, "vocab", where_ + ": model")) {
      if (!entry.is_array() || entry.size() != 2 || !entry[0].is_string() ||
          !entry[1].is_number()) {
        throw Error("{}: entry {} of model.vocab must be a piece and its score", where_, id);
      }
      set(id++, entry[0].get<std::string>(), entry[1].get<double>());
    }
  }

  void read_added_tokens() {
    Vocabulary& vocabulary = out_->vocabulary;
    vocabulary.index();
    const json& list = json_list(root_, "added_tokens", where_);
    const std::string where = where_ + ": added_tokens";
    const Token largest = Vocabulary::largest_id(size_t(vocabulary.size()) + list.size());
    std::vector<std::pair<Token, AddedToken>> set_later;
    for (const json& entry : list) {
      AddedToken token;
      token.text = json_text(entry, "content", where);
      const auto given = integer_field(entry, "id", where, 0, largest);
      const auto known = vocabulary.find(token.text);
      if (!given && !known) throw Error("{}: '{}' has no id", where, token.text.substr(0, 40));
      token.id = known ? *known : static_cast<Token>(*given);
      token.special = bool_field(entry, "special", where).value_or(false);
      token.single_word = bool_field(entry, "single_word", where).value_or(false);
      token.left_strip = bool_field(entry, "lstrip", where).value_or(false);
      token.right_strip = bool_field(entry, "rstrip", where).value_or(false);
      if (token.text.empty()) continue;
      if (vocabulary.has(token.id) && vocabulary[token.id].text != token.text) {
        throw Error("{}: id {} of '{}' is given to two pieces", where, token.id,
                    token.text.substr(0, 40));
      }
      const bool normalized = bool_field(entry, "normalized", where).value_or(!token.special);
      set_later.emplace_back(token.id, token);
      if (normalized) {
        normalized_.push_back(std::move(token));
      } else {
        out_->added.add(std::move(token));
      }
    }
    // After the look-ups: setting moves what the index points to.
    for (auto& [id, token] : set_later) {
      if (vocabulary.has(id) && vocabulary[id].text != token.text) {
        throw Error("{}: id {} is given to two pieces", where, id);
      }
      const double score = vocabulary.has(id) ? vocabulary[id].score : 0;
      vocabulary.set(id, token.text, score,
                     token.special ? TokenKind::control : TokenKind::user_defined);
      if (size_t(id) >= out_->verbatim.size()) out_->verbatim.resize(size_t(id) + 1);
      out_->verbatim[size_t(id)] = true;
    }
  }

  void normalize_added_tokens() {
    for (AddedToken& token : normalized_) {
      WorkLimit work("the tokenizer", encode_steps(token.text.size()));
      token.text = out_->normalizer.apply(token.text, {grown_bytes(token.text.size()), work});
      out_->added_normalized.add(std::move(token));
    }
    out_->added.index();
    out_->added_normalized.index();
  }

  std::optional<Token> read_unknown(const json& model) const {
    const auto text = string_field(model, "unk_token", where_ + ": model");
    if (!text) return std::nullopt;
    return out_->vocabulary.find(*text);
  }

  std::pair<std::string, std::string> read_merge(const json& merge, size_t rank) const {
    if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
      return {merge[0].get<std::string>(), merge[1].get<std::string>()};
    }
    if (merge.is_string()) {
      const auto& text = merge.get_ref<const std::string&>();
      const size_t space = text.find(' ');
      if (space != text.npos && text.find(' ', space + 1) == text.npos) {
        return {text.substr(0, space), text.substr(space + 1)};
      }
    }
    throw Error("{}: merge {} must be two pieces", where_, rank);
  }

  std::unique_ptr<WordModel> read_bpe(const json& model) {
    const std::string where = where_ + ": model";
    BpeRules rules;
    rules.unknown = read_unknown(model);
    rules.fuse_unknown = bool_field(model, "fuse_unk", where).value_or(false);
    rules.byte_fallback = byte_fallback_;
    rules.whole_words = bool_field(model, "ignore_merges", where).value_or(false);
    rules.inner_prefix = string_field(model, "continuing_subword_prefix", where).value_or("");
    rules.last_suffix = string_field(model, "end_of_word_suffix", where).value_or("");
    if (number_field(model, "dropout", where, 0, 1).value_or(0) > 0) {
      throw Error("{}: dropout makes tokens random; it must be null or 0", where);
    }
    const json& merges = json_list(model, "merges", where);
    rules.merges.reserve(merges.size());
    rules.merged.reserve(merges.size());
    const Vocabulary& vocabulary = out_->vocabulary;
    for (const json& merge : merges) {
      const size_t rank = rules.merges.size();
      if (merge.is_string() && merge.get_ref<const std::string&>().starts_with("#version"))
        continue;
      auto [left, right] = read_merge(merge, rank);
      const auto first = vocabulary.find(left), second = vocabulary.find(right);
      if (right.starts_with(rules.inner_prefix)) right.erase(0, rules.inner_prefix.size());
      const auto made = vocabulary.find(left + right);
      if (!first || !second || !made) {
        throw Error("{}: merge {} ('{}' and '{}') needs a piece that is not in the vocabulary",
                    where, rank, left.substr(0, 40), right.substr(0, 40));
      }
      rules.merges.emplace_back(*first, *second);
      rules.merged.push_back(*made);
    }
    return make_bpe(vocabulary, std::move(rules));
  }

  std::unique_ptr<WordModel> read_unigram(const json& model) {
    UnigramRules rules;
    const auto unknown =
        integer_field(model, "unk_id", where_ + ": model", 0, out_->vocabulary.size() - 1);
    if (unknown) {
      rules.unknown = static_cast<Token>(*unknown);
      if (out_->vocabulary[*rules.unknown].kind == TokenKind::normal) {
        out_->vocabulary.set_kind(*rules.unknown, TokenKind::unknown);
      }
    }
    rules.byte_fallback = byte_fallback_;
    return make_unigram(out_->vocabulary, rules);
  }

  // What stands before and after the text: the first special token on each side.
  void read_post_processor(const json& value) {
    if (value.is_null()) return;
    const std::string where = where_ + ": post_processor";
    const std::string type = json_text(value, "type", where);
    if (type == "Sequence") {
      for (const json& one : json_list(value, "processors", where)) {
        if (one.is_object() && one.value("type", json()) != "Sequence") read_post_processor(one);
      }
    } else if (type == "TemplateProcessing") {
      read_template(value, where);
    } else if (type == "RobertaProcessing" || type == "BertProcessing") {
      begins_with(pair_id(value, "cls", where));
      ends_with(pair_id(value, "sep", where));
    }
  }

  void read_template(const json& value, const std::string& where) {
    bool before = true;
    for (const json& item : json_list(value, "single", where)) {
      if (!item.is_object()) throw Error("{}: single must be a list of objects", where);
      if (item.contains("Sequence")) before = false;
      const auto special = item.find("SpecialToken");
      if (special == item.end()) continue;
      const auto token = out_->vocabulary.find(json_text(*special, "id", where));
      if (!token) continue;
      if (before) {
        begins_with(*token);
      } else {
        ends_with(*token);
      }
    }
  }

  Token pair_id(const json& value, const char* key, const std::string& where) const {
    const json& pair = json_list(value, key, where);
    const bool right = pair.size() == 2 && pair[1].is_number_integer() && pair[1] >= 0 &&
                       pair[1] < out_->vocabulary.size();
    if (!right) throw Error("{}: {} must be a piece and its id", where, key);
    return pair[1].get<Token>();
  }

  void begins_with(Token token) {
    if (!out_->adds_bos) out_->bos = token;
    out_->adds_bos = true;
  }
  void ends_with(Token token) {
    if (!out_->adds_eos) out_->eos = token;
    out_->adds_eos = true;
  }

  void read_decoder(const json& value, int depth = 0) {
    if (value.is_null()) return;
    const std::string where = where_ + ": decoder";
    if (depth > 4) throw Error("{}: nested too deep", where);
    const std::string type = json_text(value, "type", where);
    if (type == "Sequence") {
      for (const json& one : json_list(value, "decoders", where)) read_decoder(one, depth + 1);
    } else if (type == "ByteLevel") {
      out_->spelling = Spelling::bytes;
    } else if (type == "ByteFallback") {
      bytes_decoded_ = true;
      out_->spelling = Spelling::spaces;
    } else if (type == "Replace") {
      out_->spelling = Spelling::spaces;
    } else if (type == "Metaspace") {
      out_->spelling = Spelling::spaces;
      const bool legacy = bool_field(value, "add_prefix_space", where).value_or(true);
      const std::string scheme =
          string_field(value, "prepend_scheme", where).value_or(legacy ? "always" : "never");
      out_->strips_first_space = scheme != "never";
    } else if (type == "Strip") {
      const bool space = string_field(value, "content", where).value_or("") == " ";
      const auto start = integer_field(value, "start", where, 0, 1 << 20);
      if (space && start.value_or(0) > 0) out_->strips_first_space = true;
    }
  }

  const json& root_;
  const std::string& where_;
  std::unique_ptr<Pipeline> out_ = std::make_unique<Pipeline>();
  std::vector<AddedToken> normalized_;
  bool byte_fallback_ = false, bytes_decoded_ = false;
};

}  // namespace

std::unique_ptr<Tokenizer> tokenizer_from_json(std::string_view tokenizer_json,
                                               const std::string& where) {
  const json root = parse_json(tokenizer_json, where);
  try {
    return JsonTokenizerReader(root, where).read();
  } catch (const json::exception& error) {
    throw Error("{}: {}", where, error.what());
  }
}

}  // namespace ridge
