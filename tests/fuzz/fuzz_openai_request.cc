// Any bytes as the body of a completion, a chat, /tokenize and /detokenize: an Error, or a request
// within its limits.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/error.h"
#include "openai/openai_request.h"
#include "replay.h"

namespace {

constexpr int kVocab = 1000;

void require(bool holds) {
  if (!holds) std::abort();
}

void check_tokens(const std::vector<ridge::Token>& tokens) {
  for (const ridge::Token token : tokens) require(token >= 0 && token < kVocab);
}

void check(const ridge::OpenAiRequest& request) {
  using namespace ridge;
  check_sampler_options(request.generate.sampler, kVocab);
  const size_t prompts = request.chat ? 1 : request.prompts.size();
  require(prompts >= 1 && request.n >= 1 && prompts * size_t(request.n) <= size_t{kMaxChoices});
  for (const PromptInput& prompt : request.prompts) {
    if (const auto* tokens = std::get_if<std::vector<Token>>(&prompt)) check_tokens(*tokens);
  }
  require(request.generate.stops.size() <= size_t{kMaxStops});
  for (const std::string& stop : request.generate.stops) require(!stop.empty());
  check_tokens(request.generate.stop_tokens);
  require(request.max_tokens.value_or(1) >= (request.echo ? 0 : 1));
  require(request.stream || !request.include_usage);
  require(request.chat ? !request.messages.empty() : request.tools.empty());
  for (const Json& message : request.messages) {
    require(message.at("content").is_string() || message.at("content").is_null());
  }
  for (const Json& tool : request.tools) require(tool.at("function").at("name").is_string());
}

template <typename Read>
void run(Read read) {
  try {
    read();
  } catch (const ridge::Error&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  run([&] { check(ridge::read_completion_request(text, kVocab)); });
  run([&] { check(ridge::read_chat_request(text, kVocab)); });
  run([&] { ridge::read_tokenize_request(text); });
  run([&] { check_tokens(ridge::read_detokenize_request(text, kVocab).tokens); });
  return 0;
}

std::vector<std::string> fuzz_seeds() {
  return {
      R"({"model":"m","prompt":["a","b"],"max_tokens":5,"n":2,"logprobs":3,"echo":true,"seed":7})",
      R"({"prompt":[[1,2],[3]],"stop":["a","\n"],"stop_token_ids":[4],"best_of":1,"suffix":null})",
      R"({"prompt":"é😀","temperature":0.7,"top_p":0.9,"top_k":40,"min_p":0.05,"presence_penalty":1,
      "frequency_penalty":-1,"repetition_penalty":1.1,"logit_bias":{"13":-100},"ignore_eos":true})",
      R"({"messages":[{"role":"system","content":"x"},{"role":"user","content":[{"type":"text",
      "text":"y"}]},{"role":"assistant","content":null,"tool_calls":[{"id":"1","type":"function",
      "function":{"name":"f","arguments":"{\"a\":1}"}}]},{"role":"tool","tool_call_id":"1",
      "content":"2"}],"tools":[{"type":"function","function":{"name":"f","parameters":{"type":
      "object","properties":{"a":{"type":"integer"}}}}}],"tool_choice":{"type":"function",
      "function":{"name":"f"}},"stream":true,"stream_options":{"include_usage":true}})",
      R"({"messages":[{"role":"user","content":"x"}],"response_format":{"type":"json_schema",
      "json_schema":{"name":"n","schema":{"type":"object"}}},"logprobs":true,"top_logprobs":2,
      "max_completion_tokens":9,"chat_template_kwargs":{"thinking":false},"priority":1})",
      R"({"tokens":[1,2,3],"prompt":"a","return_token_strs":true,"add_special_tokens":false})",
  };
}
