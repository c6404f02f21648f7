#include "text/tokenizer/pre_patterns.h"

#include <algorithm>

#include "base/error.h"
#include "text/tokenizer/pretokenize.h"

namespace ridge {
namespace {

// The patterns are those of each model's own tokenizer.json.

#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
// Llama 3 and its many relatives differ in how many digits stand together.
#define LLAMA3(WORD, DIGITS)                             \
  CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?" WORD "|" DIGITS \
               "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
// OpenAI's o200k: words end where capitals begin again.
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define O200K(SUFFIX, DIGITS)                                                                   \
  "[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+" SUFFIX "|[^\\r\\n\\p{L}\\p{N}]?" UPPER "+" LOWER \
  "*" SUFFIX "|" DIGITS "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

constexpr const char* kOneDigit = "\\p{N}";
constexpr const char* kThreeDigits = "\\p{N}{1,3}";
constexpr const char* kLlama3 = LLAMA3("\\p{L}+", "\\p{N}{1,3}");
constexpr const char* kQwen2 = LLAMA3("\\p{L}+", "\\p{N}");
constexpr const char* kQwen35 = CONTRACTIONS
    "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}"
    "| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
constexpr const char* kGpt4o = O200K(CONTRACTIONS "?", "\\p{N}{1,3}");
constexpr const char* kTekken = O200K("", "\\p{N}");
constexpr const char* kYoutu = O200K(CONTRACTIONS "?", "\\p{N}");

// Cased letters of Latin, Greek, Cyrillic and their like, without ª and º.
constexpr const char* kDeepseekLetters =
    "\\s?[A-Za-z\\x{b5}\\x{c0}-\\x{d6}\\x{d8}-\\x{f6}\\x{f8}-\\x{1ba}\\x{1bc}-\\x{1bf}"
    "\\x{1c4}-\\x{293}\\x{295}-\\x{2af}\\x{370}-\\x{373}\\x{376}\\x{377}\\x{37b}-\\x{37d}\\x{37f}"
    "\\x{386}\\x{388}-\\x{38a}\\x{38c}\\x{38e}-\\x{3a1}\\x{3a3}-\\x{3f5}\\x{3f7}-\\x{481}"
    "\\x{48a}-\\x{52f}\\x{531}-\\x{556}\\x{10a0}-\\x{10c5}\\x{13a0}-\\x{13f5}\\x{13f8}-\\x{13fd}"
    "\\x{1c90}-\\x{1cba}\\x{1cbd}-\\x{1cbf}\\x{1d00}-\\x{1d2b}\\x{1d6b}-\\x{1d77}"
    "\\x{1d79}-\\x{1d9a}\\x{1e00}-\\x{1f15}\\x{1f18}-\\x{1f1d}\\x{1f20}-\\x{1f45}"
    "\\x{1f48}-\\x{1f4d}\\x{1f50}-\\x{1f57}\\x{1f59}\\x{1f5b}\\x{1f5d}\\x{1f5f}-\\x{1f7d}"
    "\\x{1f80}-\\x{1fb4}\\x{1fb6}-\\x{1fbc}\\x{1fbe}\\x{1fc2}-\\x{1fc4}\\x{1fc6}-\\x{1fcc}"
    "\\x{1fd0}-\\x{1fd3}\\x{1fd6}-\\x{1fdb}\\x{1fe0}-\\x{1fec}\\x{1ff2}-\\x{1ff4}"
    "\\x{1ff6}-\\x{1ffc}\\x{2102}\\x{2107}\\x{210a}-\\x{2113}\\x{2115}\\x{2119}-\\x{211d}"
    "\\x{2124}\\x{2126}\\x{2128}\\x{212a}-\\x{212d}\\x{212f}-\\x{2134}\\x{2139}"
    "\\x{213c}-\\x{213f}\\x{2145}-\\x{2149}\\x{214e}\\x{2183}\\x{2184}\\x{2c00}-\\x{2c7b}"
    "\\x{2c7e}-\\x{2ce4}\\x{2ceb}-\\x{2cee}\\x{2cf2}\\x{2cf3}\\x{a640}-\\x{a66d}"
    "\\x{a680}-\\x{a69b}\\x{a722}-\\x{a76f}\\x{a771}-\\x{a787}\\x{a78b}-\\x{a78e}"
    "\\x{ab70}-\\x{abbf}\\x{fb00}-\\x{fb06}\\x{fb13}-\\x{fb17}\\x{ff21}-\\x{ff3a}"
    "\\x{ff41}-\\x{ff5a}\\x{10400}-\\x{1044f}\\x{104b0}-\\x{104d3}\\x{104d8}-\\x{104fb}"
    "\\x{10c80}-\\x{10cb2}\\x{10cc0}-\\x{10cf2}\\x{118a0}-\\x{118df}\\x{1e900}-\\x{1e943}]+";
constexpr const char* kDeepseekSigns =
    "\\s?[!-/:-~\\x{ff01}-\\x{ff0f}\\x{ff1a}-\\x{ff5e}\\x{2018}-\\x{201f}\\x{3000}-\\x{3002}]+";
// The model's \s+$; only a run's start can match, and saying so keeps long runs linear.
constexpr const char* kSpacesAtEnd = "(?<!\\s)\\s+$";
constexpr const char* kDeepseekEast = "[\\x{4e00}-\\x{9fa5}\\x{800}-\\x{4e00}\\x{ac00}-\\x{d7ff}]+";
constexpr const char* kDeepseek3East =
    "[\\x{4e00}-\\x{9fa5}\\x{3040}-\\x{309f}\\x{30a0}-\\x{30ff}]+";
constexpr const char* kDeepseek3 =
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?"
    "[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";

constexpr const char* kBloom =
    " ?[^(\\s|.,!?\\x{2026}\\x{3002}\\x{ff0c}\\x{3001}\\x{964}\\x{6d4}\\x{60c})]+";
constexpr const char* kYoutuEast =
    "[\\x{ac00}-\\x{d7a3}\\x{3131}-\\x{318e}]+|[\\x{ff01}\\x{2026}\\x{201c}\\x{201d}\\x{2018}"
    "\\x{2019}\\x{2014}\\x{ff1a}\\x{ff1b}\\x{ff0c}\\x{3001}-\\x{303f}\\x{fe30}-\\x{fe4f}]+"
    "|[\\x{3105}-\\x{312f}]+|[\\x{4e00}-\\x{9fa5}\\x{3040}-\\x{309f}\\x{30a0}-\\x{30ff}]+";
#define NOT_HAN(CLASS) "(?:(?!\\p{Han})" CLASS ")"
constexpr const char* kKimi = "\\p{Han}+|[^\\r\\n\\p{L}\\p{N}]?" NOT_HAN(UPPER) "*" NOT_HAN(
    LOWER) "+" CONTRACTIONS
           "?"
           "|[^\\r\\n\\p{L}\\p{N}]?" NOT_HAN(UPPER) "+" NOT_HAN(
               LOWER) "*" CONTRACTIONS
                      "?"
                      "|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
constexpr const char* kBailing =
    "'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*"
    "|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+";
constexpr const char* kSeedCoder = CONTRACTIONS
    "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1}| ?[^\\s\\p{L}\\p{N}\\r\\n]+"
    "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";

// Falcon and llama.cpp's own default, which older files without a name were made for.
constexpr const char* kFalconSigns = "[\\p{P}\\$\\+<=>\\^~\\|`]+";
constexpr const char* kDefaultSigns = "[\\p{P}\\$\\+<=>\\^~\\|]+";
constexpr const char* kThreeAscii = "[0-9][0-9][0-9]";

struct Family {
  std::vector<std::string_view> names;
  PrePatterns patterns;
};

const std::vector<Family>& families() {
  static const std::vector<Family> kFamilies = {
      {{"", "default"}, {{kDefaultSigns, kGpt2Pattern, "\\p{N}+", kThreeAscii}}},
      {{"llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2"},
       {{kLlama3}, true, true}},
      {{"dbrx", "smaug-bpe", "glm4", "chatglm-bpe"}, {{kLlama3}}},
      {{"deepseek-llm"},
       {{"[\\r\\n]", kDeepseekLetters, kDeepseekSigns, kSpacesAtEnd, kDeepseekEast, "\\p{N}+"}}},
      {{"deepseek-coder"}, {{"[\\r\\n]", "\\s?\\p{L}+", "\\s?\\p{P}+", kDeepseekEast, kOneDigit}}},
      {{"deepseek-v3", "hunyuan-dense", "joyai-llm"}, {{kThreeDigits, kDeepseek3East, kDeepseek3}}},
      {{"falcon"}, {{kFalconSigns, kGpt2Pattern, kThreeAscii}}},
      {{"starcoder", "refact", "command-r", "smollm", "codeshell", "exaone", "minerva-7b",
        "mellum2"},
       {{kOneDigit, kGpt2Pattern}}},
      {{"gpt-2", "mpt", "olmo", "jais", "trillion", "granite-docling", "phi-2", "jina-es",
        "jina-de", "jina-v1-en", "jina-v2-es", "jina-v2-de", "jina-v2-code", "roberta-bpe",
        "gigachat", "a.x-4.0", "mellum", "modern-bert", "exaone4"},
       {{kGpt2Pattern}}},
      {{"qwen2", "stablelm2", "hunyuan", "solar-open", "deepseek-r1-qwen", "megrez", "grok-2",
        "kormo"},
       {{kQwen2}}},
      {{"qwen35"}, {{kQwen35}}},
      {{"minicpm5"}, {{kThreeDigits, LLAMA3("\\p{L}+", "\\p{N}+")}, true}},
      {{"poro-chat", "bloom", "gpt3-finnish"}, {{kBloom}}},
      {{"viking"}, {{kBloom, kOneDigit}}},
      {{"tekken"}, {{kTekken}, true, true}},
      {{"gpt-4o", "llama4", "minimax-m2", "kanana2"}, {{kGpt4o}}},
      {{"tiny_aya", "cohere2moe"}, {{"\\d{1,3}(?=(?:\\d{3})*\\b)", kGpt4o}}},
      {{"youtu"}, {{kYoutuEast, kYoutu}, true}},
      {{"kimi-k2"}, {{kKimi}}},
      {{"superbpe"}, {{"\\p{N}+", "(?=(\\d{3})+(?!\\d))"}}},
      {{"bailingmoe", "bailingmoe2", "llada-moe"}, {{kBailing}}},
      {{"seed-coder"}, {{kSeedCoder}}},
      {{"chameleon"},
       {{"<sentinel:[0-9]+>", "(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z", "([\\t\\n]|    |  )",
         kOneDigit, "[\\p{P}!-/:-@\\[-`{-~]", kGpt2Pattern},
        false,
        true}},
      {{"gemma4", "sarvam-moe"}, {{"[^\\n]+|[\\n]+"}, false, false, true}},
  };
  return kFamilies;
}

}  // namespace

PrePatterns pre_patterns(std::string_view name, const std::string& where) {
  for (const Family& family : families()) {
    const auto& names = family.names;
    if (std::find(names.begin(), names.end(), name) != names.end()) return family.patterns;
  }
  throw Error("{}: tokenizer.ggml.pre '{}' is not known, so its words cannot be cut as it does",
              where, name.substr(0, 40));
}

}  // namespace ridge
