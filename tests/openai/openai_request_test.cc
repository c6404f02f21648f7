// Every field of a request's body: what it becomes, and which error names it.
#include "openai/openai_request.h"

#include <gtest/gtest.h>

#include <array>

#include "base/error.h"

namespace ridge {
namespace {

constexpr int kVocab = 1000;

OpenAiRequest completion(const std::string& members) {
  return read_completion_request("{\"prompt\":\"x\"," + members + "}", kVocab);
}

OpenAiRequest chat(const std::string& members) {
  return read_chat_request(R"({"messages":[{"role":"user","content":"Hi"}],)" + members + "}",
                           kVocab);
}

OpenAiRequest chat_with(const std::string& messages) {
  return read_chat_request("{\"messages\":" + messages + "}", kVocab);
}

// The field that the error names; "" for an error of the whole body, "-" where there is none.
template <typename Read>
std::string fault(Read read) {
  try {
    read();
  } catch (const OptionError& error) {
    EXPECT_FALSE(std::string(error.what()).empty());
    return error.option();
  } catch (const Error&) {
    return "";
  }
  return "-";
}

std::string completion_fault(const std::string& members) {
  return fault([&] { completion(members); });
}
std::string chat_fault(const std::string& members) {
  return fault([&] { chat(members); });
}

TEST(OpenAiRequest, HasOpenAisDefaults) {
  for (const OpenAiRequest& request : {completion("\"x\":1"), chat("\"x\":1")}) {
    const SamplerOptions& sampler = request.generate.sampler;
    EXPECT_EQ(sampler.temperature, 1);
    EXPECT_EQ(sampler.top_p, 1);
    EXPECT_EQ(sampler.top_k, 0);
    EXPECT_EQ(sampler.min_p, 0);
    EXPECT_EQ(sampler.repetition_penalty, 1);
    EXPECT_EQ(sampler.presence_penalty, 0);
    EXPECT_EQ(sampler.frequency_penalty, 0);
    EXPECT_EQ(sampler.logprobs, kNoLogprobs);
    EXPECT_TRUE(sampler.logit_bias.empty());
    EXPECT_EQ(request.n, 1);
    EXPECT_FALSE(request.seed);
    EXPECT_FALSE(request.max_tokens);
    EXPECT_FALSE(request.stream);
    EXPECT_FALSE(request.generate.ignore_end);
    EXPECT_TRUE(request.generate.stops.empty());
    EXPECT_TRUE(request.model.empty());
  }
}

TEST(OpenAiRequest, ReadsEveryFieldOfBothApis) {
  const std::string members =
      R"("model":"m","temperature":0.5,"top_p":0.9,"top_k":7,"min_p":0.1,"repetition_penalty":1.2,
      "presence_penalty":-2,"frequency_penalty":2,"logit_bias":{"13":-100,"999":5},"n":3,
      "seed":-4,"stop":["a","bc"],"stop_token_ids":[5,6],"ignore_eos":true,"min_tokens":2,
      "max_tokens":9,"stream":true,"stream_options":{"include_usage":true},
      "return_token_ids":true,"cache_salt":"s","priority":-3,"user":"u","unknown":{"a":[1]})";
  for (const OpenAiRequest& request : {completion(members), chat(members)}) {
    const SamplerOptions& sampler = request.generate.sampler;
    EXPECT_EQ(request.model, "m");
    EXPECT_EQ(sampler.temperature, 0.5);
    EXPECT_EQ(sampler.top_p, 0.9);
    EXPECT_EQ(sampler.top_k, 7);
    EXPECT_EQ(sampler.min_p, 0.1);
    EXPECT_EQ(sampler.repetition_penalty, 1.2);
    EXPECT_EQ(sampler.repeat_last_n, -1);
    EXPECT_EQ(sampler.presence_penalty, -2);
    EXPECT_EQ(sampler.frequency_penalty, 2);
    ASSERT_EQ(sampler.logit_bias.size(), 2u);
    EXPECT_EQ(sampler.logit_bias[0].token, 13);
    EXPECT_EQ(sampler.logit_bias[0].bias, -100);
    EXPECT_EQ(request.n, 3);
    EXPECT_EQ(request.seed, -4);
    EXPECT_EQ(request.generate.stops, (std::vector<std::string>{"a", "bc"}));
    EXPECT_EQ(request.generate.stop_tokens, (std::vector<Token>{5, 6}));
    EXPECT_TRUE(request.generate.ignore_end);
    EXPECT_EQ(request.generate.min_tokens, 2);
    EXPECT_EQ(request.max_tokens, 9);
    EXPECT_TRUE(request.stream && request.include_usage && request.return_token_ids);
    EXPECT_EQ(request.cache_salt, "s");
    EXPECT_EQ(request.priority, -3);
  }
}

TEST(OpenAiRequest, NullIsTheDefault) {
  const std::string members =
      R"("model":null,"temperature":null,"top_p":null,"n":null,"seed":null,"stop":null,
      "max_tokens":null,"logit_bias":null,"logprobs":null,"stream":null,"stream_options":null,
      "stop_token_ids":null,"response_format":null,"tools":null,"tool_choice":null)";
  EXPECT_EQ(completion(members).generate.sampler.temperature, 1);
  EXPECT_EQ(chat(members).n, 1);
}

