#include "predict/training.h"

#include <gtest/gtest.h>

#include "machine/atlas.h"
#include "model/read.h"

namespace ridge {
namespace {

TEST(Training, BytesPerParameterAreThoseOfMixedPrecisionAdam) {
  const Model model = find_model("llama-2-7b");
  const double n = parameters(model);
  const TrainingMemory m = training_memory(model, 2, 4096);
  EXPECT_EQ(m.weights, 2 * n);
  EXPECT_EQ(m.gradients, 2 * n);
  EXPECT_EQ(m.master_weights, 4 * n);
  EXPECT_EQ(m.moments, 8 * n);
  EXPECT_EQ(m.optimizer(), 12 * n);
  EXPECT_EQ(m.activations, 34.0 * 4096 * 2 * 4096 * 32);  // 34 s b h, 32 layers
  EXPECT_EQ(m.total(), 16 * n + m.activations);
}

// Table 1 of the ZeRO paper, 7.5 billion parameters on 64 devices: 120, 31.4, 16.6 and 1.88 GB.
TEST(Training, ShardingIsThatOfTheZeroPaper) {
  const double n = 7.5e9;
  const TrainingMemory whole{2 * n, 2 * n, 4 * n, 8 * n, 0};
  EXPECT_NEAR(shard(whole, Sharding::none, 64).total(), 120e9, 1e6);
  EXPECT_NEAR(shard(whole, Sharding::zero1, 64).total(), 31.4e9, 0.05e9);
  EXPECT_NEAR(shard(whole, Sharding::zero2, 64).total(), 16.6e9, 0.05e9);
  EXPECT_NEAR(shard(whole, Sharding::zero3, 64).total(), 1.88e9, 0.005e9);
}

TEST(Training, ActivationsAreNotSharded) {
  const TrainingMemory whole = training_memory(find_model("llama-3-8b"), 1, 2048);
  for (int i = 0; i < kShardingCount; ++i) {
    EXPECT_EQ(shard(whole, static_cast<Sharding>(i), 8).activations, whole.activations);
  }
}

// The number that is named fits, and one device less does not.
TEST(Training, FewestDevicesIsTheSmallestNumberThatFits) {
  for (const char* name : {"llama-3-8b", "llama-3-70b", "mixtral-8x7b"}) {
    const Model model = find_model(name);
    System system = find_system("h100-sxm");
    const TrainingFit fit = fit_training(model, system, 1, 2048);
    ASSERT_TRUE(fit.capacity);
    for (int i = 0; i < kShardingCount; ++i) {
      const auto fits_on = [&](double devices) {
        system.devices_per_node = static_cast<int>(devices);
        return fit_training(model, system, 1, 2048).shardings[i].fits;
      };
      const std::optional<double> fewest = fit.shardings[i].fewest_devices;
      if (!fewest) {
        EXPECT_FALSE(fits_on(1e6)) << name << " " << i;
        continue;
      }
      EXPECT_TRUE(fits_on(*fewest)) << name << " " << i << " " << *fewest;
      if (*fewest > 1) {
        EXPECT_FALSE(fits_on(*fewest - 1)) << name << " " << i << " " << *fewest;
      }
    }
    // 16 bytes per parameter do not fit 80 GB whole, and sharding all of it always ends.
    EXPECT_FALSE(fit.shardings[0].fewest_devices) << name;
    EXPECT_TRUE(fit.shardings[3].fewest_devices) << name;
  }
}

TEST(Training, UnknownCapacityNamesNoNumber) {
  System system = find_system("h100-sxm");
  for (Level& level : system.device.levels) level.capacity.reset();
  const TrainingFit fit = fit_training(find_model("llama-3-8b"), system, 1, 2048);
  EXPECT_FALSE(fit.capacity);
  for (const ShardingFit& each : fit.shardings) EXPECT_FALSE(each.fewest_devices);
  EXPECT_TRUE(training_json(find_model("llama-3-8b"), system, fit)["capacity_bytes"].is_null());
}

}  // namespace
}  // namespace ridge
