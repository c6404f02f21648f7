// One streamed answer of the OpenAI API, as a load generator sees it: when tokens came, how many,
// and whether the answer is whole.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "load/event_stream.h"

namespace ridge {

class CompletionStream {
 public:
  bool keep_text = false;  // for the next turn of a conversation

  void start(double time);
  // Body bytes of status 200 that arrived at `time`; of another status, the error object.
  void push(std::string_view bytes, double time);
  void push_error(std::string_view bytes);

  double start_s() const { return start_s_; }
  bool any() const { return first_s_ >= 0; }
  double first_s() const { return first_s_; }  // the first chunk with choices
  double last_s() const { return last_s_; }    // the last one
  // Seconds between chunks that carry text. Those of a role or a finish reason alone do not count.
  const std::vector<float>& gaps() const { return gaps_; }
  int chunks() const { return chunks_; }  // that carry text
  bool has_usage() const { return has_usage_; }
  int prompt_tokens() const { return prompt_tokens_; }
  int output_tokens() const { return has_usage_ ? output_tokens_ : chunks_; }
  int cached_tokens() const { return cached_tokens_; }
  bool whole() const { return done_ || finished_; }  // [DONE] or a finish reason came
  bool malformed() const { return malformed_; }
  const std::string& error() const { return error_; }  // the server's own message; empty: none
  const std::string& text() const { return text_; }

 private:
  void take_event(std::string_view data, double time);

  EventStream events_;
  double start_s_ = 0, first_s_ = -1, last_s_ = -1, last_text_s_ = -1;
  std::vector<float> gaps_;
  int chunks_ = 0, prompt_tokens_ = 0, output_tokens_ = 0, cached_tokens_ = 0;
  bool has_usage_ = false, done_ = false, finished_ = false, malformed_ = false;
  std::string error_, error_body_, text_;
};

}  // namespace ridge