TEST(OpenAiRequest, ReadsSpellingsOfOthers) {
  EXPECT_EQ(completion(R"("stop":"one")").generate.stops, std::vector<std::string>{"one"});
  EXPECT_EQ(completion(R"("top_k":-1)").generate.sampler.top_k, 0);
  EXPECT_GT(completion(R"("top_p":0)").generate.sampler.top_p, 0);
  EXPECT_EQ(completion(R"("max_tokens":8.0)").max_tokens, 8);
  EXPECT_EQ(chat(R"("max_tokens":8,"max_completion_tokens":5)").max_tokens, 5);
  EXPECT_EQ(completion(R"("n":2,"best_of":2)").n, 2);
  EXPECT_EQ(completion(R"("suffix":"")").n, 1);
  EXPECT_EQ(completion(R"("seed":9223372036854775807)").seed, INT64_MAX);
}

TEST(OpenAiRequest, NamesTheFieldAtFault) {
  const std::pair<const char*, const char*> kFaults[] = {
      {"model", "1"},
      {"guided_choice", "[\"yes\"]"},
      {"allowed_token_ids", "[1]"},
      {"temperature", "-0.1"},
      {"temperature", "2.1"},
      {"temperature", "\"hot\""},
      {"top_p", "1.1"},
      {"top_p", "-1"},
      {"top_k", "-2"},
      {"top_k", "1.5"},
      {"min_p", "2"},
      {"repetition_penalty", "0"},
      {"repetition_penalty", "-1"},
      {"presence_penalty", "2.1"},
      {"frequency_penalty", "-2.1"},
      {"logit_bias", "[1]"},
      {"logit_bias", R"({"x":1})"},
      {"logit_bias", R"({"-1":1})"},
      {"logit_bias", R"({"1000":1})"},
      {"logit_bias", R"({"1 ":1})"},
      {"logit_bias", R"({"99999999999":1})"},
      {"logit_bias", R"({"1":101})"},
      {"logit_bias", R"({"1":"a"})"},
      {"n", "0"},
      {"n", "129"},
      {"n", "\"2\""},
      {"seed", "0.5"},
      {"seed", "1e30"},
      {"stop", "5"},
      {"stop", "[5]"},
      {"stop", "[\"\"]"},
      {"stop", R"(["1","2","3","4","5","6","7","8","9","a","b","c","d","e","f","g","h"])"},
      {"stop_token_ids", "[1000]"},
      {"stop_token_ids", "[-1]"},
      {"stop_token_ids", "[1.5]"},
      {"stop_token_ids", "7"},
      {"ignore_eos", "1"},
      {"min_tokens", "-1"},
      {"max_tokens", "0"},
      {"max_tokens", "-5"},
      {"max_tokens", "3000000000"},
      {"max_tokens", "\"many\""},
      {"stream", "\"yes\""},
      {"stream_options", "{}"},
      {"return_token_ids", "1"},
      {"cache_salt", "1"},
      {"priority", "\"high\""},
      {"response_format", "\"json\""},
      {"response_format", R"({"type":"xml"})"},
      {"response_format", R"({"type":"json_schema"})"},
      {"response_format", R"({"type":"json_schema","json_schema":{"schema":1}})"},
  };
  for (const auto& [name, value] : kFaults) {
    const std::string member = fmt::format("\"{}\":{}", name, value);
    EXPECT_EQ(completion_fault(member), name) << member;
    EXPECT_EQ(chat_fault(member), name) << member;
  }
  EXPECT_EQ(completion_fault(R"("stream":true,"stream_options":1)"), "stream_options");
  EXPECT_EQ(completion_fault(R"("stream":true,"stream_options":{"include_usage":1})"),
            "stream_options");
  EXPECT_EQ(completion_fault(R"("max_tokens":3,"min_tokens":4)"), "min_tokens");
  EXPECT_EQ(completion_fault("\"stop\":\"" + std::string(2000, 'x') + "\""), "stop");
}

