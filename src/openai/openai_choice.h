// One choice of an answer: what the engine gave it so far, as JSON of a body or of stream chunks.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "openai/openai_reply.h"
#include "openai/openai_request.h"
#include "serving/request.h"
#include "text/chat/tool_calls.h"

namespace ridge {

class OpenAiChoice {
 public:
  // The first three must outlive the choice. `tokenizer` may be null: the text is the tokens' ids.
  // `style` is how the model writes calls of tools.
  OpenAiChoice(const OpenAiRequest& request, const std::vector<Token>& prompt,
               const Tokenizer* tokenizer, ToolCallStyle style, int index);

  void echo(std::string text) { text_ = std::move(text); }  // before the first output
  void add(RequestOutput&& output);
  bool ended() const { return !finish_reason_.empty(); }
  int generated_tokens() const { return generated_; }
  int cached_tokens() const { return cached_; }

  // The elements of `choices` that chunks of a stream carry now, in this order.
  std::vector<Json> take_chunks();
  Json whole();  // the element of a body, once ended

 private:
  void add_prompt_logprobs(const std::vector<Sampled>& sampled);
  void add_text(std::string text, bool last);
  void add_calls(ToolCallOutput&& output);
  void end(EndReason reason);
  Json chunk(const Json& delta);  // with what waits for a chunk: log probabilities, token ids
  Json take_logprobs();
  void take_token_ids(Json& to);

  const OpenAiRequest* request_;
  const std::vector<Token>* prompt_;
  const Tokenizer* tokenizer_;
  int index_;
  int generated_ = 0, cached_ = 0;
  bool began_ = false;  // an output has come
  bool role_sent_ = false, prompt_ids_sent_ = false;
  std::string text_;                      // not sent yet
  std::optional<ToolCallParser> parser_;  // none: text is content
  Json tool_calls_ = Json::array();       // all so far, as a body has them
  Json call_pieces_ = Json::array();      // not sent yet, as chunks have them
  Json chat_logprobs_ = Json::array();
  CompletionLogprobs completion_logprobs_;
  std::vector<Token> token_ids_;  // not sent yet
  std::string finish_reason_;     // empty: goes on
};

}  // namespace ridge
