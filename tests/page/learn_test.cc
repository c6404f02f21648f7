// The Learn path: whose machine it is, and one product under the roof.
#include "page/learn.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "cost/matmul.h"
#include "machine/atlas.h"
#include "model/read.h"
#include "predict/predict.h"
#include "predict/request.h"

namespace ridge {
namespace {

// A folder of the user's own machine files, in place of ~/.config/ridge.
class LearnFolder : public testing::Test {
 protected:
  void SetUp() override {
    if (const char* old = std::getenv("XDG_CONFIG_HOME")) before_ = old;
    folder_ = testing::TempDir() + "learn_config";
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_ + "/ridge/machines");
    setenv("XDG_CONFIG_HOME", folder_.c_str(), 1);
  }
  void TearDown() override {
    if (before_)
      setenv("XDG_CONFIG_HOME", before_->c_str(), 1);
    else
      unsetenv("XDG_CONFIG_HOME");
    std::filesystem::remove_all(folder_);
  }
  void write(const std::string& origin) const {
    std::ofstream(folder_ + "/ridge/machines/this.json")
        << R"({"name": "this", "kind": "cpu", "levels": [
             {"name": "L3", "scope": "device", "capacity": 33554432},
             {"name": "DRAM", "scope": "device", "capacity": 64000000000, "read_bandwidth": 5e10}],
             "peak": {"fp32": 1e12},
             "provenance": {"": {"origin": ")"
        << origin << R"(", "source": "a test"}}})";
  }

  std::string folder_;
  std::optional<std::string> before_;
};

TEST_F(LearnFolder, AnUnmeasuredComputerGetsTheExampleAndIsToldHow) {
  const Json learn = learn_json();
  EXPECT_EQ(learn["machine"], "h200");
  EXPECT_EQ(learn["measured"], false);
  EXPECT_EQ(learn["streams_from"], "HBM");
  EXPECT_NE(learn["why"].get<std::string>().find("ridge measure"), std::string::npos);
}

TEST_F(LearnFolder, AFileThatNobodyMeasuredIsNoMeasurement) {
  write("estimate");
  EXPECT_EQ(learn_json()["machine"], "h200");
}

TEST_F(LearnFolder, AMeasuredComputerTeachesWithAModelBeyondItsCache) {
  write("measured");
  const Json learn = learn_json();
  ASSERT_EQ(learn["machine"], "this");
  EXPECT_EQ(learn["measured"], true);
  EXPECT_EQ(learn["streams_from"], "DRAM");
  const Model model = find_model(learn["model"].get<std::string>());
  EXPECT_GT(weight_bytes(model), 4 * *find_machine("this").cache()->total_capacity());
  EXPECT_GE(model.max_context, 8192);
}

Json product(const ApiOptions& options) { return answer(*find_api_endpoint("/api/work"), options); }

TEST(LearnWork, IsTheCostModelsProduct) {
  const Json json =
      product({{"machine", "h200"}, {"m", "32"}, {"k", "4096"}, {"n", "14336"}, {"dtype", "bf16"}});
  const Work work = matmul_work({.m = 32, .k = 4096, .n = 14336});
  EXPECT_EQ(json["flops"], work.flops);
  EXPECT_EQ(json["bytes"], work.device_bytes());
  EXPECT_EQ(json["wall"], "memory");
  EXPECT_NEAR(json["share_of_peak"].get<double>(),
              json["intensity"].get<double>() / json["ridge"].get<double>(), 1e-12);
}

TEST(LearnWork, MeetsTheRidgeAtTheRowsItNames) {
  for (const char* machine : {"h200", "a100-sxm-80gb", "b200"}) {
    const Json one = product({{"machine", machine}, {"m", "1"}});
    ASSERT_TRUE(one["rows_at_ridge"].is_number()) << machine;
    const double rows = one["rows_at_ridge"];
    const auto at = [&](double m) {
      return product({{"machine", machine}, {"m", std::to_string(m)}});
    };
    EXPECT_NEAR(at(rows)["intensity"].get<double>() / one["ridge"].get<double>(), 1, 1e-6);
    EXPECT_EQ(at(rows * 0.9)["wall"], "memory");
    EXPECT_EQ(at(rows * 1.1)["wall"], "compute");
    EXPECT_EQ(at(rows * 1.1)["share_of_peak"], 1.0);
    // However many rows came in, the rows at the ridge are the same.
    EXPECT_NEAR(at(1000)["rows_at_ridge"].get<double>() / rows, 1, 1e-9);
  }
  // Narrow matrices never reach it: each row brings more bytes than the ridge pays for.
  EXPECT_TRUE(product({{"n", "64"}, {"k", "64"}})["rows_at_ridge"].is_null());
}

TEST(LearnWork, RefusesInWords) {
  const auto fault = [](const ApiOptions& options) -> std::string {
    try {
      product(options);
    } catch (const OptionError& error) {
      return error.option();
    } catch (const Error& error) {
      return error.what();
    }
    return "none";
  };
  EXPECT_EQ(fault({{"op", "softmax"}}), "op");
  EXPECT_EQ(fault({{"machine", "h1000"}}), "machine");
  EXPECT_EQ(fault({{"dtype", "float"}}), "dtype");
  EXPECT_EQ(fault({{"m", "0"}}), "m");
  EXPECT_NE(fault({{"n", "many"}}), "none");
  EXPECT_EQ(fault({{"rows", "1"}}), "rows");
}

TEST(LearnOperators, BytesOfAnOperatorAreItsPartsBytes) {
  const Json view = answer(*find_api_endpoint("/api/roofline"),
                           {{"machine", "h200"}, {"batch", "32"}, {"context", "4096"}});
  double weights = 0;
  for (const Json& op : view["prediction"]["ops"]) {
    const double parts = op["weight_bytes"].get<double>() + op["kv_bytes"].get<double>() +
                         op["act_bytes"].get<double>();
    EXPECT_NEAR(parts, op["bytes"].get<double>(), 1e-9 * parts) << op["name"];
    EXPECT_GE(op["chip_bytes"].get<double>(), 0) << op["name"];
    if (op["phase"] == "decode") weights += op["weight_bytes"].get<double>();
  }
  // A decode step reads all weights once, of the embedding only the rows of its tokens.
  const double whole = weight_bytes(find_model("llama-3-8b"));
  EXPECT_LT(weights, whole);
  EXPECT_GT(weights, 0.9 * whole);
}

}  // namespace
}  // namespace ridge
