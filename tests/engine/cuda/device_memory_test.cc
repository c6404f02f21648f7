#include "engine/cuda/host/device_memory.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "base/error.h"
#include "engine/cuda/layout/device_format.h"
#include "model/read.h"

namespace ridge {
namespace {

constexpr double kStep = 100e6;  // bytes of a step

Plan plan_of(cuda::KvFormat kv = cuda::KvFormat::bf16) {
  Plan plan;
  plan.kv = stored_format(kv, 128);
  plan.activations = DType::bf16;
  return plan;
}

// Empty: it fits.
std::string refusal(const Model& model, const char* format, int tokens, double available) {
  try {
    check_device_memory(model, plan_of(), device_format_from_name(format), tokens, kStep, available,
                        "this GPU");
    return {};
  } catch (const Error& error) {
    return error.what();
  }
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(DeviceMemory, CountsWhatLiesOnTheDevice) {
  const Model model = find_model("llama-3-8b");
  const double matrices = 32.0 * 4096 * (6144 + 4096 + 3 * 14336), head = 128256.0 * 4096;
  const DeviceNeed bf16 = device_need(model, plan_of(), cuda::WeightFormat::bf16, 1000, kStep);
  const DeviceNeed int4 = device_need(model, plan_of(), cuda::WeightFormat::int4, 1000, kStep);
  EXPECT_NEAR(bf16.weights, 2 * (matrices + 2 * head), 1e-3 * bf16.weights);  // norms besides
  EXPECT_NEAR(int4.weights, 4.25 / 8 * (matrices + head) + 2 * head, 1e-3 * int4.weights);
  EXPECT_EQ(bf16.cache, 1008.0 * 32 * 2 * 8 * 128 * 2);  // whole pages
  for (const cuda::KvFormat kv : {cuda::KvFormat::fp8, cuda::KvFormat::int8}) {
    EXPECT_EQ(device_need(model, plan_of(kv), cuda::WeightFormat::bf16, 1000, kStep).cache,
              1008.0 * 2 * 8 * (32 * (128 + 4) + 2 * 128));  // a float for each head; unpacked
  }
  // While loading, two matrices of the head's size wait to be packed; the steps' memory besides.
  EXPECT_EQ(bf16.working, 2 * 2 * head + kStep);
  // A head that is the embedding in the file is packed beside it.
  const Model tied = find_model("llama-3.2-1b");
  ASSERT_TRUE(tied.tied_embeddings);
  EXPECT_GT(device_need(tied, plan_of(), cuda::WeightFormat::bf16, 16, kStep).weights,
            2 * 2 * 128256.0 * 2048);
}

// A stage of a pipeline holds its own layers, weights and cache; the fullest one is counted.
TEST(DeviceMemory, AStageCachesItsOwnLayers) {
  const Model model = find_model("llama-3-8b");
  const double layer = 4096 * (6144 + 4096 + 3 * 14336.0), head = 128256.0 * 4096;
  const auto need_of = [&](int stages, cuda::KvFormat kv) {
    Plan plan = plan_of(kv);
    plan.pp = stages;
    return device_need(model, plan, cuda::WeightFormat::bf16, 1000, kStep);
  };
  const DeviceNeed half = need_of(2, cuda::KvFormat::bf16);
  EXPECT_EQ(half.cache, 1008.0 * 16 * 2 * 8 * 128 * 2);
  EXPECT_NEAR(half.weights, 2 * (16 * layer + head), 1e-3 * half.weights);  // an end of the model
  // 32 layers in three stages: 11 in the fullest.
  EXPECT_DOUBLE_EQ(need_of(3, cuda::KvFormat::bf16).cache, 1008.0 * 11 * 2 * 8 * 128 * 2);
  // One layer is unpacked at a time, however many a stage has.
  EXPECT_DOUBLE_EQ(need_of(2, cuda::KvFormat::int8).cache,
                   1008.0 * 2 * 8 * (16 * (128 + 4) + 2 * 128));
}

TEST(DeviceMemory, SaysWhatWouldFit) {
  const Model model = find_model("llama-3-8b");
  constexpr int kTokens = 1 << 17;  // 17 GB
  EXPECT_EQ(refusal(model, "bf16", kTokens, 140e9), "");
  // The longest cache is the longest: its tokens fit, a page more does not.
  const std::string tight = refusal(model, "bf16", kTokens, 24e9);
  const size_t at = tight.find("what fits: a cache of ");
  ASSERT_NE(at, std::string::npos) << tight;
  const int most = std::atoi(tight.c_str() + at + std::string("what fits: a cache of ").size());
  EXPECT_GT(most, 0);
  EXPECT_EQ(refusal(model, "bf16", most, 24e9), "");
  EXPECT_NE(refusal(model, "bf16", most + 1, 24e9), "");
  // Only the formats that fit.
  EXPECT_FALSE(has(tight, "--format fp8")) << tight;
  EXPECT_FALSE(has(tight, "--format bf16"));
  const std::string wide = refusal(model, "bf16", 4096, 13e9);
  EXPECT_TRUE(has(wide, "what fits: --format fp8")) << wide;
  EXPECT_TRUE(has(wide, "--format int4"));
  // A cache of half the bytes: in 29 GB with weights of bf16, in 24 GB not.
  EXPECT_FALSE(has(tight, "--kv")) << tight;
  const std::string half = refusal(model, "bf16", kTokens, 29e9);
  EXPECT_TRUE(has(half, "--kv fp8, --kv int8")) << half;
  EXPECT_TRUE(has(refusal(model, "bf16", 4096, 4e9), "no format fits"));
  EXPECT_EQ(wide.find('\n'), std::string::npos);
}

TEST(DeviceMemory, KeepsReleasedMxfp4) {
  const Model model = find_model("gpt-oss-20b"), llama = find_model("llama-3-8b");
  EXPECT_EQ(released_device_format(model), cuda::WeightFormat::mxfp4);
  EXPECT_EQ(released_device_format(llama), cuda::WeightFormat::bf16);
  EXPECT_NO_THROW(check_device_format(model, cuda::WeightFormat::mxfp4));
  EXPECT_NO_THROW(check_device_format(llama, cuda::WeightFormat::int4));
  EXPECT_THROW(check_device_format(llama, cuda::WeightFormat::mxfp4), Error);
  // 24 layers of 32 experts in 4.25 bits; attention, embedding and head in bf16.
  const double experts = 24 * 32 * 3 * 2880.0 * 2880, attention = 24 * 2880.0 * (4096 * 2 + 1024);
  const double ends = 2 * 201088.0 * 2880;
  const DeviceNeed need = device_need(model, plan_of(), cuda::WeightFormat::mxfp4, 1000, kStep);
  EXPECT_NEAR(need.weights, 4.25 / 8 * experts + 2 * (attention + ends), 3e-3 * need.weights);
  // On a card of 24 GB.
  EXPECT_EQ(refusal(model, "mxfp4", 4096, 24e9), "");
  const std::string wide = refusal(model, "bf16", 4096, 24e9);
  EXPECT_TRUE(has(wide, "--format mxfp4")) << wide;
  // Experts in two formats would be quantized again.
  Model mixed = model;
  for (Linear& linear : mixed.groups.front().layer.linears) {
    if (linear.stage == Stage::expert_out) linear.format = format_from_name("q8_0");
  }
  EXPECT_EQ(released_device_format(mixed), cuda::WeightFormat::bf16);
}

}  // namespace
}  // namespace ridge
