// `ridge tokenize`: what does the model read?
#include <fmt/format.h>

#include <charconv>
#include <cstdio>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "cli/command.h"
#include "engine/weights/embedded_model.h"
#include "text/tokenizer/tokenizer.h"

namespace ridge {
namespace {

struct TokenizeCommandOptions {
  std::string model, text, decode;
  bool special = false;
};

constexpr const char* kTokenizeFooter = R"(Examples:
  ridge tokenize "Hello world"                                     the model inside the program
  ridge tokenize --model model-Q4_0.gguf "Hello world"
  ridge tokenize --model ~/models/Qwen3-8B --json "Hello world"    a folder with tokenizer.json
  ridge tokenize --model tokenizer.json - < notes.txt              standard input, byte for byte
  ridge tokenize --model tokenizer.json --special "<|im_start|>user"
  ridge tokenize --model tokenizer.json --decode "9906 1917"

The first line is the ids; the second the pieces as the vocabulary writes them. Nothing is added to
the text, and special tokens written in it are text, unless --special.

JSON: {ids, tokens}: integers, and the piece of each (bytes that are not UTF-8 as U+FFFD). With
--decode {text}.)";

constexpr size_t kMaxTokenizeText = size_t{1} << 30;

std::unique_ptr<Tokenizer> tokenizer_of(const TokenizeCommandOptions& options) {
  const std::string_view inside = embedded_model(options.model);
  if (!inside.empty()) return tokenizer_from_gguf(inside, "the model inside the program");
  return load_tokenizer(options.model);
}

void print(const std::string& text) { std::fwrite(text.data(), 1, text.size(), stdout); }

std::string dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::vector<Token> parse_ids(const std::string& list, const Tokenizer& tokenizer) {
  std::vector<Token> ids;
  const char* at = list.data();
  const char* const end = at + list.size();
  while (true) {
    while (at < end && (*at == ' ' || *at == ',' || *at == '[' || *at == ']' || *at == '\n')) ++at;
    if (at == end) return ids;
    Token id = 0;
    const auto [next, error] = std::from_chars(at, end, id);
    if (error != std::errc() || id < 0 || id >= tokenizer.size()) {
      throw Error("--decode takes ids from 0 to {}, separated by spaces or commas",
                  tokenizer.size() - 1);
    }
    ids.push_back(id);
    at = next;
  }
}

// For a line of a terminal: whole characters, nothing that moves the cursor.
std::string shown(std::string_view piece) {
  Utf8Stream stream;
  std::string whole = stream.push(piece), out;
  whole += stream.finish();
  for (char c : whole) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) {
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    } else {
      out += c;
    }
  }
  return out;
}

void decode(const TokenizeCommandOptions& options, const Global& global) {
  const auto tokenizer = tokenizer_of(options);
  const std::vector<Token> ids = parse_ids(options.decode, *tokenizer);
  const std::string text = tokenizer->decode(std::span(ids), options.special);
  if (!global.json) return print(text + "\n");
  Json json;
  json["text"] = text;
  print(dump(json));
}

void encode(const TokenizeCommandOptions& options, const Global& global) {
  const auto tokenizer = tokenizer_of(options);
  const std::string text =
      options.text == "-" ? read_file("/dev/stdin", kMaxTokenizeText) : options.text;
  std::vector<Token> ids = tokenizer->encode(text, options.special);
  if (options.special && tokenizer->adds_bos) ids.insert(ids.begin(), *tokenizer->bos);
  if (options.special && tokenizer->adds_eos) ids.push_back(*tokenizer->eos);
  if (global.json) {
    Json json;
    json["ids"] = ids;
    json["tokens"] = Json::array();
    for (Token id : ids) json["tokens"].push_back(std::string(tokenizer->piece(id)));
    return print(dump(json));
  }
  std::string line, pieces;
  for (Token id : ids) {
    line += fmt::format("{}{}", line.empty() ? "" : " ", id);
    pieces += (pieces.empty() ? "" : paint(Colour::dim, "|")) + shown(tokenizer->piece(id));
  }
  print(line + "\n" + pieces + "\n");
}

}  // namespace

void add_tokenize_command(CLI::App& app, Global& global) {
  auto options = std::make_shared<TokenizeCommandOptions>();
  CLI::App* command =
      app.add_subcommand("tokenize", "What does the model read? A text as tokens, and back");
  command->fallthrough();
  command->footer(kTokenizeFooter);
  command->add_option("--model,-m", options->model,
                      "Folder with tokenizer.json, a tokenizer.json, a *.gguf; default: the model "
                      "inside the program");
  CLI::Option* text = command->add_option("text", options->text, "The text; - is standard input");
  CLI::Option* ids = command->add_option("--decode", options->decode, "Ids to turn into text");
  command->add_flag("--special", options->special,
                    "Add the begin and end tokens that the model's files specify, and parse "
                    "special tokens in the text");
  command->callback([options, text, ids, &global] {
    if (ids->count() > 0 && text->count() > 0) throw Error("give a text or --decode, not both");
    if (ids->count() > 0) return decode(*options, global);
    if (text->count() == 0) throw Error("give a text, or - for standard input (see --help)");
    encode(*options, global);
  });
}

}  // namespace ridge