TEST(OpenAiRequest, RefusesBodiesThatAreNoObjectInUtf8) {
  for (const std::string body :
       {"", "[]", "{", "1", "{\"prompt\":\"\xff\"}", "{\"prompt\":\"\xed\xa0\x80\"}",
        "{\"prompt\":\"\\ud800\"}", "{\"prompt\":\"x\",\"seed\":1e999}"}) {
    EXPECT_EQ(fault([&] { read_completion_request(body, kVocab); }), "") << body;
    EXPECT_EQ(fault([&] { read_chat_request(body, kVocab); }), "") << body;
  }
  std::string deep(100, '[');
  EXPECT_EQ(completion_fault("\"x\":" + deep), "");
}

TEST(OpenAiRequest, ReadsPromptsInEveryForm) {
  const auto prompts = [](const std::string& value) {
    return read_completion_request("{\"prompt\":" + value + "}", kVocab).prompts;
  };
  using Tokens = std::vector<Token>;
  EXPECT_EQ(prompts("\"a\""), (std::vector<PromptInput>{"a"}));
  EXPECT_EQ(prompts("\"\""), (std::vector<PromptInput>{""}));
  EXPECT_EQ(prompts("[1,2]"), (std::vector<PromptInput>{Tokens{1, 2}}));
  EXPECT_EQ(prompts(R"(["a","b"])"), (std::vector<PromptInput>{"a", "b"}));
  EXPECT_EQ(prompts("[[1],[2,3]]"), (std::vector<PromptInput>{Tokens{1}, Tokens{2, 3}}));
  for (const char* value :
       {"1", "{}", "[]", "[1,\"a\"]", "[1000]", "[[1],[-1]]", "[[1.5]]", "[null]", "[{}]"}) {
    EXPECT_EQ(fault([&] { prompts(value); }), "prompt") << value;
  }
  EXPECT_EQ(fault([] { read_completion_request("{}", kVocab); }), "prompt");
  std::string many = "[\"x\"";
  for (int i = 0; i < kMaxChoices; ++i) many += ",\"x\"";
  EXPECT_EQ(fault([&] { prompts(many + "]"); }), "prompt");
  EXPECT_EQ(fault([] { read_completion_request(R"({"prompt":["a","b","c"],"n":100})", kVocab); }),
            "n");
}

