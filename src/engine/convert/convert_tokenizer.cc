// Converts a tokenizer.json to GGUF metadata. The two formats express tokenizers differently, so
// the result is read back and must tokenize a sample as the original does.
#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "base/error.h"
#include "base/json.h"
#include "engine/convert/convert.h"
#include "model/config_fields.h"
#include "text/tokenizer/tokenizer.h"

namespace ridge {

namespace {

using nlohmann::json;

// llama.cpp's names of the pre-tokenizers of byte-level vocabularies, the most common first.
constexpr const char* kPreTokenizers[] = {"gpt-2",  "llama-bpe",   "qwen2",        "tekken",
                                          "gpt-4o", "deepseek-v3", "deepseek-llm", "starcoder",
                                          "qwen35", "dbrx",        "falcon"};

// A sample on which pre-tokenizers differ: contractions, long digit runs, punctuation, spaces and
// line ends of all kinds, scripts, emoji.
constexpr const char* kSample =
    "Hello, I'm sure we've seen 1234567 things: 3.14159 'quoted' DON'T I'LL they'll go.\n\n"
    "  two  spaces\ttabs\r\n\r\n x = foo_bar(y)+12; // Caf\u00e9 na\u00efve \u00dcn\u00efc\u00f6de "
    "\u4f60\u597d\uff0c\u4e16\u754c \u3053\u3093\u306b\u3061\u306f \ud55c\uad6d\uc5b4 "
    "\u043f\u0440\u0438\u0432\u0435\u0442 \u0627\u0644\u0639\u0631\u0628\u064a\u0629 "
    "\u0939\u093f\u0928\u094d\u0926\u0940 \U0001f600\U0001f44d\U0001f3fd e\u0301 a\u00a0b \u3000"
    "...!!! ???$%^ CamelCase HTTPServer 2024-01-02 https://example.org/a?b=c&d   \n \n   end ";

enum Kind : int32_t { normal = 1, unknown = 2, control = 3, user = 4, unused = 5, byte = 6 };

// Finds an object of this type at any depth: normalizers and pre-tokenizers nest.
const json* find_type(const json& value, std::string_view type) {
  if (value.is_object() && value.value("type", json()) == type) return &value;
  if (!value.is_structured()) return nullptr;
  for (const json& each : value) {
    if (const json* found = find_type(each, type)) return found;
  }
  return nullptr;
}

class Vocabulary {
 public:
  Vocabulary(const json& file, int size, std::string where)
      : file_(file), where_(std::move(where)) {
    const Fields model = Fields(file, where_).object("model");
    model_ = &model.json();
    if (!model_->contains("vocab") || !model_->at("vocab").is_object() ||
        !model_->contains("merges")) {
      throw Error("{}: only BPE vocabularies are written to GGUF", where_);
    }
    tokens.resize(size_t(size));
    kinds.assign(size_t(size), unused);
    for (const auto& [piece, id] : model_->at("vocab").items()) set(id, piece, normal);
    read_added();
    const auto unknown_piece = model.text("unk_token");
    for (size_t i = 0; i < tokens.size(); ++i) {
      if (kinds[i] == unused) tokens[i] = fmt::format("[PAD{}]", i);
      if (kinds[i] == normal && tokens[i].size() == 6 && tokens[i].starts_with("<0x")) {
        kinds[i] = byte;
      }
      if (unknown_piece && tokens[i] == *unknown_piece) kinds[i] = unknown;
    }
    for (const json& merge : model_->at("merges")) read_merge(merge);
  }

  bool byte_level() const {
    return find_type(file_.value("pre_tokenizer", json()), "ByteLevel") ||
           find_type(file_.value("decoder", json()), "ByteLevel");
  }

  // Whether a space is prepended to the text, by the normalizer or by Metaspace.
  bool space_before() const {
    if (find_type(file_.value("normalizer", json()), "Prepend")) return true;
    const json pre = file_.value("pre_tokenizer", json());
    const json* metaspace = find_type(pre, "Metaspace");
    if (!metaspace) return false;
    if (metaspace->contains("prepend_scheme")) return metaspace->at("prepend_scheme") != "never";
    return metaspace->value("add_prefix_space", json(true)) == json(true);
  }

  // SentencePiece merges the pair with the best score first, so earlier merges get higher scores.
  std::vector<float> scores() const {
    std::unordered_map<std::string, float> rank;
    for (const std::string& merge : merges) {
      std::string made = merge;
      made.erase(made.find(' ', 1), 1);
      rank.emplace(std::move(made), -float(rank.size()));
    }
    std::vector<float> all;
    for (const std::string& token : tokens) {
      const auto found = rank.find(token);
      all.push_back(found == rank.end() ? -1e6f : found->second);
    }
    return all;
  }

  std::vector<std::string> tokens, merges;
  std::vector<int32_t> kinds;

