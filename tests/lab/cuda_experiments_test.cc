// The experiments on a GPU in quick mode: they end, their numbers are sane, their equalities hold.
// Without a device they report themselves skipped (ctest label gpu). What needs none is tested too.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "engine/weights/random_weights.h"
#include "lab/lab.h"
#include "lab/lab_engine.h"
#include "lab/lab_run.h"
#include "measure/cuda/measure_cuda.h"

namespace ridge {
namespace {

std::string gpu_experiment_name(const testing::TestParamInfo<const char*>& tested) {
  std::string name = tested.param;
  for (char& c : name) c = c == '-' ? '_' : c;
  return name;
}

std::vector<const char*> names_on_cuda() {
  std::vector<const char*> names;
  for (const Experiment& e : experiments()) {
    if (e.on_cuda != nullptr) names.push_back(e.name);
  }
  return names;
}

TEST(LabOnCuda, HasEveryExperimentButThoseOfSeveralDevices) {
  for (const Experiment& e : experiments()) {
    const bool several = e.name == std::string("tensor-parallel") || e.name == std::string("ranks");
    EXPECT_EQ(e.on_cuda == nullptr, several) << e.name;
    EXPECT_EQ(why_not_on(e, LabDevice::cuda).empty(), e.on_cuda != nullptr) << e.name;
  }
}

TEST(LabOnCuda, WithoutADeviceSaysSo) {
  if (!cuda_devices().names.empty()) GTEST_SKIP() << "a GPU is here";
  LabOptions options;
  options.device = LabDevice::cuda;
  EXPECT_THROW(Lab lab(options), Error);
}

TEST(UndrawnWeights, DescribeTheModelAndHoldNoMatrix) {
  const nlohmann::json config{{"model_type", "llama"},     {"hidden_size", 64},
                              {"num_hidden_layers", 2},    {"num_attention_heads", 4},
                              {"num_key_value_heads", 2},  {"head_dim", 16},
                              {"intermediate_size", 128},  {"vocab_size", 100},
                              {"torch_dtype", "bfloat16"}, {"tie_word_embeddings", false}};
  const Weights here = random_weights_of(config, "small", Storage::bf16, 3, 1);
  const Weights there = undrawn_weights_of(config, "small");
  EXPECT_EQ(there.bytes, here.bytes);
  EXPECT_FALSE(there.embed);
  EXPECT_EQ(there.embed.rows, here.embed.rows);
  EXPECT_FALSE(there.layers[1].down);
  EXPECT_EQ(parameters(there.model), parameters(here.model));
  EXPECT_EQ(there.model.head.format, here.model.head.format);
}

class GpuExperiment : public testing::TestWithParam<const char*> {};

TEST_P(GpuExperiment, RunsWithSaneNumbers) {
  const CudaDevices devices = cuda_devices();
  if (devices.names.empty()) GTEST_SKIP() << "no GPU: " << devices.why_none;
  LabOptions options;
  options.device = LabDevice::cuda;
  options.quick = true;
  Lab lab(options);
  const LabResult result = find_experiment(GetParam()).on_cuda(lab);  // an Error fails the test
  EXPECT_FALSE(result.sentence.empty());
  EXPECT_EQ(result.sentence.find("nan"), std::string::npos) << result.sentence;
  EXPECT_EQ(result.sentence.find("inf"), std::string::npos) << result.sentence;
  ASSERT_FALSE(result.series.empty());
  for (const LabSeries& series : result.series) {
    EXPECT_FALSE(series.points.empty()) << series.name;
    for (const LabPoint& point : series.points) {
      EXPECT_TRUE(std::isfinite(point.measured) && point.measured >= 0) << series.name;
      if (!point.predicted()) continue;
      EXPECT_LE(point.band.low, point.band.expected) << series.name << " at " << point.x;
      EXPECT_LE(point.band.expected, point.band.high) << series.name << " at " << point.x;
    }
  }
  for (const LabCheck& check : result.checks) EXPECT_TRUE(check.holds) << check.what;
}

INSTANTIATE_TEST_SUITE_P(GpuLab, GpuExperiment, testing::ValuesIn(names_on_cuda()),
                         gpu_experiment_name);

TEST(GpuLabCommand, RunsAllOfThemQuickly) {
  const CudaDevices devices = cuda_devices();
  if (devices.names.empty()) GTEST_SKIP() << "no GPU: " << devices.why_none;
  // The program beside this one: both may have been carried to a machine with a GPU.
  const auto program = std::filesystem::read_symlink("/proc/self/exe").parent_path() / "ridge";
  const std::string command = program.string() + " lab all --device cuda --quick --json </dev/null";
  FILE* pipe = popen(command.c_str(), "r");
  ASSERT_NE(pipe, nullptr);
  std::string out;
  char buffer[4096];
  for (size_t n; (n = fread(buffer, 1, sizeof buffer, pipe)) > 0;) out.append(buffer, n);
  const int status = pclose(pipe);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  const nlohmann::json report = nlohmann::json::parse(out, nullptr, false);
  ASSERT_FALSE(report.is_discarded()) << out;
  EXPECT_EQ(report["experiments"].size(), experiments().size());
  for (const nlohmann::json& e : report["experiments"]) {
    // The history of datasheets does refute its claim, on any device.
    EXPECT_TRUE(e["verdict"] != "refuted" || e["name"] == "history") << e["name"] << e["sentence"];
    EXPECT_EQ(e["series"].empty(), !e["cuda"].get<bool>()) << e["name"] << e["sentence"];
  }
}

}  // namespace
}  // namespace ridge
