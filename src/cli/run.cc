// `ridge run`: generate text, and say how close to the roof that was.
#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <iostream>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "base/units.h"
#include "cli/command.h"
#include "cli/converse.h"
#include "cli/engine_options.h"
#include "cli/interrupt.h"
#include "cli/measurement_doubt.h"
#include "cli/run_report.h"
#include "engine/generate/generate.h"
#include "hub/hub_cache.h"
#include "text/chat/chat_template.h"

namespace ridge {
namespace {

constexpr const char* kRunFooter = R"(Examples:
  ridge run                                      the model inside the program, offline
  ridge run "The memory of a computer"           the same, with your words
  ridge run ~/models/Llama-3.2-1B-Instruct --chat "What is a roofline?"
  ridge run Qwen/Qwen3-0.6B --chat "Hello"       from the Hugging Face cache, see ridge pull
  ridge run model-Q4_K_M.gguf -i                 a conversation; Ctrl-D ends it
  ridge run model.gguf "Once" -n 64 --temperature 0 --trace trace.json
  ridge run llama-3-8b --weights random:1 --format q8_0 "x" -n 16   speed without the files

Text goes to standard output. Ctrl-C ends a generation early (exit code 130). The closing line on
standard error says tokens per second, bytes per second, the share of this machine's roof that is,
and the wall. --profile adds a table of operators, predicted beside measured; --trace writes that
and a Chrome trace (chrome://tracing).

JSON: {model, device, prompt_tokens, tokens, text, end, first_token_s, prompt, generation, sampled,
doubt (what else used the processors, or null)}.
prompt and generation: {steps, tokens, seconds, tokens_per_s, bytes, flops, bytes_per_s, roof_s,
expected_s, share_of_roof, wall, next_wall, memory, operators: [{name, calls, bytes, flops, roof_s,
expected_s, measured_s, wall}]}. sampled: [{token, text, logprob, best: [{token, logprob}]}].)";

constexpr const char* kDefaultPrompt = "The memory of a computer";

struct RunCommandOptions {
  EngineOptions engine;
  GenerateOptions generate;
  std::string first, second;  // MODEL PROMPT, or one of them
  std::string prompt_file, system, trace;
  std::vector<std::string> logit_bias;
  int context = 2048;
  bool interactive = false, chat = false, profiled = false;
};

// One word alone is the model when it names one, else the prompt.
std::string take_prompt(RunCommandOptions& options) {
  const bool random = !options.engine.weights.empty();
  std::error_code ignored;  // a prompt may be too long for a path
  const auto names_model = [&](const std::string& name) {
    return random || name.ends_with(".gguf") || name.ends_with(".safetensors") ||
           name.starts_with("ridge-") || parse_hub_name(name) ||
           std::filesystem::exists(name, ignored);
  };
  std::string prompt = options.second;
  options.engine.model = options.first;
  if (options.second.empty() && !options.first.empty() && !names_model(options.first)) {
    prompt = options.first;
    options.engine.model.clear();
  }
  const bool elsewhere = options.interactive || !options.prompt_file.empty();
  if (elsewhere && !prompt.empty()) {
    throw Error("the prompt is \"{}\" or comes from {}, not both", prompt.substr(0, 40),
                options.interactive ? "the conversation" : "--prompt-file");
  }
  if (!options.prompt_file.empty()) {
    constexpr size_t kMaxPrompt = 64 << 20;
    prompt = options.prompt_file == "-" ? std::string(std::istreambuf_iterator<char>(std::cin), {})
                                        : read_file(options.prompt_file, kMaxPrompt);
  }
  return prompt;
}

// "ID=BIAS".
LogitBias parse_bias(const std::string& text) {
  const size_t equals = text.find('=');
  size_t used = 0;
  try {
    const int token = std::stoi(text.substr(0, equals), &used);
    const float bias = equals == std::string::npos ? 0 : std::stof(text.substr(equals + 1));
    if (equals != std::string::npos && used == equals) return {token, bias};
  } catch (const std::exception&) {
  }
  throw OptionError("logit-bias", fmt::format("--logit-bias {}: ID=BIAS, such as 13=-5", text));
}

std::vector<Token> prompt_tokens(const Runner& runner, const RunCommandOptions& options,
                                 const std::string& prompt) {
  const Tokenizer* tokenizer = runner.weights().tokenizer.get();
  if (tokenizer == nullptr) {  // random weights: any tokens will do, one per word or so
    const size_t words = std::max<size_t>(1, prompt.size() / 5);
    std::vector<Token> tokens(words);
    const auto vocab = static_cast<uint32_t>(runner.weights().architecture.vocab);
    for (size_t i = 0; i < words; ++i) tokens[i] = Token((i * 2654435761u + 12345u) % vocab);
    return tokens;
  }
  if (options.chat) {
    std::vector<ChatMessage> messages;
    if (!options.system.empty()) messages.push_back({"system", options.system});
    messages.push_back({"user", prompt});
    return chat_tokens(*tokenizer, messages);
  }
  return text_prompt(*tokenizer, prompt);
}

void show_text(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

void generate_text(RunCommandOptions& options, Global& global) {
  if (options.interactive && global.json) throw Error("a conversation has no --json");
  int& logprobs = options.generate.sampler.logprobs;
  if (logprobs != kNoLogprobs && !global.json) throw Error("--logprobs needs --json");
  if (global.json) logprobs = std::max(logprobs, 0);  // of the drawn token always
  if (!options.system.empty() && !options.chat && !options.interactive) {
    throw Error("--system needs --chat or -i");
  }
  std::string prompt = take_prompt(options);
  for (const std::string& bias : options.logit_bias) {
    options.generate.sampler.logit_bias.push_back(parse_bias(bias));
  }
  if (!options.trace.empty()) {
    check_writable(options.trace);
    options.profiled = true;
  }
  if (options.profiled && options.engine.pp > 1) {
    throw OptionError("profile",
                      "--profile: with --pp the operators of other stages are not timed");
  }
  std::unique_ptr<Runner> runner = make_runner(options.engine, {.cache_tokens = options.context});
  if (options.interactive) {
    converse(std::move(runner), options.engine, options.generate, options.system);
    return;
  }

  const bool shown = !global.json;
  if (prompt.empty()) prompt = kDefaultPrompt;
  const std::vector<Token> tokens = prompt_tokens(*runner, options, prompt);
  options.generate.profile = options.profiled;
  PagePool pool(runner->page_count(), runner->options().page_tokens);
  KvSequence sequence(pool);
  // The prompt stands before its continuation, but not before an error.
  std::string before =
      shown && !options.chat && runner->weights().tokenizer != nullptr ? prompt : std::string();
  const auto show = [&](std::string_view text) {
    if (!shown) return;
    show_text(std::exchange(before, {}));
    show_text(text);
  };
  const Disturbance began = disturbance_now();
  const Generated made = [&] {
    const InterruptScope interrupt;
    options.generate.cancelled = &interrupt.flag();
    return generate(*runner, sequence, tokens, options.generate, show);
  }();
  if (made.end == EndReason::cancelled) global.exit_code = kInterruptedExitCode;
  if (shown) show("\n");
  const System system = roof_system(options.engine, *runner);
  const std::string doubt = doubt_since(began, options.engine, *runner);
  if (global.json) {
    Json json = run_json(*runner, made, tokens.size(), system);
    json["doubt"] = doubt_json(doubt);
    fmt::print("{}\n", json.dump(2));
  } else {
    std::fflush(stdout);
    if (options.profiled) fmt::print(stderr, "\n");
    fmt::print(stderr, "{}", doubt_line(doubt));
    if (options.profiled) fmt::print(stderr, "{}", profile_text(*runner, made, system));
    fmt::print(stderr, "{}\n", run_line(*runner, made, system));
  }
  if (!options.trace.empty()) {
    write_file(options.trace, chrome_trace(made));
    const long dropped =
        made.prompt_profile.dropped_events() + made.generation_profile.dropped_events();
    fmt::print(stderr, "trace: {}{}\n", options.trace,
               dropped > 0 ? fmt::format(" ({} later events left out)", dropped) : "");
  }
}

}  // namespace

void add_run_command(CLI::App& app, Global& global) {
  auto options = std::make_shared<RunCommandOptions>();
  // What reads well from small models; equal seeds still give equal text.
  options->generate.sampler.temperature = 0.7;
  options->generate.sampler.top_p = 0.95;
  options->generate.sampler.repetition_penalty = 1.1;
  CLI::App* command = app.add_subcommand("run", "Generate text, with achieved against roof");
  command->footer(kRunFooter);
  command->add_option(
      "model", options->first,
      "A folder with config.json and safetensors, a *.gguf, ORG/NAME of the Hugging Face "
      "cache; none: the one inside");
  command->add_option("prompt", options->second, "What to continue, or to answer with --chat");
  CLI::Option* talk = command->add_flag("-i,--interactive", options->interactive, "A conversation");
  command->add_flag("--chat", options->chat, "Put the prompt into the model's chat template");
  command->add_option("--system", options->system, "System message of a chat");
  command
      ->add_option("--prompt-file", options->prompt_file, "The prompt from a file, or - for stdin")
      ->excludes(talk);
  command->add_option("-n,--tokens", options->generate.max_tokens, "Tokens to generate at most")
      ->check(CLI::Range(1, 1 << 24))
      ->capture_default_str();
  command->add_option("-c,--context", options->context, "Tokens the KV cache holds")
      ->check(CLI::Range(1, 1 << 24))
      ->capture_default_str();
  command->add_flag("--profile", options->profiled, "Table of operators")->excludes(talk);
  command->add_option("--trace", options->trace, "Chrome trace to write; implies --profile")
      ->excludes(talk);
  add_engine_options(*command, options->engine);

  const char* kSampling = "Sampling";
  SamplerOptions& sampler = options->generate.sampler;
  command->add_option("--temperature", sampler.temperature, "0: always the most probable token")
      ->capture_default_str()
      ->group(kSampling);
  command->add_option("--top-k", sampler.top_k, "Only the k most probable; 0: all")
      ->capture_default_str()
      ->group(kSampling);
  command->add_option("--top-p", sampler.top_p, "The most probable that make up p")
      ->capture_default_str()
      ->group(kSampling);
  command->add_option("--min-p", sampler.min_p, "At least p times the most probable")
      ->capture_default_str()
      ->group(kSampling);
  command->add_option("--repetition-penalty", sampler.repetition_penalty, "1: none")
      ->capture_default_str()
      ->group(kSampling);
  command
      ->add_option("--presence-penalty", sampler.presence_penalty, "Of generated tokens; 0: none")
      ->capture_default_str()
      ->group(kSampling);
  command
      ->add_option("--frequency-penalty", sampler.frequency_penalty,
                   "Times how often each was generated; 0: none")
      ->capture_default_str()
      ->group(kSampling);
  command->add_option("--logit-bias", options->logit_bias, "ID=BIAS, may be repeated")
      ->allow_extra_args(false)
      ->group(kSampling);
  command->add_option("--seed", sampler.seed, "Equal seeds give equal text")
      ->check([](const std::string& seed) {
        return std::string(seed.starts_with('-') ? "must not be negative" : "");
      })
      ->capture_default_str()
      ->group(kSampling);
  command->add_option("--stop", options->generate.stops, "Text that ends it, may be repeated")
      ->allow_extra_args(false)
      ->group(kSampling);
  command->add_flag("--ignore-eos", options->generate.ignore_end, "Go on past the model's end")
      ->group(kSampling);
  command
      ->add_option("--logprobs", sampler.logprobs,
                   "With --json: the n most probable at each position")
      ->group(kSampling);
  command->callback([options, &global] { generate_text(*options, global); });
}

}  // namespace ridge
