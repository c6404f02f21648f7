// `ridge tokenize` as a program.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "vocabularies.h"

namespace ridge {
namespace {

namespace fs = std::filesystem;

class TokenizeCommand : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "ridge-tokenize-XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
    nlohmann::json json = sample::byte_level_json({{"h", "i"}, {"Ġ", "hi"}});
    json["added_tokens"] = {sample::added_token(258, "<s>", true),
                            sample::added_token(259, "</s>", true)};
    std::ofstream(folder_ / "tokenizer.json") << json.dump();
    std::ofstream(folder_ / "tokenizer_config.json")
        << R"({"bos_token":"<s>","eos_token":{"content":"</s>"},"add_bos_token":true})";
  }
  void TearDown() override { fs::remove_all(folder_); }

  struct Result {
    int code;
    std::string output;
  };
  Result run(const std::string& arguments, const std::string& before = "") const {
    const std::string command =
        before + RIDGE_BINARY + " tokenize " + arguments + " 2>&1 </dev/stdin";
    FILE* pipe = popen(command.c_str(), "r");
    std::string output;
    std::array<char, 4096> buffer{};
    while (size_t got = fread(buffer.data(), 1, buffer.size(), pipe)) {
      output.append(buffer.data(), got);
    }
    return {WEXITSTATUS(pclose(pipe)), output};
  }
  std::string model() const { return "--model " + folder_.string() + " "; }
  fs::path folder_;
};

TEST_F(TokenizeCommand, PrintsIdsAndPieces) {
  EXPECT_EQ(run(model() + "'hi hi'").output, "256 257\nhi|Ġhi\n");
  EXPECT_EQ(run(model() + "''").output, "\n\n");
}

TEST_F(TokenizeCommand, JsonHasIdsAndTokens) {
  const Result result = run(model() + "--json 'hi é'");
  const auto json = nlohmann::json::parse(result.output);
  EXPECT_EQ(json, nlohmann::json::parse(R"({"ids":[256,32,195,169],"tokens":["hi","Ġ","Ã","©"]})"));
}

TEST_F(TokenizeCommand, StandardInputIsReadByteForByte) {
  const auto json =
      nlohmann::json::parse(run(model() + "--json -", "printf 'hi\\000\\377\\n' | ").output);
  EXPECT_EQ(json["ids"], nlohmann::json({256, 0, 255, 10}));
}

TEST_F(TokenizeCommand, SpecialAddsAndParses) {
  EXPECT_EQ(run(model() + "--special 'hi</s>'").output, "258 256 259\n<s>|hi|</s>\n");
  EXPECT_EQ(nlohmann::json::parse(run(model() + "--json 'hi</s>'").output)["ids"].size(), 5u);
}

TEST_F(TokenizeCommand, DecodesIds) {
  EXPECT_EQ(run(model() + "--decode '258, 256 257'").output, "hi hi\n");
  EXPECT_EQ(run(model() + "--decode '258 256' --special").output, "<s>hi\n");
  EXPECT_EQ(nlohmann::json::parse(run(model() + "--json --decode 256").output)["text"], "hi");
}

TEST_F(TokenizeCommand, BadInputIsOneLineAndExitTwo) {
  for (const std::string& arguments :
       {std::string("--model /nonexistent hi"), model(), model() + "--decode 260",
        model() + "--decode x", model() + "hi --decode 1",
        "--model " + (folder_ / "tokenizer_config.json").string() + " hi"}) {
    const Result result = run(arguments);
    EXPECT_EQ(result.code, 2) << arguments;
    EXPECT_EQ(std::count(result.output.begin(), result.output.end(), '\n'), 1) << result.output;
  }
}

TEST_F(TokenizeCommand, WithoutAModelTheOneInsideIsUsed) {
  const Result ids = run("'The memory of a computer'");
  EXPECT_EQ(ids.code, 0);
  const std::string line = ids.output.substr(0, ids.output.find('\n'));
  EXPECT_EQ(run("--decode '" + line + "'").output, "The memory of a computer\n");
}

}  // namespace
}  // namespace ridge
