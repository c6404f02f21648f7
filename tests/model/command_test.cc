// `ridge model` as a program.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "model/read.h"

namespace ridge {
namespace {

struct Result {
  int code;
  std::string output;  // standard output and error
};

Result run(const std::string& arguments) {
  std::string command = std::string(RIDGE_BINARY) + " " + arguments + " 2>&1";
  FILE* pipe = popen(command.c_str(), "r");
  std::string output;
  std::array<char, 4096> buffer{};
  while (size_t got = fread(buffer.data(), 1, buffer.size(), pipe))
    output.append(buffer.data(), got);
  return {WEXITSTATUS(pclose(pipe)), output};
}

TEST(ModelCommand, JsonHasTheFigures) {
  Result result = run("model llama-3-70b --json");
  ASSERT_EQ(result.code, 0) << result.output;
  auto answer = nlohmann::json::parse(result.output);
  EXPECT_EQ(answer.at("name"), "llama-3-70b");
  EXPECT_EQ(answer.at("parameters"), 70553706496);
  EXPECT_EQ(answer.at("active_parameters"), 70553706496);
  EXPECT_EQ(answer.at("weight_bytes"), 141107412992);
  EXPECT_EQ(answer.at("kv_bytes_per_token"), 327680);
  EXPECT_EQ(answer.at("layers"), 80);
  EXPECT_EQ(answer.at("layer_groups").size(), 1u);
  EXPECT_TRUE(answer.at("not_executed").is_null());
}

TEST(ModelCommand, SaysWhetherTheEngineRunsTheModel) {
  EXPECT_NE(run("model llama-3-8b").output.find("the engine runs it"), std::string::npos);
  const std::string text = run("model qwen3-next-80b-a3b").output;
  EXPECT_NE(text.find("not run by the engine: "), std::string::npos) << text;
  EXPECT_NE(text.find("qwen3_next is predicted, not executed"), std::string::npos) << text;
}

TEST(ModelCommand, ListsEveryModel) {
  auto answer = nlohmann::json::parse(run("model --json").output);
  EXPECT_EQ(answer.size(), builtin_model_names().size());
  std::string csv = run("model --csv").output;
  EXPECT_EQ(size_t(std::count(csv.begin(), csv.end(), '\n')), builtin_model_names().size() + 1);
}

TEST(ModelCommand, ShowsTheParts) {
  std::string text = run("model gpt-oss-20b").output;
  for (const char* word : {"experts", "window 128", "mxfp4", "20.9 B", "KV cache", "published"}) {
    EXPECT_NE(text.find(word), std::string::npos) << word << "\n" << text;
  }
}

TEST(ModelCommand, BadInputIsOneLineAndExitTwo) {
  for (const char* arguments : {"model no-such-model-at-all", "model /nonexistent/config.json",
                                "model llama-3-8b --csv", "model --bogus"}) {
    Result result = run(arguments);
    EXPECT_EQ(result.code, 2) << arguments;
    EXPECT_EQ(std::count(result.output.begin(), result.output.end(), '\n'), 1) << result.output;
  }
}

}  // namespace
}  // namespace ridge
