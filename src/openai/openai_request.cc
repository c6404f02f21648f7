#include "openai/openai_request.h"

#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "openai/openai_fields.h"

namespace ridge {
namespace {

constexpr int64_t kMaxInt = INT32_MAX;

[[noreturn]] void refuse(const char* name, const std::string& message) {
  throw OptionError(name, message);
}

std::vector<LogitBias> read_logit_bias(const RequestFields& fields, int vocab) {
  const Json* object = fields.find("logit_bias");
  if (object == nullptr) return {};
  if (!object->is_object() || object->size() > size_t{kMaxLogitBiases}) {
    refuse("logit_bias",
           fmt::format("logit_bias must be an object of at most {} token ids", kMaxLogitBiases));
  }
  std::vector<LogitBias> list;
  for (const auto& [id, bias] : object->items()) {
    Token token = 0;
    const auto [stop, error] = std::from_chars(id.data(), id.data() + id.size(), token);
    if (error != std::errc{} || stop != id.data() + id.size() || token < 0 || token >= vocab) {
      refuse("logit_bias", fmt::format("logit_bias: its keys are token ids from 0 to {}, such as "
                                       "\"13\"",
                                       vocab - 1));
    }
    if (!bias.is_number() || std::abs(bias.get<double>()) > 100) {
      refuse("logit_bias", fmt::format("logit_bias: the bias of token {} must be a number from "
                                       "-100 to 100",
                                       token));
    }
    list.push_back({token, bias.get<float>()});
  }
  return list;
}

// The sampler's own checks name options as the command line does: "top-p".
void check_sampler(const SamplerOptions& options, int vocab) {
  try {
    check_sampler_options(options, vocab);
  } catch (const OptionError& error) {
    std::string name = error.option();
    std::replace(name.begin(), name.end(), '-', '_');
    throw OptionError(name, error.what());
  }
}

void read_sampler(const RequestFields& fields, int vocab, SamplerOptions& to) {
  constexpr double kAny = 1e30;
  to.temperature = fields.number("temperature", 0, 2).value_or(1);
  // OpenAI takes 0 for the most probable token alone.
  to.top_p = std::max(fields.number("top_p", 0, 1).value_or(1), 1e-9);
  to.top_k =
      static_cast<int>(std::max<int64_t>(fields.integer("top_k", -1, kMaxInt).value_or(0), 0));
  to.min_p = fields.number("min_p", 0, 1).value_or(0);
  to.repetition_penalty = fields.number("repetition_penalty", 0, kAny).value_or(1);
  to.repeat_last_n = -1;
  to.presence_penalty = fields.number("presence_penalty", -2, 2).value_or(0);
  to.frequency_penalty = fields.number("frequency_penalty", -2, 2).value_or(0);
  to.logit_bias = read_logit_bias(fields, vocab);
  check_sampler(to, vocab);
}

void read_stops(const RequestFields& fields, int vocab, GenerateOptions& to) {
  to.stops = fields.strings("stop", kMaxStops);
  for (const std::string& stop : to.stops) {
    if (stop.empty() || stop.size() > size_t{kMaxStopBytes}) {
      refuse("stop", fmt::format("a stop string has 1 to {} bytes", kMaxStopBytes));
    }
  }
  if (const Json* list = fields.find("stop_token_ids")) {
    to.stop_tokens = token_list(*list, "stop_token_ids", vocab);
    if (to.stop_tokens.size() > size_t{kMaxStopTokens}) {
      refuse("stop_token_ids", fmt::format("at most {} stop_token_ids", kMaxStopTokens));
    }
  }
  to.ignore_end = fields.boolean("ignore_eos", false);
}

void read_stream(const RequestFields& fields, OpenAiRequest& to) {
  to.stream = fields.boolean("stream", false);
  const Json* options = fields.find("stream_options");
  if (options == nullptr) return;
  if (!to.stream) refuse("stream_options", "stream_options needs stream: true");
  if (!options->is_object()) refuse("stream_options", "stream_options must be an object");
  const auto usage = options->find("include_usage");
  if (usage == options->end() || usage->is_null()) return;
  if (!usage->is_boolean()) {
    refuse("stream_options", "stream_options.include_usage must be true or false");
  }
  to.include_usage = usage->get<bool>();
}

void read_max_tokens(const RequestFields& fields, const char* name, int64_t least,
                     std::optional<int>& to) {
  if (const auto value = fields.integer(name, least, kMaxInt)) to = static_cast<int>(*value);
}

// What both APIs have.
void read_shared(const RequestFields& fields, int vocab, OpenAiRequest& to) {
  to.model = fields.string("model").value_or("");
  read_sampler(fields, vocab, to.generate.sampler);
  read_stops(fields, vocab, to.generate);
  read_stream(fields, to);
  to.n = static_cast<int>(fields.integer("n", 1, 128).value_or(1));
  to.seed = fields.integer("seed", INT64_MIN, INT64_MAX);
  to.generate.min_tokens = static_cast<int>(fields.integer("min_tokens", 0, kMaxInt).value_or(0));
  to.return_token_ids = fields.boolean("return_token_ids", false);
  to.cache_salt = fields.string("cache_salt").value_or("");
  if (to.cache_salt.size() > size_t{kMaxSaltBytes}) {
    refuse("cache_salt", fmt::format("cache_salt has at most {} bytes", kMaxSaltBytes));
  }
  to.priority = static_cast<int>(fields.integer("priority", INT32_MIN, kMaxInt).value_or(0));
  if (const auto drafts = fields.integer("max_drafts", 0, kMaxInt)) {
    to.max_drafts = static_cast<int>(*drafts);
  }
}

void check_token_bounds(const OpenAiRequest& request) {
  if (request.max_tokens && request.generate.min_tokens > *request.max_tokens) {
    refuse("min_tokens", fmt::format("min_tokens is {}, more than the {} tokens of max_tokens",
                                     request.generate.min_tokens, *request.max_tokens));
  }
}

// Text, ids, or a list of either.
std::vector<PromptInput> read_prompts(RequestFields& fields, int vocab) {
  Json prompt = fields.take("prompt");
  if (prompt.is_null()) refuse("prompt", "prompt is missing: text, token ids or a list of either");
  const auto read_one = [&](Json& one) -> PromptInput {
    if (one.is_string()) return std::move(one.get_ref<std::string&>());
    return token_list(one, "prompt", vocab);
  };
  std::vector<PromptInput> prompts;
  if (prompt.is_string() || prompt.is_binary()) {
    prompts.push_back(read_one(prompt));
    return prompts;
  }
  if (!prompt.is_array() || prompt.empty()) {
    refuse("prompt", "prompt must be text, token ids or a list of either");
  }
  if (prompt.front().is_number()) token_list(prompt, "prompt", vocab);  // says which is none
  if (prompt.size() > size_t{kMaxChoices}) {
    refuse("prompt", fmt::format("at most {} prompts in one request", kMaxChoices));
  }
  for (Json& one : prompt) prompts.push_back(read_one(one));
  return prompts;
}

void read_best_of(const RequestFields& fields, int n) {
  const auto best_of = fields.integer("best_of", 1, 128);
  if (best_of && *best_of != n) refuse("best_of", "best_of is not supported: use n");
}

}  // namespace

OpenAiRequest read_completion_request(std::string_view body, int vocab) {
  RequestFields fields(body, OpenAiApi::completion);
  OpenAiRequest to;
  read_shared(fields, vocab, to);
  to.prompts = read_prompts(fields, vocab);
  if (int64_t(to.prompts.size()) * to.n > kMaxChoices) {
    refuse("n", fmt::format("prompts times n must be at most {}", kMaxChoices));
  }
  read_best_of(fields, to.n);
  to.echo = fields.boolean("echo", false);
  to.add_special_tokens = fields.boolean("add_special_tokens", true);
  read_max_tokens(fields, "max_tokens", to.echo ? 0 : 1, to.max_tokens);
  if (const auto logprobs = fields.integer("logprobs", 0, kMaxTopLogprobs)) {
    to.generate.sampler.logprobs = static_cast<int>(*logprobs);
  }
  read_response_format(fields, to);
  check_token_bounds(to);
  return to;
}

OpenAiRequest read_chat_request(std::string_view body, int vocab) {
  RequestFields fields(body, OpenAiApi::chat);
  OpenAiRequest to;
  to.chat = true;
  read_shared(fields, vocab, to);
  read_messages(fields, to);
  read_tools(fields, to);
  read_response_format(fields, to);
  read_max_tokens(fields, "max_tokens", 1, to.max_tokens);
  read_max_tokens(fields, "max_completion_tokens", 1, to.max_tokens);  // the newer name wins
  const bool logprobs = fields.boolean("logprobs", false);
  const auto top = fields.integer("top_logprobs", 0, kMaxTopLogprobs);
  if (top && *top > 0 && !logprobs) refuse("top_logprobs", "top_logprobs needs logprobs: true");
  if (logprobs) to.generate.sampler.logprobs = static_cast<int>(top.value_or(0));
  check_token_bounds(to);
  return to;
}

TokenizeRequest read_tokenize_request(std::string_view body) {
  RequestFields fields(body, OpenAiApi::tokenize);
  TokenizeRequest to;
  to.model = fields.string("model").value_or("");
  to.return_token_strings = fields.boolean("return_token_strs", false);
  to.prompt = fields.string("prompt");
  to.add_special_tokens = fields.boolean("add_special_tokens", true);
  if (to.prompt) return to;
  if (fields.find("messages") == nullptr) refuse("prompt", "prompt or messages is missing");
  read_messages(fields, to.chat);
  read_tools(fields, to.chat);
  return to;
}

DetokenizeRequest read_detokenize_request(std::string_view body, int vocab) {
  RequestFields fields(body, OpenAiApi::detokenize);
  const Json* tokens = fields.find("tokens");
  if (tokens == nullptr) refuse("tokens", "tokens is missing: a list of token ids");
  return {fields.string("model").value_or(""), token_list(*tokens, "tokens", vocab)};
}

}  // namespace ridge