TEST(OpenAiRequest, ReadsWhatOnlyCompletionsHave) {
  EXPECT_EQ(completion(R"("logprobs":0)").generate.sampler.logprobs, 0);
  EXPECT_EQ(completion(R"("logprobs":20)").generate.sampler.logprobs, 20);
  EXPECT_TRUE(completion(R"("echo":true)").echo);
  EXPECT_EQ(completion(R"("echo":true,"max_tokens":0)").max_tokens, 0);
  EXPECT_FALSE(completion(R"("add_special_tokens":false)").add_special_tokens);
  EXPECT_EQ(completion_fault(R"("logprobs":21)"), "logprobs");
  EXPECT_EQ(completion_fault(R"("logprobs":true)"), "logprobs");
  EXPECT_EQ(completion_fault(R"("best_of":2)"), "best_of");
  EXPECT_EQ(completion_fault(R"("suffix":"x")"), "suffix");
  EXPECT_EQ(completion_fault(R"("echo":1)"), "echo");
}

TEST(OpenAiRequest, ReadsLogprobsOfChats) {
  EXPECT_EQ(chat(R"("logprobs":true)").generate.sampler.logprobs, 0);
  EXPECT_EQ(chat(R"("logprobs":true,"top_logprobs":20)").generate.sampler.logprobs, 20);
  EXPECT_EQ(chat(R"("logprobs":false)").generate.sampler.logprobs, kNoLogprobs);
  EXPECT_EQ(chat_fault(R"("top_logprobs":2)"), "top_logprobs");
  EXPECT_EQ(chat_fault(R"("logprobs":true,"top_logprobs":21)"), "top_logprobs");
  EXPECT_EQ(chat_fault(R"("logprobs":3)"), "logprobs");
  EXPECT_EQ(chat_fault(R"("max_completion_tokens":0)"), "max_completion_tokens");
}

TEST(OpenAiRequest, ReadsMessages) {
  const Json messages = chat_with(R"([{"role":"developer","content":"Be brief."},
      {"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]},
      {"role":"assistant","content":null,"tool_calls":[
        {"id":"1","type":"function","function":{"name":"f","arguments":"{\"z\":1,\"a\":2}"}}]},
      {"role":"tool","tool_call_id":"1","content":"3"},
      {"role":"assistant","content":"so"}])")
                            .messages;
  ASSERT_EQ(messages.size(), 5u);
  EXPECT_EQ(messages[0], (Json{{"role", "developer"}, {"content", "Be brief."}}));
  EXPECT_EQ(messages[1]["content"], "a\nb");
  EXPECT_TRUE(messages[2]["content"].is_null());
  EXPECT_EQ(messages[2]["tool_calls"][0]["function"]["arguments"].dump(), R"({"z":1,"a":2})");
  EXPECT_EQ(messages[3]["tool_call_id"], "1");
  EXPECT_EQ(messages[4]["content"], "so");
}

TEST(OpenAiRequest, RefusesWrongMessages) {
  for (const char* messages :
       {"[]", "{}", "\"Hi\"", "[1]", "[{}]", R"([{"role":"user"}])",
        R"([{"role":"king","content":"x"}])", R"([{"role":1,"content":"x"}])",
        R"([{"role":"user","content":5}])", R"([{"role":"user","content":null}])",
        R"([{"role":"user","content":[{"type":"image_url","image_url":{"url":"x"}}]}])",
        R"([{"role":"user","content":[{"type":"text"}]}])", R"([{"role":"user","content":["x"]}])",
        R"([{"role":"assistant","tool_calls":{"a":1}}])",
        R"([{"role":"assistant","tool_calls":[{}]}])",
        R"([{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":"{"}}]}])",
        R"([{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":"[]"}}]}])",
        R"([{"role":"assistant","tool_calls":[{"function":{"arguments":"{}"}}]}])"}) {
    EXPECT_EQ(fault([&] { chat_with(messages); }), "messages") << messages;
  }
  EXPECT_EQ(fault([] { read_chat_request("{}", kVocab); }), "messages");
}

constexpr const char* kTools =
    R"("tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object",
    "properties":{"z":{"type":"string"},"a":{"type":"integer"}}}}},
    {"type":"function","function":{"name":"g"}}])";

