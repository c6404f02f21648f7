// Every field of a request that Ridge looks at: those that it reads, and those of other servers
// that change the answer or its constraints, which must have their neutral value. All others only
// give hints (user, store, service_tier, cache_prompt, verbosity, ...): they are ignored.
#include <algorithm>
#include <iterator>

#include "base/error.h"
#include "openai/openai_fields.h"

namespace ridge {
namespace {

constexpr int kCompletion = 1 << int(OpenAiApi::completion);
constexpr int kChat = 1 << int(OpenAiApi::chat);
constexpr int kTokenize = 1 << int(OpenAiApi::tokenize);
constexpr int kDetokenize = 1 << int(OpenAiApi::detokenize);
constexpr int kGenerate = kCompletion | kChat;
constexpr int kTemplate = kChat | kTokenize;

struct FieldRow {
  std::string_view name;
  int apis;
  // A JSON list of the values that change nothing; null, empty lists and empty objects do not
  // either. nullptr: the field is read.
  const char* neutral = nullptr;
};

constexpr FieldRow kFields[] = {
    {"model", kGenerate | kTokenize | kDetokenize},
    {"prompt", kCompletion | kTokenize},
    {"tokens", kDetokenize},
    {"messages", kTemplate},
    {"tools", kTemplate},
    {"tool_choice", kTemplate},
    {"parallel_tool_calls", kTemplate},
    {"chat_template_kwargs", kTemplate},
    {"reasoning_effort", kTemplate},
    {"add_generation_prompt", kTemplate},
    {"continue_final_message", kTemplate},
    {"add_special_tokens", kCompletion | kTokenize},
    {"return_token_strs", kTokenize},
    {"temperature", kGenerate},
    {"top_p", kGenerate},
    {"top_k", kGenerate},
    {"min_p", kGenerate},
    {"repetition_penalty", kGenerate},
    {"presence_penalty", kGenerate},
    {"frequency_penalty", kGenerate},
    {"logit_bias", kGenerate},
    {"seed", kGenerate},
    {"n", kGenerate},
    {"best_of", kCompletion},
    {"max_tokens", kGenerate},
    {"max_completion_tokens", kChat},
    {"min_tokens", kGenerate},
    {"stop", kGenerate},
    {"stop_token_ids", kGenerate},
    {"ignore_eos", kGenerate},
    {"logprobs", kGenerate},
    {"top_logprobs", kChat},
    {"echo", kCompletion},
    {"stream", kGenerate},
    {"stream_options", kGenerate},
    {"response_format", kGenerate},
    {"json_schema", kGenerate},
    {"return_token_ids", kGenerate},
    {"cache_salt", kGenerate},
    {"priority", kGenerate},
    {"max_drafts", kGenerate},

    // What the text may be.
    {"grammar", kGenerate, R"([""])"},
    {"grammar_string", kGenerate, R"([""])"},
    {"ebnf", kGenerate, R"([""])"},
    {"regex", kGenerate, R"([""])"},
    {"structural_tag", kGenerate, R"([""])"},
    {"structured_outputs", kGenerate, "[]"},
    {"guided_json", kGenerate, R"([""])"},
    {"guided_choice", kGenerate, "[]"},
    {"guided_regex", kGenerate, R"([""])"},
    {"guided_grammar", kGenerate, R"([""])"},
    {"allowed_token_ids", kGenerate, "[]"},
    {"bad_words", kGenerate, "[]"},
    {"logits_processors", kGenerate, "[]"},
    {"custom_logit_processor", kGenerate, R"([""])"},
    // Where it ends, and what of it is returned.
    {"n_predict", kGenerate, "[-1]"},
    {"min_new_tokens", kGenerate, "[0]"},
    {"max_new_tokens", kGenerate, "[]"},
    {"n_indent", kGenerate, "[0]"},
    {"t_max_predict_ms", kGenerate, "[0, -1]"},
    {"stop_regex", kGenerate, R"([""])"},
    {"include_stop_str_in_output", kGenerate, "[false]"},
    {"no_stop_trim", kGenerate, "[false]"},
    {"skip_special_tokens", kGenerate, "[true]"},
    {"ban_eos_token", kGenerate, "[false]"},
    {"thinking_budget", kGenerate, "[-1]"},
    {"thinking_token_budget", kGenerate, "[-1]"},
    {"thinking_budget_tokens", kGenerate, "[-1]"},
    {"reasoning_budget", kGenerate, "[-1]"},
    {"n_probs", kGenerate, "[0]"},
    {"prompt_logprobs", kGenerate, "[]"},
    {"return_tokens_as_token_ids", kGenerate, "[false]"},
    {"return_hidden_states", kGenerate, "[false]"},
    {"modalities", kGenerate, R"([["text"]])"},
    {"audio", kGenerate, "[]"},
    // How tokens are drawn.
    {"use_beam_search", kGenerate, "[false]"},  // its length_penalty is no matter then
    {"num_beams", kGenerate, "[1]"},
    {"do_sample", kGenerate, "[true]"},
    {"samplers", kGenerate, R"([""])"},
    {"min_keep", kGenerate, "[0, 1]"},
    {"repeat_penalty", kGenerate, "[1]"},
    {"no_repeat_ngram_size", kGenerate, "[0]"},
    {"dry_multiplier", kGenerate, "[0]"},
    {"xtc_probability", kGenerate, "[0]"},
    {"dynatemp_range", kGenerate, "[0]"},
    {"mirostat", kGenerate, "[0]"},
    {"mirostat_mode", kGenerate, "[0]"},
    {"adaptive_target", kGenerate, "[-1]"},
    {"typical_p", kGenerate, "[1]"},
    {"typical", kGenerate, "[1]"},
    {"tfs_z", kGenerate, "[1]"},
    {"tfs", kGenerate, "[1]"},
    {"top_a", kGenerate, "[0]"},
    {"top_n_sigma", kGenerate, "[-1, 0]"},
    {"epsilon_cutoff", kGenerate, "[0]"},
    {"eta_cutoff", kGenerate, "[0]"},
    {"smoothing_factor", kGenerate, "[0]"},
    {"penalty_alpha", kGenerate, "[0]"},
    {"guidance_scale", kGenerate, "[1]"},
    {"negative_prompt", kGenerate, R"([""])"},
    {"lora", kGenerate, "[]"},
    {"lora_path", kGenerate, R"([""])"},
    // What the prompt is.
    {"suffix", kCompletion, R"([""])"},
    {"prompt_embeds", kCompletion, R"([""])"},
    {"truncate_prompt_tokens", kGenerate, "[]"},
    {"echo", kChat, "[false]"},
    {"add_special_tokens", kChat, "[false]"},
    {"chat_template", kTemplate, R"([""])"},
    {"documents", kTemplate, "[]"},
    {"mm_processor_kwargs", kTemplate, "[]"},
    {"functions", kTemplate, "[]"},
    {"function_call", kTemplate, R"(["none"])"},
    {"web_search_options", kChat, "[]"},
};

const FieldRow* find_row(std::string_view name, OpenAiApi api) {
  const auto found = std::find_if(std::begin(kFields), std::end(kFields), [&](const FieldRow& row) {
    return row.name == name && (row.apis >> int(api) & 1) != 0;
  });
  return found == std::end(kFields) ? nullptr : found;
}

}  // namespace

bool is_known_field(std::string_view name, OpenAiApi api) { return find_row(name, api) != nullptr; }

void check_neutral_fields(const Json& body, OpenAiApi api) {
  for (const auto& [name, value] : body.items()) {
    const char* const neutral = find_row(name, api)->neutral;
    if (neutral == nullptr || value.is_null() || (value.is_structured() && value.empty())) continue;
    const Json list = Json::parse(neutral);
    if (std::find(list.begin(), list.end(), value) != list.end()) continue;
    const std::string only = list.empty() ? "" : fmt::format(": only {}", list.front().dump());
    throw OptionError(name, fmt::format("{} is not supported{}", name, only));
  }
}

}  // namespace ridge
