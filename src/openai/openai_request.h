// The bodies of /v1/completions and /v1/chat/completions as checked requests. Fields that only give
// hints are ignored (openai_field_table.cc); a known one that is wrong, or that changes the answer
// and is not supported, throws OptionError with its name, before any token. The memory that a body
// takes is bounded in openai_fields.h.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/json.h"
#include "engine/generate/generation.h"

namespace ridge {

inline constexpr int kMaxChoices = 256;     // prompts times n of one request
inline constexpr int kMaxStops = 16;        // OpenAI takes 4
inline constexpr int kMaxStopBytes = 1024;  // of one stop string: that much text is held back
inline constexpr int kMaxStopTokens = 128;
inline constexpr int kMaxSaltBytes = 256;     // each request keeps a copy
inline constexpr int kMaxTopLogprobs = 20;    // at each position
inline constexpr int kMaxLogitBiases = 1024;  // OpenAI takes fewer
inline constexpr int kMaxTools = 128;
inline constexpr int kMaxObjectKeys = 1024;  // of each object in a body

enum class ToolChoice : uint8_t { none, automatic, required, named };

using PromptInput = std::variant<std::string, std::vector<Token>>;

struct OpenAiRequest {
  bool chat = false;
  std::string model;  // empty: whichever is served
  // Completions.
  std::vector<PromptInput> prompts;  // at least one
  bool echo = false;
  bool add_special_tokens = true;  // the tokenizer's own beginning token before a text
  // Chat. Messages are {role, content, ...} with the content as one string, or null; arguments of
  // tool calls are objects. Tools are as the client wrote them.
  Json messages, tools = Json::array(), template_arguments = Json::object();
  bool add_generation_prompt = true;
  bool continue_final_message = false;  // the answer goes on where the last message ends
  ToolChoice tool_choice = ToolChoice::none;
  std::string tool_name;            // of ToolChoice::named
  bool parallel_tool_calls = true;  // else the answer has the first call alone
  std::optional<Json> schema;       // of the text to generate
  const char* schema_field = "";    // that it came in

  // Sampler but its seed, min_tokens, stops, stop tokens, ignore_end.
  GenerateOptions generate;
  std::optional<int> max_tokens;  // 0 only with echo; none: the API's default
  std::optional<int64_t> seed;    // none: another one each time
  int n = 1;                      // choices of each prompt
  bool stream = false, include_usage = false, return_token_ids = false;
  std::string cache_salt;
  int priority = 0;
  std::optional<int> max_drafts;  // of a step; none: the server's
};

// Token ids must be below `vocab`. Throw OptionError for a field, Error for the body as a whole.
OpenAiRequest read_completion_request(std::string_view body, int vocab);
OpenAiRequest read_chat_request(std::string_view body, int vocab);

// The body of /tokenize ({prompt, add_special_tokens} or a chat's fields) and /detokenize.
struct TokenizeRequest {
  std::string model;
  std::optional<std::string> prompt;  // none: a chat
  OpenAiRequest chat;
  bool add_special_tokens = true, return_token_strings = false;
};
TokenizeRequest read_tokenize_request(std::string_view body);
struct DetokenizeRequest {
  std::string model;
  std::vector<Token> tokens;
};
DetokenizeRequest read_detokenize_request(std::string_view body, int vocab);

}  // namespace ridge
