// What Hugging Face transformers says of tiny random models: tests/data/goldens, made by
// tools/goldens/make_goldens.py.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "text/tokenizer/tokenizer.h"

namespace ridge {

struct Golden {
  std::string name;    // "gemma2"
  std::string folder;  // for load_weights
  std::vector<Token> prompt;
  std::vector<Token> tokens;   // the 64 greedy ones that follow, in float32
  std::vector<int> positions;  // in prompt and tokens together
  std::vector<float> logits;   // [positions][vocab], float32: after the token at that position
  double margin = 0;           // the least lead of the best logit over the second
};

inline std::vector<Golden> goldens() {
  std::vector<Golden> all;
  const char* moved = std::getenv("RIDGE_ROOT");  // run elsewhere than built: tools/gpu_check
  const std::string root = moved ? moved : RIDGE_SOURCE_DIR;
  for (const auto& entry : std::filesystem::directory_iterator(root + "/tests/data/goldens")) {
    if (!entry.is_directory()) continue;
    Golden golden;
    golden.folder = entry.path().string();
    golden.name = entry.path().filename().string();
    const nlohmann::json expected = read_json(golden.folder + "/expected.json");
    expected.at("prompt").get_to(golden.prompt);
    expected.at("tokens").get_to(golden.tokens);
    expected.at("positions").get_to(golden.positions);
    expected.at("margin").get_to(golden.margin);
    const std::string bytes = read_file(golden.folder + "/logits.f32", 1 << 20);
    golden.logits.resize(bytes.size() / sizeof(float));
    std::memcpy(golden.logits.data(), bytes.data(), golden.logits.size() * sizeof(float));
    all.push_back(std::move(golden));
  }
  std::sort(all.begin(), all.end(),
            [](const Golden& a, const Golden& b) { return a.name < b.name; });
  return all;
}

}  // namespace ridge
