// Bodies, stream chunks and errors as the OpenAI API writes them.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "engine/sampling/sampler.h"
#include "http/http.h"

namespace ridge {

uint64_t random_bits();
// With 96 random bits: unique without a register of ids.
std::string random_id(const char* prefix);

HttpReply openai_json(const Json& json, int status = 200);

struct OpenAiError {
  int status = 400;
  std::string message;
  std::string param = {};       // the field at fault; empty: null
  std::string code = {};        // "model_not_found"; empty: null
  Json extra = Json::object();  // further members of the error object
  std::vector<std::pair<std::string, std::string>> headers = {};
};
Json error_json(const OpenAiError& error);               // {"error": {message, type, param, code}}
HttpReply openai_error_reply(const OpenAiError& error);  // with Retry-After for 429 and 503

class OpenAiFailure : public Error {
 public:
  explicit OpenAiFailure(OpenAiError error) : Error(error.message), error_(std::move(error)) {}
  const OpenAiError& error() const { return error_; }

 private:
  OpenAiError error_;
};

struct TokenUsage {
  int prompt = 0, cached = 0, completion = 0;
};
Json usage_json(const TokenUsage& usage);

// What every body and chunk of one request has.
class ReplyHead {
 public:
  ReplyHead(bool chat, const std::string& model);
  const std::string& id() const { return id_; }
  Json body(Json choices, const TokenUsage& usage) const;
  // "data: {...}\n\n" with these choices. `include_usage`: with "usage": null.
  std::string chunk(const Json& choices, bool include_usage) const;
  std::string usage_chunk(const TokenUsage& usage) const;

 private:
  Json members(bool chunk) const;
  bool chat_;
  std::string id_, model_;
  int64_t created_;
  std::string chunk_head_;  // up to the choices
};

std::string sse_event(const Json& json);  // "data: {...}\n\n"
inline constexpr const char* kDone = "data: [DONE]\n\n";

// A token's text; "bytes:\xe2\x80" where it is not whole characters, as OpenAI writes it.
// `tokenizer` may be null: ids.
std::string token_text(const Tokenizer* tokenizer, Token token);

// One element of a chat's logprobs.content.
Json chat_logprob(const Tokenizer* tokenizer, const Sampled& sampled);

// The logprobs of /v1/completions: parallel lists.
class CompletionLogprobs {
 public:
  explicit CompletionLogprobs(const Tokenizer* tokenizer) : tokenizer_(tokenizer) {}
  void add(const Sampled& sampled);
  void add_unknown(Token token);  // the first of a prompt: null
  Json take();                    // what was added since the last call

 private:
  void add_token(Token token);
  const Tokenizer* tokenizer_;
  Json tokens_ = Json::array(), logprobs_ = Json::array(), top_ = Json::array(),
       offsets_ = Json::array();
  int64_t offset_ = 0;  // in characters
};

}  // namespace ridge
