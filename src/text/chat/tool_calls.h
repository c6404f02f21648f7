// Tool calls in what a model writes, read as it is written.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/chat/json_scanner.h"

namespace ridge {

enum class ToolCallStyle {
  none,
  tagged,  // Hermes, Qwen: <tool_call>{"name": ..., "arguments": {...}}</tool_call>
  bare,    // Llama 3: {"name": ..., "parameters": {...}}, also after <|python_tag|>
};
// By the marks that the model's chat template contains.
ToolCallStyle find_tool_call_style(std::string_view chat_template);

// A further piece of a call. The first piece of a call carries its name; its id is the caller's.
struct ToolCallPiece {
  int index = 0;
  std::string name;       // not empty: this is the call's first piece
  std::string arguments;  // appended to those that came before: JSON text
};

struct ToolCallOutput {
  std::string content;
  std::vector<ToolCallPiece> calls;
};

// Text in, content and pieces of calls out. Text that may still become a call is held back. What
// turns out to be no call, or a malformed one, comes out as content; where a call breaks after its
// first piece is out, the rest of it does. Only white space beside calls and their marks are
// dropped.
class ToolCallParser {
 public:
  explicit ToolCallParser(ToolCallStyle style);
  ToolCallOutput push(std::string_view text);
  ToolCallOutput finish();              // the text ends here
  int calls() const { return calls_; }  // with a piece out: finish_reason is then tool_calls

 private:
  enum class State {
    content,      // outside calls
    opening,      // inside a call, before its {
    key,          // before a key or the }
    key_text,     // inside a key
    colon,        // before the :
    value,        // inside the value
    after_value,  // before , or }
    closing,      // after the }, before </tool_call>
  };
  void read(char c, ToolCallOutput& out);
  void read_content(char c, ToolCallOutput& out);
  void read_object(char c, ToolCallOutput& out);
  void read_value(char c, ToolCallOutput& out);
  void read_closing(char c, ToolCallOutput& out);
  void begin_call(std::string mark);
  void announce(ToolCallOutput& out);
  void finish_value(ToolCallOutput& out);
  void finish_object(ToolCallOutput& out);
  void give_up(ToolCallOutput& out);
  void add_arguments(std::string_view text, ToolCallOutput& out) const;
  void add_content(std::string_view text, ToolCallOutput& out);
  bool at_arguments() const { return key_ == "arguments" || key_ == "parameters"; }

  const ToolCallStyle style_;
  const std::string open_mark_, close_mark_;
  State state_ = State::content;
  std::string held_;         // the beginning of a mark, perhaps
  std::string spaces_;       // white space that may stand before a call
  bool at_start_ = true;     // no content so far
  bool after_call_ = false;  // nothing but white space since the last call
  int calls_ = 0;

  // The call that is being read.
  std::string raw_;  // of its text, what is neither out nor certain to be part of a call
  std::string key_, value_, name_, arguments_;
  JsonScanner scanner_;
  bool announced_ = false;    // its first piece is out
  bool has_comma_ = false;    // a key must follow
  bool value_began_ = false;  // the white space before the value is over
  bool streams_ = false;      // the value is the arguments, which go out as they come
};

}  // namespace ridge
