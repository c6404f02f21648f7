// Templates in the style of every family that runs here, against Jinja itself:
// tests/data/chat/families.json, made by tools/goldens/make_chat_goldens.py.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>

#include "base/error.h"
#include "support.h"
#include "text/chat/chat_template.h"

namespace ridge {
namespace {

ChatRequest conversation(const std::string& name) {
  Json json = Json::parse(chat_file("conversations.json"))[name];
  ChatRequest request;
  request.now = kChatTime;
  request.messages = json["messages"];
  request.tools = json.value("tools", Json());
  request.add_generation_prompt = json["add_generation_prompt"];
  for (const char* key : {"messages", "tools", "add_generation_prompt"}) json.erase(key);
  request.template_kwargs = json;
  return request;
}

TEST(ChatFamilies, AreWhatJinjaSays) {
  const Json file = Json::parse(chat_file("families.json"));
  ASSERT_GT(file["cases"].size(), 100u);
  int written = 0;
  for (const Json& one : file["cases"]) {
    const auto family = one[0].get<std::string>(), name = one[1].get<std::string>();
    const auto tokenizer = chat_tokenizer(chat_file(family + ".jinja"));
    Json got;
    std::string error;
    try {
      got = ChatTemplate(*tokenizer).text(conversation(name));
      ++written;
    } catch (const Error& thrown) {
      error = thrown.what();
    }
    EXPECT_EQ(got, one[2]) << family << ", " << name << ": " << error;
  }
  EXPECT_GT(written, 80);
}

TEST(ChatFamilies, TokensAreTheTextsTokens) {
  for (const char* family : {"llama3", "qwen3", "mistral", "gemma3", "phi4"}) {
    const auto tokenizer =
        chat_tokenizer(chat_file(std::string(family) + ".jinja"),
                       {"<|im_start|>", "<|im_end|>", "<|start_header_id|>", "<|end_header_id|>",
                        "<|eot_id|>", "[INST]", "[/INST]", "<start_of_turn>", "<end_of_turn>",
                        "<|user|>", "<|assistant|>", "<|end|>"});
    const ChatTemplate chat(*tokenizer);
    const ChatRequest request = conversation("turns");
    EXPECT_EQ(chat.tokens(request), tokenizer->encode(chat.text(request), true)) << family;
  }
}

// Not a test of speed on a busy machine: what a request costs is printed once, the bound is wide.
TEST(ChatFamilies, TwentyMessagesWithToolsTakeFarBelowAMillisecond) {
  const auto tokenizer = chat_tokenizer(chat_file("qwen3.jinja"));
  const ChatTemplate chat(*tokenizer);
  ChatRequest request = conversation("called");
  const Json turn = request.messages;
  while (request.messages.size() < 20) {
    for (const Json& message : turn) {
      if (message["role"] != "system") request.messages.push_back(message);
    }
  }
  double best = 1e9;
  for (int run = 0; run < 20; ++run) {
    const auto start = std::chrono::steady_clock::now();
    const std::string text = chat.text(request);
    ASSERT_GT(text.size(), 1000u);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    best = std::min(best, seconds.count());
  }
  std::printf("%zu messages with tools: %.0f us\n", request.messages.size(), best * 1e6);
  EXPECT_LT(best, 5);  // what is quadratic or worse takes longer on any machine
}

}  // namespace
}  // namespace ridge
