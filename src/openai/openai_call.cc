#include "openai/openai_call.h"

#include <algorithm>

#include "base/error.h"

namespace ridge {

void ApiExchange::reply(HttpReply reply) const {
  reply.headers.insert(reply.headers.end(), headers.begin(), headers.end());
  http->reply(std::move(reply));
}

void ApiExchange::begin_stream() const {
  HttpReply head;
  head.type = "text/event-stream";
  head.headers = headers;
  head.headers.emplace_back("Cache-Control", "no-cache");
  head.headers.emplace_back("X-Accel-Buffering", "no");  // nginx would hold chunks back
  http->begin_stream(std::move(head));
}

OpenAiCall::OpenAiCall(ApiExchange exchange, OpenAiRequest request, const std::string& model_name,
                       ServedModel& model)
    : exchange_(std::move(exchange)),
      request_(std::move(request)),
      model_(&model),
      head_(request_.chat, model_name),
      grammar_(model_->grammar(request_, client_gone())),
      seed_(request_.seed ? static_cast<uint64_t>(*request_.seed) : random_bits()) {
  const size_t prompts = request_.chat ? 1 : request_.prompts.size();
  for (size_t i = 0; i < prompts; ++i) {
    prompts_.push_back(model_->prompt_tokens(request_, i, client_gone()));
    limits_.push_back(token_limit(i));
  }
  choices_.reserve(prompts * static_cast<size_t>(request_.n));
  for (size_t i = 0; i < prompts * static_cast<size_t>(request_.n); ++i) {
    const size_t prompt = i / static_cast<size_t>(request_.n);
    ids_.push_back(model_->engines().new_id());
    choices_.emplace_back(request_, prompts_[prompt], model_->tokenizer(),
                          model_->tool_call_style(), static_cast<int>(i));
    if (request_.echo) {
      const auto* text = std::get_if<std::string>(&request_.prompts[prompt]);
      choices_.back().echo(text != nullptr ? *text : model_->decode(prompts_[prompt]));
    }
  }
  open_ = choices_.size();
  request_.prompts = {};  // their tokens stand for them from here on
}

Cancelled OpenAiCall::client_gone() const {
  return [exchange = exchange_.http.get()] { return exchange->closed(); };
}

int OpenAiCall::token_limit(size_t prompt) const {
  const int context = model_->engines().max_context();
  const auto used = static_cast<int>(std::min<size_t>(prompts_[prompt].size(), INT32_MAX / 2));
  const int left = context - used;
  const int wanted = std::max(request_.max_tokens.value_or(1), 1);
  if (wanted > left) {
    throw OpenAiFailure(
        {400,
         fmt::format("the context has {} tokens: the prompt's {} and {} to generate do not fit",
                     context, used, wanted),
         request_.chat ? "messages" : "prompt",
         "context_length_exceeded",
         {{"n_prompt_tokens", used}, {"n_ctx", context}}});
  }
  if (request_.max_tokens) return wanted;
  constexpr int kCompletionTokens = 16;
  return request_.chat ? left : std::min(kCompletionTokens, left);
}

ServingRequest OpenAiCall::make_request(size_t choice) const {
  const size_t n = static_cast<size_t>(request_.n), prompt = choice / n;
  ServingRequest to;
  to.id = ids_[choice];
  to.prompt = prompts_[prompt];
  to.generate = request_.generate;
  to.generate.max_tokens = limits_[prompt];
  to.generate.min_tokens = std::min(to.generate.min_tokens, limits_[prompt]);
  to.generate.sampler.seed = seed_ + choice % n;
  to.priority = request_.priority;
  to.cache_salt = request_.cache_salt;
  to.max_drafts = request_.max_drafts;
  to.grammar = grammar_;
  if (request_.echo) to.prompt_logprobs = request_.generate.sampler.logprobs;
  return to;
}

bool OpenAiCall::submit_all(OutputRouter& router) {
  size_t submitted = 0;
  const auto withdraw = [&] {
    for (size_t i = 0; i < submitted; ++i) model_->engines().cancel(ids_[i]);
  };
  for (; submitted < ids_.size(); ++submitted) {
    const RequestId id = ids_[submitted];
    router.add(id, shared_from_this(), submitted);
    try {
      if (model_->engines().submit(make_request(submitted))) continue;
    } catch (...) {
      router.remove(id);
      withdraw();
      throw;
    }
    router.remove(id);
    withdraw();
    return false;
  }
  return true;
}

void OpenAiCall::start(OutputRouter& router) {
  {
    const std::lock_guard lock(mutex_);
    over_ = true;  // unless everything is accepted
    if (!submit_all(router)) {
      exchange_.reply(openai_error_reply(
          {429, "the queue is full: try again later", "", "rate_limit_exceeded"}));
      return;
    }
    over_ = false;
    if (request_.stream) exchange_.begin_stream();
  }
  // After the submission, which a cancellation must not overtake. The exchange outlives no call
  // that it refers to.
  exchange_.http->on_closed([weak = weak_from_this()] {
    if (const auto call = weak.lock()) call->cancel();
  });
}

void OpenAiCall::cancel() const {
  for (const RequestId id : ids_) model_->engines().cancel(id);
}

void OpenAiCall::deliver(size_t index, RequestOutput&& output) {
  const std::lock_guard lock(mutex_);
  if (over_) return;
  if (output.end == EndReason::failed || output.end == EndReason::cancelled) return fail(output);
  OpenAiChoice& choice = choices_[index];
  choice.add(std::move(output));
  if (choice.ended()) --open_;
  if (request_.stream) send_chunks(choice);
  if (open_ == 0 && !over_) finish();
}

void OpenAiCall::send_chunks(OpenAiChoice& choice) {
  std::string text;
  for (Json& chunk : choice.take_chunks()) {
    text += head_.chunk(Json::array({std::move(chunk)}), request_.include_usage);
  }
  if (!text.empty() && !exchange_.http->write(text)) {
    over_ = true;
    cancel();
  }
}

void OpenAiCall::fail(const RequestOutput& output) {
  over_ = true;
  cancel();
  OpenAiError error{500, output.error, "", "engine_failed"};
  if (output.end == EndReason::cancelled) {
    error = exchange_.http->closed()
                ? OpenAiError{400, "the client closed the connection before the answer was whole",
                              "", "client_closed_request"}
                : OpenAiError{503, "the server ended before the answer did", "", "shutting_down"};
  }
  if (!request_.stream) return exchange_.reply(openai_error_reply(error));
  exchange_.http->write(sse_event(error_json(error)));
  exchange_.http->end();
}

TokenUsage OpenAiCall::usage() const {
  TokenUsage usage;
  for (size_t i = 0; i < choices_.size(); ++i) {
    usage.completion += choices_[i].generated_tokens();
    if (i % static_cast<size_t>(request_.n) != 0) continue;  // the prompt counts once
    usage.prompt += static_cast<int>(prompts_[i / static_cast<size_t>(request_.n)].size());
    usage.cached += choices_[i].cached_tokens();
  }
  return usage;
}

void OpenAiCall::finish() {
  over_ = true;
  int longest = 0;
  for (const OpenAiChoice& choice : choices_)
    longest = std::max(longest, choice.generated_tokens());
  model_->metrics().on_api_finished(request_.n, longest);
  if (request_.stream) {
    exchange_.http->write((request_.include_usage ? head_.usage_chunk(usage()) : "") + kDone);
    exchange_.http->end();
    return;
  }
  Json list = Json::array();
  for (OpenAiChoice& choice : choices_) list.push_back(choice.whole());
  exchange_.reply(openai_json(head_.body(std::move(list), usage())));
}

}  // namespace ridge
