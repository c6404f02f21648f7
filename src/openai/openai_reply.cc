#include "openai/openai_reply.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <random>

#include "text/tokenizer/utf8.h"

namespace ridge {
namespace {

const char* error_type(int status) {
  if (status == 429) return "rate_limit_error";
  return status < 500 ? "invalid_request_error" : "server_error";
}

bool is_utf8(std::string_view text) { return utf8_valid_end(text, 0) == text.size(); }

std::string bytes_of(const Tokenizer* tokenizer, Token token) {
  return tokenizer == nullptr ? fmt::format(" {}", token) : tokenizer->decode(token, true);
}

// "no probability" is minus infinity, which JSON has not. OpenAI writes this.
double finite(float logprob) { return std::max(double(logprob), -9999.0); }

Json token_json(const Tokenizer* tokenizer, Token token, float logprob) {
  const std::string bytes = bytes_of(tokenizer, token);
  Json list = Json::array();
  for (const char byte : bytes) list.push_back(static_cast<unsigned char>(byte));
  return {{"token", token_text(tokenizer, token)}, {"logprob", finite(logprob)}, {"bytes", list}};
}

}  // namespace

uint64_t random_bits() {
  thread_local std::mt19937_64 random{std::random_device{}()};
  return random();
}

std::string random_id(const char* prefix) {
  return fmt::format("{}{:016x}{:08x}", prefix, random_bits(),
                     static_cast<uint32_t>(random_bits()));
}

HttpReply openai_json(const Json& json, int status) {
  HttpReply reply;
  reply.status = status;
  reply.body = json_text(json);
  return reply;
}

Json error_json(const OpenAiError& error) {
  const auto or_null = [](const std::string& text) { return text.empty() ? Json() : Json(text); };
  Json object{{"message", error.message},
              {"type", error_type(error.status)},
              {"param", or_null(error.param)},
              {"code", or_null(error.code)}};
  object.update(error.extra);
  return {{"error", object}};
}

HttpReply openai_error_reply(const OpenAiError& error) {
  HttpReply reply = openai_json(error_json(error), error.status);
  reply.headers = error.headers;
  if (error.status == 429 || error.status == 503) reply.headers.emplace_back("Retry-After", "1");
  if (error.status == 401) reply.headers.emplace_back("WWW-Authenticate", "Bearer");
  return reply;
}

Json usage_json(const TokenUsage& usage) {
  return {{"prompt_tokens", usage.prompt},
          {"completion_tokens", usage.completion},
          {"total_tokens", usage.prompt + usage.completion},
          {"prompt_tokens_details", {{"cached_tokens", usage.cached}}}};
}

ReplyHead::ReplyHead(bool chat, const std::string& model)
    : chat_(chat),
      id_(random_id(chat ? "chatcmpl-" : "cmpl-")),
      model_(model),
      created_(std::chrono::duration_cast<std::chrono::seconds>(
                   std::chrono::system_clock::now().time_since_epoch())
                   .count()) {
  chunk_head_ = json_text(members(true));
  chunk_head_.back() = ',';  // the brace that closes it
  chunk_head_ = "data: " + chunk_head_ + "\"choices\":";
}

Json ReplyHead::members(bool chunk) const {
  const char* object = !chat_  ? "text_completion"
                       : chunk ? "chat.completion.chunk"
                               : "chat.completion";
  return {{"id", id_},
          {"object", object},
          {"created", created_},
          {"model", model_},
          {"system_fingerprint", "ridge-" RIDGE_VERSION}};
}

Json ReplyHead::body(Json choices, const TokenUsage& usage) const {
  Json json = members(false);
  json["choices"] = std::move(choices);
  json["usage"] = usage_json(usage);
  return json;
}

std::string ReplyHead::chunk(const Json& choices, bool include_usage) const {
  return chunk_head_ + json_text(choices) + (include_usage ? ",\"usage\":null}\n\n" : "}\n\n");
}

std::string ReplyHead::usage_chunk(const TokenUsage& usage) const {
  return chunk_head_ + "[],\"usage\":" + json_text(usage_json(usage)) + "}\n\n";
}

std::string sse_event(const Json& json) { return "data: " + json_text(json) + "\n\n"; }

std::string token_text(const Tokenizer* tokenizer, Token token) {
  std::string bytes = bytes_of(tokenizer, token);
  if (is_utf8(bytes)) return bytes;
  std::string text = "bytes:";
  for (const char byte : bytes) text += fmt::format("\\x{:02x}", static_cast<unsigned char>(byte));
  return text;
}

Json chat_logprob(const Tokenizer* tokenizer, const Sampled& sampled) {
  Json json = token_json(tokenizer, sampled.token, sampled.logprob);
  Json top = Json::array();
  for (const auto& [token, logprob] : sampled.top_logprobs) {
    top.push_back(token_json(tokenizer, token, logprob));
  }
  json["top_logprobs"] = std::move(top);
  return json;
}

void CompletionLogprobs::add_token(Token token) {
  tokens_.push_back(token_text(tokenizer_, token));
  offsets_.push_back(offset_);
  // As far as they are in the text: control tokens are not.
  const std::string bytes =
      tokenizer_ == nullptr ? bytes_of(nullptr, token) : tokenizer_->decode(token);
  // Characters begin with a byte that continues none.
  offset_ += std::count_if(bytes.begin(), bytes.end(), [](char byte) {
    return (static_cast<unsigned char>(byte) & 0xc0) != 0x80;
  });
}

void CompletionLogprobs::add(const Sampled& sampled) {
  add_token(sampled.token);
  logprobs_.push_back(finite(sampled.logprob));
  Json top = Json::object();
  for (const auto& [token, logprob] : sampled.top_logprobs) {
    top[token_text(tokenizer_, token)] = finite(logprob);
  }
  top[token_text(tokenizer_, sampled.token)] = finite(sampled.logprob);
  top_.push_back(std::move(top));
}

void CompletionLogprobs::add_unknown(Token token) {
  add_token(token);
  logprobs_.push_back(nullptr);
  top_.push_back(nullptr);
}

Json CompletionLogprobs::take() {
  Json json{{"tokens", std::move(tokens_)},
            {"token_logprobs", std::move(logprobs_)},
            {"top_logprobs", std::move(top_)},
            {"text_offset", std::move(offsets_)}};
  tokens_ = logprobs_ = top_ = offsets_ = Json::array();
  return json;
}

}  // namespace ridge