TEST(OpenAiRequest, ReadsTools) {
  const OpenAiRequest request = chat(kTools);
  EXPECT_EQ(request.tool_choice, ToolChoice::automatic);
  ASSERT_EQ(request.tools.size(), 2u);
  const Json& properties = request.tools[0]["function"]["parameters"]["properties"];
  EXPECT_EQ(properties.begin().key(), "z");  // in the client's order
  const auto choice = [](const std::string& value) {
    return chat(fmt::format("{},\"tool_choice\":{}", kTools, value));
  };
  EXPECT_EQ(choice("\"auto\"").tool_choice, ToolChoice::automatic);
  EXPECT_EQ(choice("\"required\"").tool_choice, ToolChoice::required);
  EXPECT_EQ(choice("\"none\"").tool_choice, ToolChoice::none);
  EXPECT_TRUE(choice("\"none\"").tools.empty());
  const OpenAiRequest named = choice(R"({"type":"function","function":{"name":"g"}})");
  EXPECT_EQ(named.tool_choice, ToolChoice::named);
  EXPECT_EQ(named.tool_name, "g");
  EXPECT_EQ(chat("\"tool_choice\":\"none\"").tool_choice, ToolChoice::none);
  for (const char* value :
       {"\"perhaps\"", "1", "{}", R"({"type":"function","function":{"name":"h"}})",
        R"({"type":"function","function":{"name":1}})", R"({"function":"g"})"}) {
    EXPECT_EQ(fault([&] { choice(value); }), "tool_choice") << value;
  }
  EXPECT_EQ(chat_fault("\"tool_choice\":\"required\""), "tool_choice");
  for (const char* tools : {"1", "{}", "[1]", "[{}]", R"([{"type":"function"}])",
                            R"([{"type":"function","function":{"name":1}}])",
                            R"([{"type":"code","function":{"name":"f"}}])",
                            R"([{"type":"function","function":{"name":"f","parameters":1}}])"}) {
    EXPECT_EQ(chat_fault(std::string("\"tools\":") + tools), "tools") << tools;
  }
}

TEST(OpenAiRequest, ReadsResponseFormats) {
  EXPECT_FALSE(chat(R"("response_format":{"type":"text"})").schema);
  EXPECT_EQ(chat(R"("response_format":{"type":"json_object"})").schema, (Json{{"type", "object"}}));
  const auto schema = chat(
      R"("response_format":{"type":"json_schema","json_schema":{"name":"n","schema":
      {"type":"object","properties":{"z":{},"a":{}}}}})");
  ASSERT_TRUE(schema.schema);
  EXPECT_EQ((*schema.schema)["properties"].begin().key(), "z");
  EXPECT_EQ(chat_fault(std::string(kTools) +
                       R"(,"tool_choice":"required","response_format":{"type":"json_object"})"),
            "response_format");
}

std::string repeated(const std::string& text, size_t count) {
  std::string list;
  for (size_t i = 0; i < count; ++i) list += (i > 0 ? "," : "") + text;
  return list;
}

std::string keys(int count) {
  std::string list;
  for (int i = 0; i < count; ++i) list += fmt::format("{}\"{}\":0", i > 0 ? "," : "", i);
  return "{" + list + "}";
}

