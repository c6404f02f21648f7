// A conversation as the model expects it: the model's own Jinja template, parsed once and run for
// every request.
//
// Bounds: a template spends at most template_steps() of a WorkLimit, by the memory of what it is
// given: about 0.1 s and 0.1 s for each MiB of messages. So much memory can it write at most. A
// text has at most kMaxText bytes (text.h), a list kMaxItems values, a value kMaxExtent bytes and
// kMaxNesting levels (value.h); an output has 16 MiB and statements nest 500 deep (interpreter.cc).
// Templates of 1 MiB are read (load.cc), whose brackets and blocks nest at most kMaxNesting deep.
#pragma once

#include <ctime>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "text/chat/ast.h"
#include "text/chat/tool_calls.h"
#include "text/tokenizer/tokenizer.h"

namespace ridge {

// As in OpenAI's API.
struct ChatRequest {
  // An array of {role, content, tool_calls, tool_call_id, name, ...}; content is a string, null or
  // a list of {type: "text", text}.
  Json messages;
  Json tools;                         // an array; null or empty: none
  bool add_generation_prompt = true;  // ends with what opens the assistant's turn
  // The text ends where the last message's content does. Throws Error where the template does not
  // write that content as it is.
  bool continue_final_message = false;
  Json template_kwargs;  // an object of further variables (enable_thinking); or null
  std::time_t now = std::time(nullptr);  // for templates that write the date
};

// `bytes`: of memory that the messages, tools and arguments take as values. A message of a few
// words takes 130, and the templates that are known spend 2000 on it.
constexpr uint64_t template_steps(size_t bytes) {
  return (uint64_t{1} << 26) + 32 * uint64_t{bytes};
}

class ChatTemplate {
 public:
  // `tokenizer` must outlive this. Throws Error with the line where its template is not understood.
  explicit ChatTemplate(const Tokenizer& tokenizer);

  // Special tokens are parsed in what the template wrote, never in what came with the request. The
  // beginning token is put first where the tokenizer adds one and the template did not write it. A
  // model without a template gets plain text with the roles' names. Throws Error where the request
  // is malformed or the template refuses it. `cancelled`: the work is given up once it is true.
  std::vector<Token> tokens(ChatRequest request, const std::function<bool()>& cancelled = {}) const;
  std::string text(ChatRequest request) const;  // what is tokenized, without that token

  // How this model writes its calls.
  ToolCallStyle tool_call_style() const { return tool_call_style_; }

 private:
  struct Program {
    jinja::Block block;
    bool takes_parts = false;      // iterates over a message's content
    bool takes_strings = true;     // also knows content that is a string
    bool knows_developer = false;  // the role "developer"; otherwise it is told "system"
  };
  static Program compile(const std::string& source);
  static jinja::Value messages_value(Json messages, const Program& program);
  // These two take messages and tools apart, so that they are not in memory twice.
  jinja::Text render(ChatRequest& request, const std::function<bool()>& cancelled) const;
  // Ends as the request says.
  jinja::Text whole_text(ChatRequest& request, const std::function<bool()>& cancelled) const;

  const Tokenizer& tokenizer_;
  bool has_template_ = false;
  Program plain_, with_tools_;
  bool has_tool_template_ = false;
  ToolCallStyle tool_call_style_ = ToolCallStyle::none;
};

struct ChatMessage {
  std::string role;  // "system", "user", "assistant"
  std::string content;
};

// A conversation of plain texts, ready for the assistant's next words.
std::vector<Token> chat_tokens(const Tokenizer& tokenizer, std::span<const ChatMessage> messages);

}  // namespace ridge
