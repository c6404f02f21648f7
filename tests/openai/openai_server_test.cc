// The OpenAI API over real sockets with the shipped model: answers, streams, refusals.
#include "openai/openai_server.h"

#include <chrono>
#include <thread>

#include "openai_support.h"

namespace ridge {
namespace {

constexpr const char* kChat = "/v1/chat/completions";

Json story(int tokens) {
  return {{"prompt", "Once upon a time"}, {"max_tokens", tokens}, {"temperature", 0}};
}
Json greeting(int tokens) {
  return {{"messages", {{{"role", "user"}, {"content", "Tell me a story."}}}},
          {"max_tokens", tokens},
          {"temperature", 0}};
}

TEST(OpenAiServer, CompletesText) {
  ApiServer server;
  const Json reply = server.ask(kCompletions, story(12));
  EXPECT_TRUE(reply["id"].get<std::string>().starts_with("cmpl-"));
  EXPECT_EQ(reply["object"], "text_completion");
  EXPECT_EQ(reply["model"], "ridge-1m");
  EXPECT_GT(reply["created"], 1'600'000'000);
  ASSERT_EQ(reply["choices"].size(), 1u);
  const Json& choice = reply["choices"][0];
  EXPECT_EQ(choice["index"], 0);
  EXPECT_FALSE(choice["text"].get<std::string>().empty());
  EXPECT_TRUE(choice["logprobs"].is_null());
  EXPECT_EQ(choice["finish_reason"], "length");
  EXPECT_EQ(reply["usage"]["completion_tokens"], 12);
  const int prompt = reply["usage"]["prompt_tokens"];
  EXPECT_EQ(server.ask("/tokenize", {{"prompt", "Once upon a time"}})["count"], prompt);
  EXPECT_EQ(reply["usage"]["total_tokens"], prompt + 12);
  EXPECT_GE(reply["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
  EXPECT_EQ(server.ask("/completions", story(12))["choices"], reply["choices"]);
  Json defaults = story(1);
  defaults.erase("max_tokens");
  EXPECT_EQ(server.ask(kCompletions, defaults)["usage"]["completion_tokens"], 16);
}

TEST(OpenAiServer, AnswersChats) {
  ApiServer server;
  Json body = greeting(10);
  body["model"] = "tiny";  // an alias
  const Json reply = server.ask(kChat, body);
  EXPECT_TRUE(reply["id"].get<std::string>().starts_with("chatcmpl-"));
  EXPECT_EQ(reply["object"], "chat.completion");
  EXPECT_EQ(reply["model"], "tiny");
  const Json& message = reply["choices"][0]["message"];
  EXPECT_EQ(message["role"], "assistant");
  EXPECT_TRUE(message["content"].is_string());
  EXPECT_FALSE(message.contains("tool_calls"));
  EXPECT_EQ(reply["usage"]["completion_tokens"], 10);
}

TEST(OpenAiServer, StreamsWhatItAnswers) {
  ApiServer server;
  for (const bool chat : {false, true}) {
    const char* const path = chat ? kChat : kCompletions;
    for (const int n : {1, 3}) {
      Json body = chat ? greeting(20) : story(20);
      body["n"] = n;
      body["seed"] = 5;
      body["temperature"] = 1;
      const Json whole = server.ask(path, body);
      body["stream_options"] = {{"include_usage", true}};
      const Stream streamed = stream(server, path, body);
      EXPECT_TRUE(streamed.done);
      for (int i = 0; i < n; ++i) {
        const Json& choice = whole["choices"][size_t(i)];
        EXPECT_EQ(streamed.text(i), chat ? choice["message"]["content"] : choice["text"]);
        EXPECT_EQ(streamed.finish_reason(i), choice["finish_reason"]);
      }
      const Json& last = streamed.events.back();
      EXPECT_TRUE(last["choices"].empty());
      EXPECT_EQ(last["usage"]["completion_tokens"], whole["usage"]["completion_tokens"]);
      EXPECT_EQ(last["usage"]["prompt_tokens"], whole["usage"]["prompt_tokens"]);
      for (size_t i = 0; i < streamed.events.size(); ++i) {
        EXPECT_EQ(streamed.events[i]["id"], last["id"]);
        EXPECT_EQ(streamed.events[i]["usage"].is_null(), i + 1 < streamed.events.size());
      }
    }
  }
}

TEST(OpenAiServer, StreamsInOpenAisForm) {
  ApiServer server;
  const Stream chat = stream(server, kChat, greeting(8));
  EXPECT_EQ(chat.answer.status, 200);
  EXPECT_NE(chat.answer.head.find("Content-Type: text/event-stream"), std::string::npos);
  EXPECT_NE(chat.answer.head.find("Cache-Control: no-cache"), std::string::npos);
  EXPECT_NE(chat.answer.head.find("X-Accel-Buffering: no"), std::string::npos);
  ASSERT_GE(chat.events.size(), 3u);
  const auto choice = [&](size_t i) { return chat.events[i]["choices"][0]; };
  EXPECT_EQ(choice(0)["delta"], (Json{{"role", "assistant"}, {"content", nullptr}}));
  for (size_t i = 1; i + 1 < chat.events.size(); ++i) {
    EXPECT_FALSE(choice(i)["delta"]["content"].get<std::string>().empty());
    EXPECT_TRUE(choice(i)["finish_reason"].is_null());
  }
  EXPECT_EQ(choice(chat.events.size() - 1)["delta"], Json::object());
  EXPECT_EQ(choice(chat.events.size() - 1)["finish_reason"], "length");
  for (const Json& event : chat.events) {
    EXPECT_EQ(event["object"], "chat.completion.chunk");
    EXPECT_FALSE(event.contains("usage"));
  }
}

TEST(OpenAiServer, DerivesTheSeedsOfChoices) {
  ApiServer server;
  Json body = story(24);
  body["temperature"] = 1;
  body["seed"] = 100;
  body["n"] = 3;
  const Json together = server.ask(kCompletions, body);
  body.erase("n");
  for (int i = 0; i < 3; ++i) {
    body["seed"] = 100 + i;
    EXPECT_EQ(server.ask(kCompletions, body)["choices"][0]["text"],
              together["choices"][size_t(i)]["text"]);
  }
  body["prompt"] = {"Once upon a time", "The sea"};
  body["n"] = 2;
  body["seed"] = 100;
  const Json lists = server.ask(kCompletions, body);  // prompt-major
  ASSERT_EQ(lists["choices"].size(), 4u);
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(lists["choices"][i]["index"], i);
  EXPECT_EQ(lists["choices"][1]["text"], together["choices"][1]["text"]);
  EXPECT_NE(lists["choices"][2]["text"], together["choices"][0]["text"]);
  // Without a seed, another one each time.
  body = story(24);
  body["temperature"] = 1;
  EXPECT_NE(server.ask(kCompletions, body)["choices"][0]["text"],
            server.ask(kCompletions, body)["choices"][0]["text"]);
}

TEST(OpenAiServer, TakesTokensForText) {
  ApiServer server;
  const Json tokens = server.ask("/v1/tokenize", {{"prompt", "Once upon a time"}})["tokens"];
  Json body = story(8);
  const Json from_text = server.ask(kCompletions, body);
  body["prompt"] = tokens;
  body["return_token_ids"] = true;
  const Json from_tokens = server.ask(kCompletions, body);
  EXPECT_EQ(from_tokens["choices"][0]["text"], from_text["choices"][0]["text"]);
  EXPECT_EQ(from_tokens["choices"][0]["prompt_token_ids"], tokens);
  const Json ids = from_tokens["choices"][0]["token_ids"];
  EXPECT_EQ(ids.size(), 8u);
  EXPECT_EQ(server.ask("/detokenize", {{"tokens", ids}})["prompt"],
            from_text["choices"][0]["text"]);
  Json streamed = Json::array();
  for (const Json& event : stream(server, kCompletions, body).events) {
    for (const Json& id : event["choices"][0]["token_ids"]) streamed.push_back(id);
  }
  EXPECT_EQ(streamed, ids);
}

std::string bytes_of(const Json& logprobs) {
  std::string text;
  for (const Json& token : logprobs) {
    for (const Json& byte : token["bytes"]) text += static_cast<char>(byte.get<int>());
  }
  return text;
}

TEST(OpenAiServer, ReportsLogprobsOfChats) {
  ApiServer server;
  Json body = greeting(12);
  body["logprobs"] = true;
  body["top_logprobs"] = 3;
  const Json choice = server.ask(kChat, body)["choices"][0];
  const Json& content = choice["logprobs"]["content"];
  ASSERT_EQ(content.size(), 12u);
  EXPECT_EQ(bytes_of(content), choice["message"]["content"]);
  for (const Json& token : content) {
    ASSERT_EQ(token["top_logprobs"].size(), 3u);
    EXPECT_LE(token["logprob"], 0);
    EXPECT_EQ(token["top_logprobs"][0]["token"], token["token"]);  // greedy
    EXPECT_GE(token["top_logprobs"][0]["logprob"], token["top_logprobs"][1]["logprob"]);
  }
  Json streamed = Json::array();
  for (const Json& event : stream(server, kChat, body).events) {
    const Json& logprobs = event["choices"][0]["logprobs"];
    if (logprobs.is_null()) continue;
    for (const Json& token : logprobs["content"]) streamed.push_back(token);
  }
  EXPECT_EQ(streamed, content);
}

TEST(OpenAiServer, ReportsLogprobsOfCompletions) {
  ApiServer server;
  Json body = story(6);
  body["logprobs"] = 2;
  body["echo"] = true;
  const Json reply = server.ask(kCompletions, body);
  const Json& choice = reply["choices"][0];
  const std::string text = choice["text"];
  EXPECT_TRUE(text.starts_with("Once upon a time"));
  const Json& logprobs = choice["logprobs"];
  const size_t tokens = reply["usage"]["total_tokens"];
  for (const char* list : {"tokens", "token_logprobs", "top_logprobs", "text_offset"}) {
    ASSERT_EQ(logprobs[list].size(), tokens) << list;
  }
  EXPECT_TRUE(logprobs["token_logprobs"][0].is_null());
  EXPECT_TRUE(logprobs["top_logprobs"][0].is_null());
  EXPECT_EQ(logprobs["text_offset"][0], 0);
  for (size_t i = 1; i < tokens; ++i) {
    EXPECT_LE(logprobs["token_logprobs"][i], 0);
    const Json& top = logprobs["top_logprobs"][i];
    EXPECT_GE(top.size(), 2u);
    EXPECT_LE(top.size(), 3u);
    const std::string token = logprobs["tokens"][i];
    EXPECT_TRUE(top.contains(token));
    EXPECT_EQ(text.substr(logprobs["text_offset"][i], token.size()), token);
  }
  // Scoring a text: its own log probabilities and nothing generated.
  body["max_tokens"] = 0;
  const Json scored = server.ask(kCompletions, body);
  EXPECT_EQ(scored["choices"][0]["text"], "Once upon a time");
  EXPECT_EQ(scored["usage"]["completion_tokens"], 0);
  const size_t prompt = scored["usage"]["prompt_tokens"];
  ASSERT_EQ(scored["choices"][0]["logprobs"]["tokens"].size(), prompt);
  for (size_t i = 0; i < prompt; ++i) {
    EXPECT_EQ(scored["choices"][0]["logprobs"]["token_logprobs"][i], logprobs["token_logprobs"][i]);
  }
}

TEST(OpenAiServer, WritesWhatASchemaAsksFor) {
  ApiServer server;
  const Json schema{{"type", "object"},
                    {"properties",
                     {{"kind", {{"enum", {"cat", "dog"}}}},
                      {"age", {{"type", "integer"}, {"minimum", 0}, {"maximum", 99}}}}},
                    {"required", {"kind", "age"}},
                    {"additionalProperties", false}};
  Json body = greeting(100);
  body["response_format"] = {{"type", "json_schema"}, {"json_schema", {{"schema", schema}}}};
  const Json written = server.ask(kChat, body)["choices"][0];
  EXPECT_EQ(written["finish_reason"], "stop");
  EXPECT_EQ(Json::parse(written["message"]["content"].get<std::string>()).size(), 2u);
  EXPECT_EQ(stream(server, kChat, body).text(), written["message"]["content"]);
  body["response_format"]["json_schema"]["schema"] = {{"type", "nonsense"}};
  EXPECT_EQ(server.post(kChat, body).json()["error"]["param"], "response_format");
}

TEST(OpenAiServer, RefusesSchemasThatCostTooMuch) {
  ApiServer server;
  Json body = greeting(20);
  Json& schema = body["response_format"];
  // Rules of two ways each to the next one: 2^40 ways in all, which meet.
  Json rules;
  for (int i = 0; i < 40; ++i) {
    const Json next{{"$ref", "#/$defs/a" + std::to_string(i + 1)}};
    rules["a" + std::to_string(i)] = {{"anyOf", {next, next}}};
  }
  rules["a40"] = {{"type", "null"}};
  schema = {{"type", "json_schema"},
            {"json_schema", {{"schema", {{"$ref", "#/$defs/a0"}, {"$defs", rules}}}}}};
  EXPECT_EQ(server.ask(kChat, body)["choices"][0]["message"]["content"], "null");

  Json keys{{"additionalProperties", {{"const", std::string(40'000, 'x')}}}};
  for (int i = 0; i < 990; ++i) keys["required"].push_back(std::to_string(i));
  schema["json_schema"]["schema"] = keys;
  const Answer refused = server.post(kChat, body);
  EXPECT_EQ(refused.status, 400);
  EXPECT_EQ(refused.json()["error"]["param"], "response_format");
  EXPECT_NE(refused.body.find("steps of work"), std::string::npos);
}

TEST(OpenAiServer, CallsTheToolThatMustBeCalled) {
  ApiServer server;
  Json body = greeting(100);
  const Json parameters{{"type", "object"},
                        {"properties", {{"kind", {{"enum", {"cat", "dog"}}}}}},
                        {"required", {"kind"}},
                        {"additionalProperties", false}};
  body["tools"] = {
      {{"type", "function"}, {"function", {{"name", "adopt"}, {"parameters", parameters}}}}};
  for (const Json& choice :
       {Json("required"), Json{{"type", "function"}, {"function", {{"name", "adopt"}}}}}) {
    body["tool_choice"] = choice;
    const Json whole = server.ask(kChat, body)["choices"][0];
    EXPECT_EQ(whole["finish_reason"], "tool_calls");
    EXPECT_TRUE(whole["message"]["content"].is_null());
    const Json& call = whole["message"]["tool_calls"][0];
    EXPECT_TRUE(call["id"].get<std::string>().starts_with("call_"));
    EXPECT_EQ(call["function"]["name"], "adopt");
    const std::string arguments = call["function"]["arguments"];
    EXPECT_TRUE(Json::parse(arguments).contains("kind")) << arguments;
    const Stream streamed = stream(server, kChat, body);
    std::string pieces, names;
    for (const Json& event : streamed.events) {
      for (const Json& piece : event["choices"][0]["delta"].value("tool_calls", Json::array())) {
        EXPECT_EQ(piece["index"], 0);
        EXPECT_EQ(piece.contains("id"), piece["function"].contains("name"));
        names += piece["function"].value("name", "");
        pieces += piece["function"].value("arguments", "");
      }
    }
    EXPECT_EQ(names, "adopt");
    EXPECT_EQ(pieces, arguments);
    EXPECT_EQ(streamed.finish_reason(), "tool_calls");
  }
}

TEST(OpenAiServer, WritesWhatJsonSchemaAllows) {
  ApiServer server;
  Json body = greeting(20);
  body["json_schema"] = {{"enum", {"cat", "dog"}}};
  const std::string text = server.ask(kChat, body)["choices"][0]["message"]["content"];
  EXPECT_TRUE(text == "\"cat\"" || text == "\"dog\"") << text;
  body["json_schema"] = {{"type", "nonsense"}};
  EXPECT_EQ(server.post(kChat, body).json()["error"]["param"], "json_schema");
  body.erase("json_schema");
  body["response_format"] = {{"type", "json_object"}, {"schema", {{"enum", {1}}}}};
  EXPECT_EQ(server.ask(kChat, body)["choices"][0]["message"]["content"], "1");
}

TEST(OpenAiServer, ContinuesTheFinalMessage) {
  ApiServer server;
  Json body = greeting(1);
  body["messages"].push_back({{"role", "assistant"}, {"content", "Once upon a"}});
  const Json closed = server.ask("/tokenize", body)["tokens"];
  body["continue_final_message"] = true;
  const Json open = server.ask("/tokenize", body)["tokens"];
  EXPECT_LT(open.size(), closed.size());
  EXPECT_TRUE(server.ask("/detokenize", {{"tokens", open}})["prompt"].get<std::string>().ends_with(
      "Once upon a"));
  EXPECT_EQ(server.ask(kChat, body)["usage"]["prompt_tokens"], open.size());
  body["add_generation_prompt"] = true;
  EXPECT_EQ(server.post(kChat, body).json()["error"]["param"], "continue_final_message");
}

TEST(OpenAiServer, StopsAtStringsOverTokenBorders) {
  ApiServer server;
  Json body = story(40);
  body["logprobs"] = 0;
  const Json free = server.ask(kCompletions, body)["choices"][0];
  const std::string text = free["text"];
  const Json& tokens = free["logprobs"]["tokens"];
  std::string before;
  int checked = 0;
  for (size_t i = 0; i + 1 < tokens.size() && checked < 8; ++i) {
    const std::string token = tokens[i], next = tokens[i + 1];
    before += token;
    const std::string stop = token.substr(token.size() - 1) + next.substr(0, 2);
    const size_t first = text.find(stop);
    if (first == text.npos || first + stop.size() > text.size()) continue;
    ++checked;
    Json stopped = story(40);
    stopped["stop"] = {stop, "never in it"};
    const Json choice = server.ask(kCompletions, stopped)["choices"][0];
    EXPECT_EQ(choice["text"], text.substr(0, first)) << stop;
    EXPECT_EQ(choice["finish_reason"], "stop");
    EXPECT_EQ(stream(server, kCompletions, stopped).text(), text.substr(0, first));
  }
  EXPECT_EQ(checked, 8);
}

TEST(OpenAiServer, EmojiAndBrokenCharactersAreValidUtf8) {
  ApiServer server;
  Json body = story(4);
  const std::string words = "naïve 😀 中文";
  body["prompt"] = words;
  body["echo"] = true;
  EXPECT_TRUE(stream(server, kCompletions, body).text().starts_with(words));
  // A token that is part of a character, again and again: no character at all.
  const Json tokens =
      server.ask("/tokenize", {{"prompt", "😀"}, {"add_special_tokens", false}})["tokens"];
  body = story(5);
  body["logit_bias"] = {{std::to_string(tokens[0].get<int>()), 100}};
  body["logprobs"] = 1;
  const Json broken = server.ask(kCompletions, body)["choices"][0];
  EXPECT_NE(broken["text"].get<std::string>().find("\xef\xbf\xbd"), std::string::npos);
  EXPECT_TRUE(broken["logprobs"]["tokens"][0].get<std::string>().starts_with("bytes:\\xf0"));
  EXPECT_EQ(stream(server, kCompletions, body).text(), broken["text"]);
  const Answer invalid = fetch(server.port(), kCompletions, "Content-Type: application/json\r\n",
                               "POST", "{\"prompt\":\"\xff\"}");
  EXPECT_EQ(invalid.status, 400);
}

TEST(OpenAiServer, RefusesBeforeAnyToken) {
  ApiServer server;
  const auto refused = [&](const Answer& answer, int status, const Json& param, const Json& code) {
    EXPECT_EQ(answer.status, status) << answer.body;
    const Json error = Json::parse(answer.body)["error"];
    EXPECT_TRUE(error["message"].is_string());
    EXPECT_TRUE(error["type"].is_string());
    EXPECT_EQ(error["param"], param);
    EXPECT_EQ(error["code"], code);
    EXPECT_NE(answer.head.find("x-request-id: "), std::string::npos);
  };
  Json body = story(4);
  body["temperature"] = 3;
  refused(server.post(kCompletions, body), 400, "temperature", nullptr);
  body["stream"] = true;
  refused(server.post(kCompletions, body), 400, "temperature", nullptr);
  refused(server.post(kCompletions, Json::array()), 400, nullptr, nullptr);
  body = story(1'000'000);
  refused(server.post(kCompletions, body), 400, "prompt", "context_length_exceeded");
  Json words = greeting(4);
  std::string text;
  for (int i = 0; i < 20'000; ++i) text += "word ";
  words["messages"][0]["content"] = text;
  words["stream"] = true;
  const Answer long_chat = server.post(kChat, words);
  refused(long_chat, 400, "messages", "context_length_exceeded");
  EXPECT_GT(long_chat.json()["error"]["n_prompt_tokens"], long_chat.json()["error"]["n_ctx"]);
  body = story(4);
  body["model"] = "gpt-4";
  refused(server.post(kCompletions, body), 404, "model", "model_not_found");
  refused(fetch(server.port(), "/v1/models/gpt-4"), 404, "model", "model_not_found");
  refused(fetch(server.port(), "/v1/nothing"), 404, nullptr, "not_found");
  refused(fetch(server.port(), kChat), 405, nullptr, "method_not_allowed");
  const Answer untyped = fetch(server.port(), kChat, "", "POST", "{}");
  refused(untyped, 415, nullptr, "unsupported_media_type");
  EXPECT_NE(untyped.json()["error"]["message"].get<std::string>().find("Content-Type"),
            std::string::npos);
  refused(fetch(server.port(), "/v1/models", "", "DELETE"), 405, nullptr, "method_not_allowed");
}

TEST(OpenAiServer, ListsModelsAndSaysItsState) {
  ApiServer server;
  const Json models = Json::parse(fetch(server.port(), "/v1/models").body);
  EXPECT_EQ(models["object"], "list");
  ASSERT_EQ(models["data"].size(), 2u);
  EXPECT_EQ(models["data"][0]["id"], "ridge-1m");
  EXPECT_EQ(fetch(server.port(), "/v1/models/tiny").json()["id"], "tiny");
  EXPECT_EQ(fetch(server.port(), "/models").status, 200);
  EXPECT_EQ(fetch(server.port(), "/health").status, 200);
  EXPECT_TRUE(fetch(server.port(), "/version").json().contains("version"));
  const Answer metrics = fetch(server.port(), "/metrics");
  EXPECT_EQ(metrics.status, 200);
  EXPECT_NE(metrics.head.find("text/plain; version=0.0.4"), std::string::npos);
  EXPECT_EQ(fetch(server.port(), "/").status, 200);  // the page
  EXPECT_EQ(fetch(server.port(), "/api/predict?model=llama-3-8b").status, 200);
  const Answer named = fetch(server.port(), "/v1/models", "X-Request-Id: mine-7\r\n");
  EXPECT_NE(named.head.find("x-request-id: mine-7"), std::string::npos);

  server.api().drain();
  EXPECT_EQ(fetch(server.port(), "/health").status, 503);
  const Answer late = server.post(kCompletions, story(2));
  EXPECT_EQ(late.status, 503);
  EXPECT_NE(late.head.find("Retry-After: "), std::string::npos);
}

TEST(OpenAiServer, IsUnavailableWhileItLoads) {
  ApiServer server({.serving = {}, .load = false});
  EXPECT_EQ(fetch(server.port(), "/health").status, 503);
  EXPECT_EQ(fetch(server.port(), "/healthz").status, 200);  // the process lives
  EXPECT_EQ(server.post(kCompletions, story(2)).status, 503);
  EXPECT_EQ(fetch(server.port(), "/v1/models").status, 200);
}

TEST(OpenAiServer, AsksForKeys) {
  ApiServer server(
      {.model_names = {"ridge-1m"}, .access = {.keys = {"first", "second"}}, .serving = {}});
  const auto status = [&](const std::string& headers) {
    return fetch(server.port(), "/v1/models", headers).status;
  };
  EXPECT_EQ(status(""), 401);
  EXPECT_EQ(status("Authorization: Bearer wrong\r\n"), 401);
  EXPECT_EQ(status("Authorization: Bearer firs\r\n"), 401);
  EXPECT_EQ(status("Authorization: Bearer firstfirst\r\n"), 401);
  EXPECT_EQ(status("Authorization: Bearer \r\n"), 401);
  EXPECT_EQ(status("Authorization: Basic first\r\n"), 401);
  EXPECT_EQ(status("Authorization: Bearer first\r\n"), 200);
  EXPECT_EQ(status("Authorization: Bearer second\r\n"), 200);
  EXPECT_EQ(status("Authorization: bearer second\r\n"), 200);
  EXPECT_EQ(status("X-Api-Key: second\r\n"), 200);
  EXPECT_EQ(fetch(server.port(), "/health").status, 200);
  EXPECT_EQ(fetch(server.port(), "/metrics").status, 200);
  EXPECT_EQ(fetch(server.port(), "/tokenize").status, 401);
  EXPECT_EQ(server.post(kCompletions, story(2)).status, 401);
  EXPECT_EQ(server.post(kCompletions, story(2)).json()["error"]["code"], "invalid_api_key");
  EXPECT_EQ(server.post(kCompletions, story(2), "Authorization: Bearer first\r\n").status, 200);
}

TEST(OpenAiServer, LetsOtherOriginsInOnlyWhereAsked) {
  const std::string origin = "Origin: https://app.example\r\n";
  ApiServer closed;
  EXPECT_EQ(fetch(closed.port(), "/v1/models", origin).head.find("Access-Control"),
            std::string::npos);
  EXPECT_EQ(fetch(closed.port(), kChat, origin, "OPTIONS").status, 405);
  ApiServer open({.model_names = {"ridge-1m"},
                  .access = {.keys = {"k"}, .origins = {"https://app.example"}},
                  .serving = {}});
  const std::string wants = "Access-Control-Request-Headers: authorization,x-stainless-os\r\n";
  EXPECT_NE(fetch(open.port(), kChat, origin + wants, "OPTIONS")
                .head.find("Access-Control-Allow-Headers: authorization,x-stainless-os"),
            std::string::npos);
  const Answer asked = fetch(open.port(), kChat, origin, "OPTIONS");
  EXPECT_EQ(asked.status, 200);
  for (const char* header :
       {"Access-Control-Allow-Origin: https://app.example", "Access-Control-Allow-Methods: ",
        "Access-Control-Allow-Headers: Authorization", "Vary: Origin"}) {
    EXPECT_NE(asked.head.find(header), std::string::npos) << header;
  }
  EXPECT_NE(fetch(open.port(), "/v1/models", origin).head.find("Access-Control-Allow-Origin"),
            std::string::npos);  // also with an error: 401
  const Answer other = fetch(open.port(), "/health", "Origin: https://evil.example\r\n");
  EXPECT_EQ(other.head.find("Access-Control-Allow-Origin"), std::string::npos);
}

TEST(OpenAiServer, SendsBackWhatTheQueueDoesNotHold) {
  ServingOptions serving;
  serving.max_waiting = 1;
  const auto pace = serving.pace = std::make_shared<StepPace>();
  pace->hold();
  ApiServer server({.runner = {.threads = 1, .cache_tokens = 4096, .max_sequences = 1},
                    .serving = std::move(serving)});
  Json body = story(400);
  body["ignore_eos"] = true;
  body["n"] = 32;  // one can wait
  const Answer full = server.post(kCompletions, body);
  EXPECT_EQ(full.status, 429) << full.body;
  EXPECT_NE(full.head.find("Retry-After: 1"), std::string::npos);
  EXPECT_EQ(full.json()["error"]["code"], "rate_limit_exceeded");
  // Those that were accepted before are withdrawn, so that there is room again soon.
  pace->go();
  EXPECT_TRUE(wait_until("there is room",
                         [&] { return server.post(kCompletions, story(4)).status == 200; }));
}

TEST(OpenAiServer, EndsRequestsOfClientsThatHaveGone) {
  ServingOptions serving;
  const auto pace = serving.pace = std::make_shared<StepPace>();
  ApiServer server({.serving = std::move(serving)});
  const auto come_to = [&](const std::string& gauge, const char* count) {
    return wait_until(gauge + count, [&] { return server.metric(gauge).ends_with(count); });
  };
  Json body = story(900);
  body["ignore_eos"] = true;
  body["n"] = 3;
  for (const bool streamed : {true, false}) {
    body["stream"] = streamed;
    pace->hold();  // none of them ends by itself
    {
      Connection connection(server.port());
      connection.send(request_text(kCompletions, body.dump()));
      EXPECT_TRUE(come_to("vllm:num_requests_waiting{", " 3"));
      pace->allow(8);
      EXPECT_TRUE(come_to("vllm:num_requests_running{", " 3"));
      std::string begun;
      if (streamed) begun = connection.receive_until("data: ");
    }  // closes it
    EXPECT_TRUE(come_to("vllm:num_requests_running{", " 0"));
  }
  pace->go();
  EXPECT_EQ(server.ask(kCompletions, story(4))["usage"]["completion_tokens"], 4);
}

// A server that ends with streams open ends them, and waits for nothing.
TEST(OpenAiServer, EndsWithOpenStreams) {
  auto server = std::make_unique<ApiServer>();
  Json body = story(900);
  body["ignore_eos"] = true;
  body["stream"] = true;
  std::vector<std::unique_ptr<Connection>> connections;
  for (int i = 0; i < 4; ++i) {
    connections.push_back(std::make_unique<Connection>(server->port()));
    connections.back()->send(request_text(kCompletions, body.dump()));
  }
  std::string begun;
  begun = connections[0]->receive_until("data: ");
  server.reset();
  for (auto& connection : connections) EXPECT_TRUE(connection->is_closed_by_peer());
}

}  // namespace
}  // namespace ridge
