// How engines divide a device's memory.
#include "predict/memory.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "predict/request.h"
#include "predict/support.h"

namespace ridge {
namespace {

MemoryFit fit_with(const EngineMemory& engine, double batch = 1) {
  const Request r = make_request("llama-3-8b", "h100-sxm");
  return fit_memory(make_rank(*r.model, r.plan), std::nullopt, r.system, engine, batch, 2048, 1024);
}

TEST(EngineMemory, AShareOfEverythingLeavesTheRestOfTheDevice) {
  const MemoryFit fit = fit_with({0.9, MemoryShare::everything, 2e9});
  EXPECT_DOUBLE_EQ(fit.reserved, 0.1 * *fit.capacity);
  EXPECT_NEAR(fit.left(),
              0.9 * *fit.capacity - fit.weights - fit.kv - fit.activations - fit.overhead, 1);
}

TEST(EngineMemory, AShareOfWeightsAndKvHoldsTheRestOutside) {
  const MemoryFit fit = fit_with({0.8, MemoryShare::weights_and_kv, 2e9});
  EXPECT_NEAR(fit.left(), 0.8 * *fit.capacity - fit.weights - fit.kv, 1);
  // What lies outside may need more than the share leaves; the device is the limit then.
  const MemoryFit wide = fit_with({1, MemoryShare::weights_and_kv, 2e9});
  EXPECT_EQ(wide.reserved, 0);
  EXPECT_NEAR(wide.left(), *wide.capacity - wide.used(), 1);
}

TEST(EngineMemory, AShareOfTheFreeMemoryComesAfterTheWeights) {
  const MemoryFit fit = fit_with({0.9, MemoryShare::kv, 2e9});
  const double free = *fit.capacity - fit.weights - fit.activations - fit.overhead;
  EXPECT_NEAR(fit.left(), 0.9 * free - fit.kv, 1);
}

TEST(EngineMemory, ASmallerShareNeverHoldsMore) {
  for (const MemoryShare of :
       {MemoryShare::everything, MemoryShare::weights_and_kv, MemoryShare::kv}) {
    double last = 0;
    for (const double share : {0.1, 0.3, 0.5, 0.7, 0.83, 0.9, 0.92, 1.0}) {
      const MemoryFit fit = fit_with({share, of, 2e9});
      EXPECT_GE(fit.max_batch, last) << share;
      EXPECT_EQ(fit.fits, fit.max_batch >= 1) << share;
      last = fit.max_batch;
      if (fit.max_batch == 0) continue;
      EXPECT_TRUE(fit_with({share, of, 2e9}, fit.max_batch).fits) << share;
      EXPECT_FALSE(fit_with({share, of, 2e9}, fit.max_batch + 1).fits) << share;
    }
  }
}

TEST(EngineMemory, StacksStateTheirDefaults) {
  EXPECT_EQ(find_stack("ideal").memory.share, 1);
  EXPECT_EQ(find_stack("vllm").memory.of, MemoryShare::everything);
  EXPECT_EQ(find_stack("sglang").memory.of, MemoryShare::weights_and_kv);
  EXPECT_EQ(find_stack("trtllm").memory.of, MemoryShare::kv);
  for (const char* stack : {"vllm", "sglang", "trtllm"}) {
    EXPECT_GT(find_stack(stack).memory.share, 0.8) << stack;
    EXPECT_LT(find_stack(stack).memory.share, 1) << stack;
  }
}

TEST(EngineMemory, TheHeadIsKeptAsTheStackDoes) {
  const auto weights = [](const char* stack) {
    RequestOptions options;
    options.model = "llama-3-8b";
    options.machine = "h200";
    options.weights = "fp8";
    options.stack = stack;
    return predict(make_request(options)).memory.weights;
  };
  const double head = 128256.0 * 4096;  // a byte each instead of two
  EXPECT_NEAR(weights("vllm") - weights("ridge-cuda"), head, 0.01 * head);
}

TEST(EngineMemory, UnknownPartsAreRefused) {
  EXPECT_THROW(stack_from_text(R"({"memory": {"of": "half"}})", "test"), Error);
  EXPECT_THROW(stack_from_text(R"({"memory": {"share": 1.2}})", "test"), Error);
  EXPECT_THROW(stack_from_text(R"({"quantizes_head": "yes"})", "test"), Error);
}

}  // namespace
}  // namespace ridge
