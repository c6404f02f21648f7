// The model behind the API: its engines, and how text, chats and schemas become what they take.
// Every member may be used from many threads at once.
//
// What interprets a request's text spends what text/grammar/grammar.h,
// text/chat/chat_template.h and text/tokenizer/tokenizer.h allow, and is given up once
// `cancelled` is true. It is called often, on the thread that works.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/work_limit.h"
#include "live/live_stream.h"
#include "openai/openai_request.h"
#include "serving/live_feed.h"
#include "serving/metrics.h"
#include "serving/observers.h"
#include "serving/replicas.h"
#include "text/chat/chat_template.h"
#include "text/grammar/grammar.h"

namespace ridge {

class ServedModel {
 public:
  // A replica or more of one model. Observers are this class's. `name` is the metrics' label.
  ServedModel(std::vector<ReplicaGroup::Parts> replicas, const std::string& name,
              const ServingEngine::Outputs& outputs);

  ReplicaGroup& engines() const { return engines_; }
  ServingMetrics& metrics() const { return watches_.front()->metrics; }  // text() is of all
  LiveStream& live() const { return live_; }
  const Tokenizer* tokenizer() const { return tokenizer_; }  // null: random weights
  int vocab() const { return vocab_; }

  // With the tokenizer's own beginning token where `add_special`. Without a tokenizer: a token for
  // each word, the id that it writes where it is one.
  std::vector<Token> encode(std::string_view text, bool add_special,
                            const Cancelled& cancelled = {}) const;
  std::string decode(std::span<const Token> tokens) const;
  // Takes its messages and tools. Throws OptionError.
  std::vector<Token> encode_chat(OpenAiRequest& request, const Cancelled& cancelled = {}) const;
  ToolCallStyle tool_call_style() const {
    return template_ ? template_->tool_call_style() : ToolCallStyle::none;
  }

  // The prompt's tokens, the beginning token where the text is empty. Takes what a chat's prompt is
  // made of. Throws OptionError.
  std::vector<Token> prompt_tokens(OpenAiRequest& request, size_t prompt,
                                   const Cancelled& cancelled = {}) const;

  // What the request's response_format or tool_choice asks for; null: any text. Compiled grammars
  // are kept, because they remember the masks that were computed: at most kMostGrammars of together
  // at most kMostGrammarBytes. Throws OptionError, also where compiling takes more than
  // kGrammarTime: steps end it long before that on a machine that is not overloaded.
  std::shared_ptr<const Grammar> grammar(const OpenAiRequest& request,
                                         const Cancelled& cancelled = {});
  static constexpr size_t kMostGrammars = 64, kMostGrammarBytes = size_t{128} << 20;
  static constexpr std::chrono::seconds kGrammarTime{10};

 private:
  // What observes a replica.
  struct Watch {
    Watch(const MetricsOptions& options, const ServingMetrics* beside)
        : metrics(options, beside), feed(options.pages, options.max_sequences) {}
    ServingMetrics metrics;
    LiveFeed feed;
    ServingObservers observers{{&metrics, &feed}};
  };
  std::vector<ReplicaGroup::Parts> watched(std::vector<ReplicaGroup::Parts> replicas,
                                           const std::string& name);
  std::vector<LiveReplica> live_replicas() const;
  void keep_grammar(std::string schema, std::shared_ptr<const Grammar> grammar);

  const std::optional<System> system_;  // what predictions assume
  const std::optional<Stack> stack_;
  std::vector<std::unique_ptr<Watch>> watches_;  // by replica
  mutable ReplicaGroup engines_;
  const Tokenizer* tokenizer_;
  int vocab_;
  std::optional<ChatTemplate> template_;
  std::string template_fault_;  // why there is none
  std::once_flag trie_once_;
  std::shared_ptr<const VocabularyTrie> trie_;  // made for the first grammar
  std::mutex grammars_mutex_;
  std::map<std::string, std::shared_ptr<const Grammar>> grammars_;  // by schema
  mutable LiveStream live_;  // last: its thread uses the engines
};

}  // namespace ridge
