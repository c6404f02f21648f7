#include "openai/openai_choice.h"

#include <fmt/format.h>

#include <utility>

namespace ridge {

OpenAiChoice::OpenAiChoice(const OpenAiRequest& request, const std::vector<Token>& prompt,
                           const Tokenizer* tokenizer, ToolCallStyle style, int index)
    : request_(&request),
      prompt_(&prompt),
      tokenizer_(tokenizer),
      index_(index),
      completion_logprobs_(tokenizer) {
  if (request.tool_choice == ToolChoice::automatic) parser_.emplace(style);
  // The grammar has it write {"name": ..., "arguments": ...}.
  if (request.tool_choice == ToolChoice::required) parser_.emplace(ToolCallStyle::bare);
}

void OpenAiChoice::add_prompt_logprobs(const std::vector<Sampled>& sampled) {
  completion_logprobs_.add_unknown(prompt_->front());
  for (const Sampled& token : sampled) completion_logprobs_.add(token);
}

void OpenAiChoice::add_calls(ToolCallOutput&& output) {
  text_ += output.content;
  for (ToolCallPiece& piece : output.calls) {
    if (piece.index > 0 && !request_->parallel_tool_calls) continue;
    const auto index = static_cast<size_t>(piece.index);
    Json delta{{"index", piece.index}};
    Json function = Json::object();
    if (index == tool_calls_.size()) {
      const std::string id = random_id("call_");
      delta.update({{"id", id}, {"type", "function"}});
      function["name"] = piece.name;
      tool_calls_.push_back({{"id", id},
                             {"type", "function"},
                             {"function", {{"name", piece.name}, {"arguments", ""}}}});
    }
    tool_calls_[index]["function"]["arguments"].get_ref<std::string&>() += piece.arguments;
    function["arguments"] = std::move(piece.arguments);
    delta["function"] = std::move(function);
    call_pieces_.push_back(std::move(delta));
  }
}

void OpenAiChoice::add_text(std::string text, bool last) {
  if (request_->tool_choice == ToolChoice::named) {  // the text is the arguments
    if (text.empty() && !tool_calls_.empty()) return;
    add_calls({{}, {{0, request_->tool_name, std::move(text)}}});
  } else if (parser_) {
    add_calls(parser_->push(text));
    if (last) add_calls(parser_->finish());
  } else {
    text_ += text;
  }
}

void OpenAiChoice::end(EndReason reason) {
  if (reason == EndReason::length || reason == EndReason::context) {
    finish_reason_ = "length";  // of a call that was cut, too
  } else if (!tool_calls_.empty()) {
    finish_reason_ = "tool_calls";
  } else {
    finish_reason_ = "stop";
  }
}

void OpenAiChoice::add(RequestOutput&& output) {
  const bool logprobs = request_->generate.sampler.logprobs != kNoLogprobs;
  if (!std::exchange(began_, true)) {
    cached_ = output.cached_tokens;
    if (request_->echo && logprobs) add_prompt_logprobs(output.prompt_sampled);
  }
  if (request_->max_tokens != 0) {  // else the one token that was drawn is not wanted
    generated_ += static_cast<int>(output.sampled.size());
    for (const Sampled& sampled : output.sampled) {
      if (request_->return_token_ids) token_ids_.push_back(sampled.token);
      if (tokenizer_ == nullptr) output.text += fmt::format(" {}", sampled.token);
      if (!logprobs) continue;
      if (request_->chat) {
        chat_logprobs_.push_back(chat_logprob(tokenizer_, sampled));
      } else {
        completion_logprobs_.add(sampled);
      }
    }
    add_text(std::move(output.text), output.end.has_value());
  }
  if (output.end) end(*output.end);
}

Json OpenAiChoice::take_logprobs() {
  if (request_->generate.sampler.logprobs == kNoLogprobs) return nullptr;
  if (!request_->chat) return completion_logprobs_.take();
  Json content = std::exchange(chat_logprobs_, Json::array());
  return {{"content", std::move(content)}, {"refusal", nullptr}};
}

void OpenAiChoice::take_token_ids(Json& to) {
  if (!request_->return_token_ids) return;
  if (!std::exchange(prompt_ids_sent_, true)) to["prompt_token_ids"] = *prompt_;
  to["token_ids"] = std::exchange(token_ids_, {});
}

Json OpenAiChoice::chunk(const Json& delta) {
  Json json{{"index", index_}};
  json.update(delta);
  json["logprobs"] = take_logprobs();
  json["finish_reason"] = nullptr;
  take_token_ids(json);
  return json;
}

std::vector<Json> OpenAiChoice::take_chunks() {
  std::vector<Json> chunks;
  if (!request_->chat) {
    if (text_.empty() && !ended()) return chunks;
    chunks.push_back(chunk({{"text", std::exchange(text_, {})}}));
    if (ended()) chunks.back()["finish_reason"] = finish_reason_;
    return chunks;
  }
  if (!role_sent_) {
    role_sent_ = true;
    chunks.push_back({{"index", index_},
                      {"delta", {{"role", "assistant"}, {"content", nullptr}}},
                      {"logprobs", nullptr},
                      {"finish_reason", nullptr}});
  }
  if (!text_.empty()) {
    chunks.push_back(chunk({{"delta", {{"content", std::exchange(text_, {})}}}}));
  }
  if (!call_pieces_.empty()) {
    Json calls = std::exchange(call_pieces_, Json::array());
    chunks.push_back(chunk({{"delta", {{"tool_calls", std::move(calls)}}}}));
  }
  if (ended()) {
    const bool waiting = !chat_logprobs_.empty();
    chunks.push_back(chunk({{"delta", Json::object()}}));
    if (!waiting) chunks.back()["logprobs"] = nullptr;
    chunks.back()["finish_reason"] = finish_reason_;
  }
  return chunks;
}

Json OpenAiChoice::whole() {
  Json json{{"index", index_}};
  if (request_->chat) {
    const bool no_content = text_.empty() && !tool_calls_.empty();
    Json message{{"role", "assistant"},
                 {"content", no_content ? Json() : Json(text_)},
                 {"refusal", nullptr}};
    if (!tool_calls_.empty()) message["tool_calls"] = tool_calls_;
    json["message"] = std::move(message);
  } else {
    json["text"] = text_;
  }
  json["logprobs"] = take_logprobs();
  json["finish_reason"] = finish_reason_;
  take_token_ids(json);
  return json;
}

}  // namespace ridge
