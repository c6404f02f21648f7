// The cases of ../shared/tokenizers: real vocabularies, texts and the ids they must give.
#include <gtest/gtest.h>

#include <filesystem>
#include <sstream>

#include "base/file.h"
#include "support.h"

namespace ridge {
namespace {

namespace fs = std::filesystem;

const fs::path kShared = fs::path(RIDGE_SOURCE_DIR) / "../shared/tokenizers";
constexpr size_t kMaxFile = 16 << 20;

std::vector<std::string> items(const std::string& text) {
  const std::string separator = "\n__ggml_vocab_test__\n";
  std::vector<std::string> all;
  for (size_t at = 0, end; (end = text.find(separator, at)) != text.npos;
       at = end + separator.size()) {
    all.push_back(text.substr(at, end - at));
  }
  return all;
}

TEST(SharedTokenizers, EveryCaseIsExactAndComesBack) {
  if (!fs::exists(kShared)) GTEST_SKIP() << "no ../shared/tokenizers here";
  int vocabularies = 0, cases = 0;
  for (const auto& entry : fs::directory_iterator(kShared)) {
    const std::string path = entry.path().string();
    if (entry.path().extension() != ".gguf") continue;
    const auto tokenizer = load_tokenizer(path);
    ++vocabularies;
    std::istringstream lines(read_file(path + ".out", kMaxFile));
    for (const std::string& item : items(read_file(path + ".inp", kMaxFile))) {
      std::string line;
      ASSERT_TRUE(std::getline(lines, line)) << path;
      std::istringstream numbers(line);
      std::vector<Token> wanted;
      for (Token id; numbers >> id;) wanted.push_back(id);
      const std::vector<Token> got = tokenizer->encode(item);
      EXPECT_EQ(got, wanted) << path << ": '" << item << "'";
      EXPECT_EQ(decoded(*tokenizer, got), item) << path;
      ++cases;
    }
  }
  EXPECT_GE(vocabularies, 3);
  EXPECT_GE(cases, 138);
}

}  // namespace
}  // namespace ridge
