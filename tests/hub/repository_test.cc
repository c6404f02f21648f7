#include "hub/repository.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "support.h"

namespace ridge {
namespace {

using nlohmann::json;

class Repository : public HubFolder {
 protected:
  static HubListing listing(const std::vector<std::string>& names) {
    HubListing all;
    all.commit = std::string(40, 'c');
    for (const std::string& name : names) all.files.push_back({name, 1000, std::string(40, 'd')});
    return all;
  }
  static std::vector<std::string> pulled(const std::vector<std::string>& names,
                                         const std::vector<std::string>& patterns = {}) {
    std::vector<std::string> taken;
    for (const HubFile& file : files_to_pull(listing(names), "org/name", patterns)) {
      taken.push_back(file.name);
    }
    return taken;
  }
  static json entry(const std::string& name) {
    return {{"rfilename", name}, {"size", 3}, {"blobId", std::string(40, 'e')}};
  }
  static std::string parse_error(const json& value) {
    return error_of([&] { parse_listing(value.dump(), "org/name"); });
  }
};

using Names = std::vector<std::string>;

TEST_F(Repository, ARunNeedsConfigTokenizerAndStandardWeights) {
  EXPECT_EQ(pulled({".gitattributes", "README.md", "config.json", "consolidated.safetensors",
                    "generation_config.json", "model-00001-of-00002.safetensors",
                    "model-00002-of-00002.safetensors", "model.safetensors.index.json",
                    "model.fp32.safetensors", "onnx/model.onnx", "original/consolidated.00.pth",
                    "original/model.safetensors", "pytorch_model.bin", "tokenizer.json",
                    "tokenizer_config.json"}),
            (Names{"config.json", "generation_config.json", "model-00001-of-00002.safetensors",
                   "model-00002-of-00002.safetensors", "model.safetensors.index.json",
                   "tokenizer.json", "tokenizer_config.json"}));
  EXPECT_EQ(pulled({"config.json", "weights.safetensors", "model.gguf"}),
            (Names{"config.json", "weights.safetensors"}));
}

TEST_F(Repository, OneGgufIsTakenSeveralAreListed) {
  EXPECT_EQ(pulled({"README.md", "config.json", "a-00001-of-00002.gguf", "a-00002-of-00002.gguf"}),
            (Names{"a-00001-of-00002.gguf", "a-00002-of-00002.gguf"}));
  const std::string several = error_of([] { pulled({"a-Q4_0.gguf", "a-Q8_0.gguf"}); });
  EXPECT_EQ(several,
            "org/name has 2 GGUF models, name one: ridge pull org/name FILE, where FILE is "
            "a-Q4_0.gguf (1.00 kB), a-Q8_0.gguf (1.00 kB)");
  EXPECT_NE(error_of([] { pulled({"README.md", "pytorch_model.bin"}); }), "");
}

TEST_F(Repository, FilesByNameAndPattern) {
  const Names all = {"README.md", "a[1].gguf", "q4/a-00001-of-00002.gguf",
                     "q4/a-00002-of-00002.gguf", "a-Q8_0.gguf"};
  EXPECT_EQ(pulled(all, {"README.md"}), Names{"README.md"});
  EXPECT_EQ(pulled(all, {"*Q8*"}), Names{"a-Q8_0.gguf"});
  EXPECT_EQ(pulled(all, {"a[1].gguf"}), Names{"a[1].gguf"});
  EXPECT_EQ(pulled(all, {"q4/a-00002-of-00002.gguf"}),
            (Names{"q4/a-00001-of-00002.gguf", "q4/a-00002-of-00002.gguf"}));
  EXPECT_NE(error_of([&] {
              pulled(all, {"README.md", "b.gguf"});
            }).find("has no file b.gguf"),
            std::string::npos);
}

TEST_F(Repository, ListingIsRead) {
  const json good = {
      {"sha", std::string(40, 'c')},
      {"siblings",
       {entry("config.json"),
        {{"rfilename", "m.safetensors"},
         {"size", 9},
         {"lfs", {{"sha256", std::string(64, 'f')}, {"size", 9}, {"pointerSize", 130}}}}}}};
  const HubListing read = parse_listing(good.dump(), "org/name");
  ASSERT_EQ(read.files.size(), 2u);
  EXPECT_EQ(read.files[0].hash, std::string(40, 'e'));
  EXPECT_EQ(read.files[1].hash, std::string(64, 'f'));
  EXPECT_EQ(read.files[1].size, 9u);
}

TEST_F(Repository, BadListingsAreRefused) {
  const std::string commit(40, 'c');
  for (const char* name : {"../config.json", "/etc/passwd", "a/../../b", "", "a\nb", "a\\..\\b"}) {
    const json bad = {{"sha", commit}, {"siblings", {entry("ok"), entry(name)}}};
    EXPECT_NE(parse_error(bad).find("refused"), std::string::npos) << name;
  }
  json no_hash = entry("x"), bad_hash = entry("x"), negative = entry("x"), huge = entry("x");
  no_hash.erase("blobId");
  bad_hash["blobId"] = "../../../../etc/cron.d/x0000000000000000";
  negative["size"] = -1;
  huge["size"] = 1e300;
  for (const json& file : {no_hash, bad_hash, negative, huge, json(3), json::array()}) {
    EXPECT_NE(parse_error({{"sha", commit}, {"siblings", json::array({file})}}), "") << file;
  }
  for (const json& value :
       {json(), json::array(), json{{"sha", commit}},
        json{{"sha", "../x"}, {"siblings", json::array()}}, json{{"siblings", json::array()}},
        json{{"sha", 1}, {"siblings", json::array()}}}) {
    EXPECT_NE(parse_error(value), "") << value;
  }
  EXPECT_NE(error_of([] { parse_listing("<html>", "org/name"); }), "");
}

}  // namespace
}  // namespace ridge