 private:
  void set(const json& id, const std::string& piece, Kind kind) {
    if (!id.is_number_integer() || id < 0) throw Error("{}: ids must be whole numbers", where_);
    if (id >= tokens.size()) {
      throw Error("{}: token {} lies beyond the model's {}", where_, id.dump(), tokens.size());
    }
    tokens[id.get<size_t>()] = piece;
    kinds[id.get<size_t>()] = kind;
  }

  void read_added() {
    const json added = file_.value("added_tokens", json::array());
    for (const json& each : added) {
      if (!each.is_object() || !each.value("content", json()).is_string()) continue;
      const bool special = each.value("special", json(false)) == json(true);
      set(each.value("id", json()), each.at("content").get<std::string>(),
          special ? control : user);
    }
  }

  void read_merge(const json& merge) {
    if (merge.is_string()) {
      merges.push_back(merge.get<std::string>());
    } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() &&
               merge[1].is_string()) {
      merges.push_back(merge[0].get<std::string>() + " " + merge[1].get<std::string>());
    } else {
      throw Error("{}: a merge must be two pieces", where_);
    }
    if (merges.back().find(' ', 1) == std::string::npos) {
      throw Error("{}: a merge must be two pieces", where_);
    }
  }

  const json& file_;
  std::string where_;
  const json* model_ = nullptr;
};

void add_specials(GgufPairs& pairs, const Weights& weights, const Tokenizer& tokenizer) {
  auto token = [&](const char* key, std::optional<Token> id) {
    if (id) pairs.integer(key, uint32_t(*id));
  };
  const std::vector<int>& ends = weights.architecture.ends;
  std::optional<Token> end = tokenizer.eos;
  if (!end && !ends.empty()) end = ends[0];
  token("tokenizer.ggml.bos_token_id", tokenizer.bos);
  token("tokenizer.ggml.eos_token_id", end);
  for (int other : ends) {
    if (end && other != *end) {
      token("tokenizer.ggml.eot_token_id", other);
      break;
    }
  }
  pairs.flag("tokenizer.ggml.add_bos_token", tokenizer.adds_bos);
  pairs.flag("tokenizer.ggml.add_eos_token", tokenizer.adds_eos);
  if (!tokenizer.chat_template.empty()) {
    pairs.text("tokenizer.chat_template", tokenizer.chat_template);
  }
  if (!tokenizer.tool_template.empty()) {
    pairs.text("tokenizer.chat_template.tool_use", tokenizer.tool_template);
  }
}

GgufPairs vocabulary_pairs(const Vocabulary& vocabulary, const char* pre, const Weights& weights,
                           const Tokenizer& tokenizer) {
  GgufPairs pairs;
  pairs.text("tokenizer.ggml.model", pre ? "gpt2" : "llama");
  pairs.text("tokenizer.ggml.pre", pre ? pre : "default");
  pairs.texts("tokenizer.ggml.tokens", vocabulary.tokens);
  if (!pre) pairs.numbers("tokenizer.ggml.scores", vocabulary.scores());
  pairs.integers("tokenizer.ggml.token_type", vocabulary.kinds);
  if (pre) pairs.texts("tokenizer.ggml.merges", vocabulary.merges);
  if (!pre) pairs.flag("tokenizer.ggml.add_space_prefix", vocabulary.space_before());
  add_specials(pairs, weights, tokenizer);
  return pairs;
}

// Whether the pairs, read back, tokenize the sample as `tokenizer` does.
bool agrees(const GgufPairs& pairs, const Tokenizer& tokenizer, const std::string& where) {
  std::vector<OutTensor> none;
  std::unique_ptr<Tokenizer> read;
  try {
    read = tokenizer_from_gguf(gguf_head(pairs, none), where);
  } catch (const Error&) {
    return false;
  }
  return read->encode(kSample) == tokenizer.encode(kSample) && read->bos == tokenizer.bos &&
         read->adds_bos == tokenizer.adds_bos;
}

}  // namespace

void add_gguf_vocabulary(GgufPairs& pairs, const Weights& weights, const std::string& folder) {
  const std::string where = (std::filesystem::path(folder) / "tokenizer.json").string();
  const json file = read_json(where);
  const std::unique_ptr<Tokenizer> tokenizer = load_tokenizer(folder);
  const Vocabulary vocabulary(file, weights.architecture.vocab, where);
  auto attempt = [&](const char* pre) {
    const GgufPairs made = vocabulary_pairs(vocabulary, pre, weights, *tokenizer);
    if (!agrees(made, *tokenizer, where)) return false;
    pairs.append(made);
    return true;
  };
  if (!vocabulary.byte_level()) {
    if (attempt(nullptr)) return;
  } else {
    for (const char* pre : kPreTokenizers) {
      if (attempt(pre)) return;
    }
  }
  throw Error("{}: this tokenizer cannot be written to GGUF so that it cuts text the same", where);
}

}  // namespace ridge
