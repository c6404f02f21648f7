#include "serve/served_model.h"

#include <charconv>
#include <functional>
#include <sstream>

#include "base/error.h"
#include "engine/chat/chat_template.h"

namespace ridge {
namespace {

// Random weights have no words: any token will do, the same for the same word.
Token token_for_word(const std::string& word, int vocab) {
  Token id = 0;
  const auto [stop, error] = std::from_chars(word.data(), word.data() + word.size(), id);
  if (error == std::errc{} && stop == word.data() + word.size() && id >= 0 && id < vocab) return id;
  return static_cast<Token>(std::hash<std::string>{}(word) % static_cast<size_t>(vocab));
}

MetricsOptions metrics_options(const Runner& runner, const ServingOptions& options,
                               const std::string& name) {
  const int own = runner.weights().architecture.max_context;
  return {.model_name = name,
          .page_tokens = runner.options().page_tokens,
          .pages = runner.page_count(),
          .max_context = options.max_context > 0 ? options.max_context : own};
}

}  // namespace

ServedModel::ServedModel(std::unique_ptr<Runner> runner, ServingOptions options,
                         const std::string& name, ServingEngine::Outputs outputs)
    : metrics_(metrics_options(*runner, options, name)),
      engine_(std::move(runner), std::move(options), std::move(outputs), &metrics_),
      tokenizer_(engine_.runner().weights().tokenizer.get()),
      vocab_(static_cast<int>(engine_.runner().weights().architecture.vocab)) {}

std::vector<Token> ServedModel::encode(std::string_view text, bool add_special) const {
  if (tokenizer_ == nullptr) {
    std::vector<Token> tokens;
    std::istringstream words{std::string(text)};
    for (std::string word; words >> word;) tokens.push_back(token_for_word(word, vocab_));
    return tokens;
  }
  std::vector<Token> tokens = tokenizer_->encode(text);
  if (add_special && tokenizer_->adds_bos && tokenizer_->bos) {
    tokens.insert(tokens.begin(), *tokenizer_->bos);
  }
  return tokens;
}

std::string ServedModel::decode(std::span<const Token> tokens) const {
  if (tokenizer_ != nullptr) return tokenizer_->decode(tokens);
  std::string text;
  for (const Token token : tokens) text += fmt::format(" {}", token);
  return text;
}

std::vector<Token> ServedModel::encode_chat(const OpenAiRequest& request) const {
  if (tokenizer_ == nullptr) {
    std::string text;
    for (const Json& message : request.messages) {
      if (message["content"].is_string()) text += message["content"].get<std::string>() + " ";
    }
    return encode(text, false);
  }
  std::vector<ChatMessage> messages;
  for (const Json& message : request.messages) {
    messages.push_back({message["role"], message["content"].is_string() ? message["content"] : ""});
  }
  return chat_tokens(*tokenizer_, messages);
}

std::vector<Token> ServedModel::prompt_tokens(const OpenAiRequest& request, size_t prompt) const {
  std::vector<Token> tokens;
  if (request.chat) {
    tokens = encode_chat(request);
  } else if (const auto* text = std::get_if<std::string>(&request.prompts[prompt])) {
    tokens = encode(*text, request.add_special_tokens);
    if (tokens.empty() && tokenizer_ != nullptr && tokenizer_->bos) {
      tokens.push_back(*tokenizer_->bos);
    }
  } else {
    tokens = std::get<std::vector<Token>>(request.prompts[prompt]);
  }
  if (tokens.empty()) {
    throw OptionError(request.chat ? "messages" : "prompt",
                      "the prompt is empty: there is nothing to continue");
  }
  return tokens;
}

std::shared_ptr<const Grammar> ServedModel::grammar(const OpenAiRequest& request) {
  const bool forced =
      request.tool_choice == ToolChoice::required || request.tool_choice == ToolChoice::named;
  if (!request.schema && !forced) return nullptr;
  throw OptionError(forced ? "tool_choice" : "response_format", "not supported yet");
}

}  // namespace ridge
