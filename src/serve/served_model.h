// The model behind the API: its engines, and how text, chats and schemas become what they take.
// Every member may be used from many threads at once.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/chat/chat_template.h"
#include "engine/grammar/grammar.h"
#include "serve/live_stream.h"
#include "serve/openai_request.h"
#include "serving/live_feed.h"
#include "serving/metrics.h"
#include "serving/observers.h"
#include "serving/replicas.h"

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
  std::vector<Token> encode(std::string_view text, bool add_special) const;
  std::string decode(std::span<const Token> tokens) const;
  std::vector<Token> encode_chat(const OpenAiRequest& request) const;  // throws OptionError
  ToolCallStyle tool_call_style() const {
    return template_ ? template_->tool_call_style() : ToolCallStyle::none;
  }

  // The prompt's tokens, the beginning token where the text is empty. Throws OptionError.
  std::vector<Token> prompt_tokens(const OpenAiRequest& request, size_t prompt) const;

  // What the request's response_format or tool_choice asks for; null: any text. Compiled grammars
  // are kept, because they remember the masks that were computed. Throws OptionError.
  std::shared_ptr<const Grammar> grammar(const OpenAiRequest& request);

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

  const std::optional<System> system_;  // what predictions assume
  const std::optional<Stack> stack_;
  std::vector<std::unique_ptr<Watch>> watches_;  // by replica
  mutable ReplicaGroup engines_;
  const Tokenizer* tokenizer_;
  int vocab_;
  std::optional<ChatTemplate> template_;
  std::string template_fault_;  // why there is none
  std::mutex grammars_mutex_;
  std::shared_ptr<const VocabularyTrie> trie_;                      // made for the first grammar
  std::map<std::string, std::shared_ptr<const Grammar>> grammars_;  // by schema
  mutable LiveStream live_;  // last: its thread uses the engines
};

}  // namespace ridge
