#include "openai/served_model.h"

#include <algorithm>
#include <charconv>
#include <functional>
#include <sstream>

#include "base/error.h"
#include "live/serving_json.h"
#include "text/grammar/json_schema.h"

namespace ridge {
namespace {

// Random weights have no words: any token will do, the same for the same word.
Token token_for_word(const std::string& word, int vocab) {
  Token id = 0;
  const auto [stop, error] = std::from_chars(word.data(), word.data() + word.size(), id);
  if (error == std::errc{} && stop == word.data() + word.size() && id >= 0 && id < vocab) return id;
  return static_cast<Token>(std::hash<std::string>{}(word) % static_cast<size_t>(vocab));
}

Json parameters_of(const Json& tool) {
  Json schema = tool["function"].value("parameters", Json::object());
  if (schema.is_null()) schema = Json::object();
  if (!schema.contains("type")) schema["type"] = "object";
  return schema;
}

// Before the schemas of many tools are put together.
void check_schema_size(const Json& schema, size_t& bytes) {
  bytes += schema.dump().size();
  if (bytes > grammar::kMaxSchemaBytes) {
    throw OptionError("tools", fmt::format("the tools' parameters are longer than {} KiB",
                                           grammar::kMaxSchemaBytes >> 10));
  }
}

// What a forced call must be: the arguments of the named tool, or {"name", "arguments"} of any.
Json tool_call_schema(const OpenAiRequest& request) {
  Json calls = Json::array(), definitions = Json::object();
  size_t bytes = 0;
  for (const Json& tool : request.tools) {
    const Json& name = tool["function"]["name"];
    if (request.tool_choice == ToolChoice::named && name != request.tool_name) continue;
    Json arguments = parameters_of(tool);
    check_schema_size(arguments, bytes);
    if (request.tool_choice == ToolChoice::named) return arguments;
    // References count from the root of the schema.
    if (const auto own = arguments.find("$defs"); own != arguments.end() && own->is_object()) {
      definitions.update(*own);
    }
    calls.push_back({{"type", "object"},
                     {"properties", {{"name", {{"const", name}}}, {"arguments", arguments}}},
                     {"required", {"name", "arguments"}},
                     {"additionalProperties", false}});
  }
  return {{"anyOf", std::move(calls)}, {"$defs", std::move(definitions)}};
}

MetricsOptions metrics_options(const Runner& runner, const ServingOptions& options,
                               const std::string& name, int replica) {
  const RunnerOptions& bounds = runner.options();
  const int own = runner.weights().architecture.max_context;
  const Plan plan = runner.plan();
  const Model& model = runner.weights().model;
  return {.model_name = name,
          .engine = replica,
          .page_tokens = bounds.page_tokens,
          .pages = runner.page_count(),
          .max_context = options.max_context > 0 ? options.max_context : own,
          .max_sequences = std::min(bounds.max_sequences, bounds.max_tokens),
          .prefix_cache = options.prefix_cache,
          .model = model.name,
          .device = runner.device(),
          .weights = plan.weights ? plan.weights->name : main_weight_format(model).name,
          .kv = plan.kv ? plan.kv->name : std::string()};
}

ServedLimits limits_of(const ReplicaGroup& engines) {
  const RunnerOptions& bounds = engines.runner().options();
  return {.max_context = engines.max_context(),
          .max_sequences = engines.size() * std::min(bounds.max_sequences, bounds.max_tokens),
          .max_drafts = engines.engine(0).max_drafts(),
          .replicas = engines.size()};
}

}  // namespace

ServedModel::ServedModel(std::vector<ReplicaGroup::Parts> replicas, const std::string& name,
                         const ServingEngine::Outputs& outputs)
    : system_(replicas.front().options.system),
      stack_(replicas.front().options.stack),
      engines_(watched(std::move(replicas), name), outputs),
      tokenizer_(engines_.runner().weights().tokenizer.get()),
      vocab_(static_cast<int>(engines_.runner().weights().architecture.vocab)),
      live_(serving_json(name, engines_.runner(), limits_of(engines_), system_, stack_),
            live_replicas(), system_, stack_) {
  if (tokenizer_ == nullptr) return;
  try {
    template_.emplace(*tokenizer_);
  } catch (const Error& error) {  // completions work without it
    template_fault_ = error.what();
  }
}

std::vector<ReplicaGroup::Parts> ServedModel::watched(std::vector<ReplicaGroup::Parts> replicas,
                                                      const std::string& name) {
  for (ReplicaGroup::Parts& parts : replicas) {
    const Runner& runner = *parts.runner;
    const ServingMetrics* const beside = watches_.empty() ? nullptr : &watches_.front()->metrics;
    Watch& watch = *watches_.emplace_back(std::make_unique<Watch>(
        metrics_options(runner, parts.options, name, int(watches_.size())), beside));
    parts.observer = &watch.observers;
    parts.options.on_failure = [&watch, then = parts.options.on_failure](const std::string& error) {
      watch.metrics.on_engine_failed();
      if (then) then(error);
    };
  }
  return replicas;
}

std::vector<LiveReplica> ServedModel::live_replicas() const {
  std::vector<LiveReplica> all;
  for (int r = 0; r < engines_.size(); ++r) {
    all.push_back({&watches_[size_t(r)]->feed, &engines_.engine(r)});
  }
  return all;
}

std::vector<Token> ServedModel::encode(std::string_view text, bool add_special,
                                       const Cancelled& cancelled) const {
  if (tokenizer_ == nullptr) {
    std::vector<Token> tokens;
    std::istringstream words{std::string(text)};
    for (std::string word; words >> word;) tokens.push_back(token_for_word(word, vocab_));
    return tokens;
  }
  const TextPart part{text};
  std::vector<Token> tokens = tokenizer_->encode({&part, 1}, cancelled);
  if (add_special && tokenizer_->adds_bos && tokenizer_->bos) {
    tokens.insert(tokens.begin(), *tokenizer_->bos);
  }
  return tokens;
}

std::string ServedModel::decode(std::span<const Token> tokens) const {
  if (tokenizer_ != nullptr) return tokenizer_->decode(tokens);
  std::string text;
  for (const Token token : tokens) text += fmt::format(" {}", token);
  return text;
}

std::vector<Token> ServedModel::encode_chat(OpenAiRequest& request,
                                            const Cancelled& cancelled) const {
  if (tokenizer_ == nullptr) {
    std::string text;
    for (const Json& message : request.messages) {
      if (message["content"].is_string()) text += message["content"].get<std::string>() + " ";
    }
    return encode(text, false);
  }
  if (!template_) throw OptionError("messages", template_fault_);
  try {
    return template_->tokens({.messages = std::move(request.messages),
                              .tools = std::move(request.tools),
                              .add_generation_prompt = request.add_generation_prompt,
                              .continue_final_message = request.continue_final_message,
                              .template_kwargs = request.template_arguments},
                             cancelled);
  } catch (const Error& error) {
    throw OptionError("messages", error.what());
  }
}

std::vector<Token> ServedModel::prompt_tokens(OpenAiRequest& request, size_t prompt,
                                              const Cancelled& cancelled) const {
  std::vector<Token> tokens;
  if (request.chat) {
    tokens = encode_chat(request, cancelled);
  } else if (const auto* text = std::get_if<std::string>(&request.prompts[prompt])) {
    try {
      tokens = encode(*text, request.add_special_tokens, cancelled);
    } catch (const Error& error) {
      throw OptionError("prompt", error.what());
    }
    if (tokens.empty() && tokenizer_ != nullptr && tokenizer_->bos) {
      tokens.push_back(*tokenizer_->bos);
    }
  } else {
    tokens = std::get<std::vector<Token>>(request.prompts[prompt]);
  }
  if (tokens.empty()) {
    throw OptionError(request.chat ? "messages" : "prompt",
                      "the prompt is empty: there is nothing to continue");
  }
  return tokens;
}

std::shared_ptr<const Grammar> ServedModel::grammar(const OpenAiRequest& request,
                                                    const Cancelled& cancelled) {
  const bool forced =
      request.tool_choice == ToolChoice::required || request.tool_choice == ToolChoice::named;
  if (!request.schema && !forced) return nullptr;
  const char* const field = forced ? "tools" : request.schema_field;
  if (tokenizer_ == nullptr) throw OptionError(field, "random weights write no JSON");
  const Json schema = forced ? tool_call_schema(request) : *request.schema;
  std::string text = schema.dump();
  {
    const std::lock_guard lock(grammars_mutex_);
    if (const auto known = grammars_.find(text); known != grammars_.end()) return known->second;
  }
  std::call_once(trie_once_, [&] { trie_ = std::make_shared<const VocabularyTrie>(*tokenizer_); });
  // Without the lock: nobody waits for another one's schema. Two may compile the same one.
  try {
    WorkLimit work("the schema", kMaxGrammarSteps, kGrammarTime, cancelled);
    auto made = std::make_shared<const Grammar>(schema, trie_, work);
    keep_grammar(std::move(text), made);
    return made;
  } catch (const Error& error) {
    throw OptionError(field, error.what());
  }
}

void ServedModel::keep_grammar(std::string schema, std::shared_ptr<const Grammar> grammar) {
  const std::lock_guard lock(grammars_mutex_);
  size_t bytes = grammar->bytes();
  for (const auto& [text, known] : grammars_) bytes += known->bytes();
  if (grammars_.size() >= kMostGrammars || bytes > kMostGrammarBytes) grammars_.clear();
  grammars_.emplace(std::move(schema), std::move(grammar));
}

}  // namespace ridge