TEST(OpenAiRequest, BoundsTheKeysOfAnObject) {
  EXPECT_EQ(chat_fault("\"chat_template_kwargs\":" + keys(kMaxObjectKeys)), "-");
  EXPECT_EQ(chat_fault("\"chat_template_kwargs\":" + keys(kMaxObjectKeys + 1)),
            "chat_template_kwargs");
  EXPECT_EQ(chat_fault("\"x\":" + keys(200'000)), "-");
}

TEST(OpenAiRequest, RefusesKeysThatComeTwice) {
  EXPECT_EQ(completion_fault(R"("seed":1,"seed":1)"), "seed");
  EXPECT_EQ(completion_fault(R"("prompt":"y")"), "prompt");
  EXPECT_EQ(completion_fault(R"("logit_bias":{"1":0,"2":0,"1":0})"), "logit_bias");
  EXPECT_EQ(chat_fault(R"("chat_template_kwargs":{"a":[{"b":1,"b":2}]})"), "chat_template_kwargs");
  EXPECT_EQ(chat_fault(R"("messages":[{"role":"user","content":"x"}])"), "messages");
  EXPECT_EQ(fault([] { chat_with(R"([{"role":"user","role":"user","content":"x"}])"); }),
            "messages");
  EXPECT_EQ(completion_fault(R"("x":1,"x":2,"y":{"z":1,"z":2})"), "-");  // nobody reads these
}

TEST(OpenAiRequest, KeepsNothingOfFieldsThatItDoesNotKnow) {
  const std::string body = "\"x\":[" + repeated("{}", 2'000'000) + "]";
  EXPECT_EQ(completion_fault(body), "-");
  EXPECT_EQ(chat_fault(body), "-");
}

TEST(OpenAiRequest, RefusesListsThatWouldTakeTooMuchMemory) {
  const std::string many = "[" + repeated("{}", 2'000'000) + "]";
  for (const char* name : {"messages", "tools", "chat_template_kwargs", "documents"}) {
    const std::string body = fmt::format("{{\"{}\":{}}}", name, many);
    EXPECT_EQ(fault([&] { read_chat_request(body, kVocab); }), name);
  }
  EXPECT_EQ(fault([&] { read_completion_request("{\"prompt\":" + many + "}", kVocab); }), "prompt");
  // Arguments are text in the body, and a tree of their own.
  EXPECT_EQ(fault([&] {
              chat_with(R"([{"role":"assistant","tool_calls":[{"function":{"name":"f",
              "arguments":"{\"a\":)" +
                        many + "}\"}}]}]");
            }),
            "messages");
}

TEST(OpenAiRequest, TakesLargeChats) {
  constexpr size_t kBytes = 8 << 20;
  const std::string message =
      R"({"role":"user","content":"What is the capital of that country, then?"})";
  EXPECT_EQ(chat_with("[" + repeated(message, kBytes / message.size()) + "]").messages.size(),
            kBytes / message.size());
  const std::string part =
      R"({"type":"text","text":"A part of a content has as many words as this one has."})";
  const std::string parts = repeated(part, kBytes / part.size());
  EXPECT_EQ(chat_with(R"([{"role":"user","content":[)" + parts + "]}]").messages.size(), 1u);
  const std::string tool = R"({"type":"function","function":{"name":"f","description":"A tool",
      "parameters":{"type":"object","properties":{)";
  std::string properties;
  for (int i = 0; i < 600; ++i) {
    properties += fmt::format(R"({}"p{}":{{"type":"string","description":"{}"}})", i > 0 ? "," : "",
                              i, std::string(140, 'd'));
  }
  const std::string tools = "\"tools\":[" + repeated(tool + properties + "}}}}", 80) + "]";
  EXPECT_GT(tools.size(), kBytes);
  EXPECT_EQ(chat(tools).tools.size(), 80u);
  // Of a chat of half a MiB, even the smallest values.
  EXPECT_EQ(chat("\"tools\":[{\"function\":{\"name\":\"f\",\"parameters\":{\"enum\":[" +
                 repeated("{}", 180'000) + "]}}}]")
                .tools.size(),
            1u);
}

TEST(OpenAiRequest, BoundsFieldsThatAreNeitherPromptNorChat) {
  const auto arguments = [](size_t count) {
    return "\"chat_template_kwargs\":{\"a\":[" + repeated("0", count) + "]}";
  };
  EXPECT_EQ(chat_fault(arguments(100'000)), "-");
  EXPECT_EQ(chat_fault(arguments(300'000)), "chat_template_kwargs");
}

TEST(OpenAiRequest, BoundsTheSchemasOfForcedCalls) {
  const std::string forced = R"(,"tool_choice":"required")";
  const std::string named = R"(,"tool_choice":{"type":"function","function":{"name":"g"}})";
  const std::string tools =
      R"("tools":[{"function":{"name":"g"}},{"function":{"name":"f","parameters":{"enum":[)" +
      repeated("0", 40'000) + "]}}}]";
  EXPECT_EQ(chat_fault(tools), "-");
  EXPECT_EQ(chat_fault(tools + named), "-");
  EXPECT_EQ(chat_fault(tools + forced), "tools");
}

TEST(OpenAiRequest, ReadsLongListsOfIds) {
  const std::string ids = "[" + repeated("999", 2'000'000) + "]";
  const OpenAiRequest request = read_completion_request("{\"prompt\":" + ids + "}", kVocab);
  EXPECT_EQ(request.prompts, (std::vector<PromptInput>{std::vector<Token>(2'000'000, 999)}));
  EXPECT_EQ(read_detokenize_request("{\"tokens\":" + ids + "}", kVocab).tokens.size(), 2'000'000u);
}

TEST(OpenAiRequest, RefusesWhatFollowsANulByte) {
  const std::string body = std::string(R"({"prompt":"a"})") + '\0' + "x";
  EXPECT_EQ(fault([&] { read_completion_request(body, kVocab); }), "");
  EXPECT_EQ(fault([&] { read_completion_request(body.substr(0, body.size() - 1), kVocab); }), "");
  // A byte order mark is skipped.
  EXPECT_EQ(read_completion_request("\xEF\xBB\xBF{\"prompt\":\"a\"}", kVocab).prompts.size(), 1u);
}

// Fields of other servers that change the answer: their neutral value, and another one.
TEST(OpenAiRequest, RefusesFieldsThatItDoesNotExecute) {
  const std::array<const char*, 3> kFields[] = {
      {"grammar", "\"\"", "\"root ::= \\\"a\\\"\""},
      {"regex", "null", "\"a+\""},
      {"ebnf", "null", "\"root ::= \""},
      {"structured_outputs", "{}", R"({"regex":"a"})"},
      {"guided_json", "null", "{\"type\":\"object\"}"},
      {"bad_words", "[]", "[\"a\"]"},
      {"n_predict", "-1", "5"},
      {"mirostat", "0", "2"},
      {"typical_p", "1.0", "0.9"},
      {"dry_multiplier", "0.0", "0.8"},
      {"xtc_probability", "0", "0.5"},
      {"top_a", "0", "0.2"},
      {"top_n_sigma", "-1", "1"},
      {"repeat_penalty", "1.0", "1.1"},
      {"use_beam_search", "false", "true"},
      {"skip_special_tokens", "true", "false"},
      {"include_stop_str_in_output", "false", "true"},
      {"truncate_prompt_tokens", "null", "5"},
      {"prompt_logprobs", "null", "1"},
      {"modalities", "[\"text\"]", "[\"text\",\"audio\"]"},
  };
  for (const auto& [name, neutral, other] : kFields) {
    EXPECT_EQ(completion_fault(fmt::format("\"{}\":{}", name, neutral)), "-") << name;
    EXPECT_EQ(chat_fault(fmt::format("\"{}\":{}", name, neutral)), "-") << name;
    EXPECT_EQ(completion_fault(fmt::format("\"{}\":{}", name, other)), name);
    EXPECT_EQ(chat_fault(fmt::format("\"{}\":{}", name, other)), name);
  }
  for (const auto& [name, other] : {std::pair{"chat_template", "\"{{ messages }}\""},
                                    {"documents", "[{\"text\":\"a\"}]"},
                                    {"echo", "true"},
                                    {"add_special_tokens", "true"},
                                    {"functions", "[{\"name\":\"f\"}]"},
                                    {"function_call", "\"auto\""}}) {
    EXPECT_EQ(chat_fault(fmt::format("\"{}\":{}", name, other)), name);
  }
  EXPECT_EQ(chat_fault(R"("user":"u","store":true,"metadata":{"a":"b"},"service_tier":"auto",
      "cache_prompt":false,"id_slot":1,"verbosity":"low","mirostat_tau":3,"length_penalty":2,"request_id":"r")"),
            "-");
}

TEST(OpenAiRequest, ReadsSchemasWhereverTheyStand) {
  const Json schema = {{"type", "array"}};
  for (const char* member :
       {R"("json_schema":{"type":"array"})", R"("json_schema":"{\"type\":\"array\"}")",
        R"("response_format":{"type":"json_object","schema":{"type":"array"}})"}) {
    EXPECT_EQ(completion(member).schema, schema) << member;
    EXPECT_EQ(chat(member).schema, schema) << member;
  }
  EXPECT_EQ(chat(R"("response_format":{"type":"json_object","schema":{}})").schema,
            (Json{{"type", "object"}}));
  EXPECT_EQ(chat_fault(R"("response_format":{"type":"json_object","schema":"x"})"),
            "response_format");
  for (const char* value : {"1", "[]", "\"\"", "\"{\"", "true"}) {
    EXPECT_EQ(chat_fault(fmt::format("\"json_schema\":{}", value)), "json_schema") << value;
  }
  EXPECT_EQ(chat_fault(R"("json_schema":{},"response_format":{"type":"json_object"})"),
            "json_schema");
  EXPECT_EQ(chat_fault(std::string(kTools) + R"(,"tool_choice":"required","json_schema":{})"),
            "json_schema");
}

TEST(OpenAiRequest, ReadsHowAChatEnds) {
  EXPECT_TRUE(chat("\"x\":1").add_generation_prompt);
  EXPECT_FALSE(chat(R"("add_generation_prompt":false)").add_generation_prompt);
  const OpenAiRequest continued = chat(R"("continue_final_message":true)");
  EXPECT_TRUE(continued.continue_final_message);
  EXPECT_FALSE(continued.add_generation_prompt);
  EXPECT_EQ(chat_fault(R"("continue_final_message":true,"add_generation_prompt":false)"), "-");
  EXPECT_EQ(chat_fault(R"("continue_final_message":true,"add_generation_prompt":true)"),
            "continue_final_message");
  EXPECT_EQ(fault([] {
              read_chat_request(R"({"messages":[{"role":"assistant","content":""}],
                                "continue_final_message":true})",
                                kVocab);
            }),
            "continue_final_message");
  EXPECT_EQ(chat(R"("reasoning_effort":"low")").template_arguments,
            (Json{{"reasoning_effort", "low"}}));
  EXPECT_FALSE(chat(std::string(kTools) + R"(,"parallel_tool_calls":false)").parallel_tool_calls);
  EXPECT_EQ(chat_fault(R"("parallel_tool_calls":"no")"), "parallel_tool_calls");
}

TEST(OpenAiRequest, ReadsTokenizeAndDetokenize) {
  EXPECT_EQ(read_tokenize_request(R"({"prompt":"a"})").prompt, "a");
  EXPECT_FALSE(
      read_tokenize_request(R"({"prompt":"a","add_special_tokens":false})").add_special_tokens);
  EXPECT_FALSE(read_tokenize_request(R"({"messages":[{"role":"user","content":"a"}]})").prompt);
  EXPECT_EQ(fault([] { read_tokenize_request("{}"); }), "prompt");
  EXPECT_EQ(read_detokenize_request(R"({"tokens":[1,2]})", kVocab).tokens.size(), 2u);
  EXPECT_EQ(fault([] { read_detokenize_request("{}", kVocab); }), "tokens");
  EXPECT_EQ(fault([] { read_detokenize_request(R"({"tokens":[1000]})", kVocab); }), "tokens");
}

}  // namespace
}  // namespace ridge
