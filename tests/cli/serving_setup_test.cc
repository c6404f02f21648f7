// The memory that `ridge serve` gives to the KV caches of its replicas.
#include "cli/serving_setup.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "engine/ranks/cut_weights.h"
#include "engine/tiny_families.h"

namespace ridge {
namespace {

Weights tiny_weights(const TinyFamily& family, Storage storage) {
  const std::filesystem::path path =
      std::filesystem::temp_directory_path() / fmt::format("ridge-memory-{}.json", ::getpid());
  std::ofstream(path) << family.config;
  Weights weights = random_weights(path.string(), storage, 7, 1);
  std::filesystem::remove(path);
  return weights;
}

RunnerOptions small_bounds() {
  RunnerOptions bounds;
  bounds.threads = 1;
  bounds.cache_tokens = 64;
  return bounds;
}

// What ranks copy while they cut, and what their runners repack.
double copied_by_ranks(const Weights& whole, const RankGrid& grid) {
  double bytes = 0;
  for (int rank = 0; rank < grid.ranks(); ++rank) {
    Weights part = cut_weights(whole, grid, rank);
    bytes += part.copied_bytes - whole.copied_bytes;
    bytes += make_cpu_runner(std::move(part), small_bounds())->repacked_bytes();
  }
  return bytes;
}

TEST(ServingMemory, TheBytesThatRanksCopyAreKnownBeforeTheyLoad) {
  for (const TinyFamily& family : kTinyFamilies) {
    for (const Storage storage : {Storage::bf16, Storage::q8_0, Storage::q4_0}) {
      const Weights whole = tiny_weights(family, storage);
      for (const RankGrid& grid : {RankGrid{}, RankGrid{.tp = 2}, RankGrid{.tp = 4},
                                   RankGrid{.tp = 2, .whole_experts = true}}) {
        if (grid.whole_experts && whole.architecture.experts == 0) continue;
        try {
          check_cut(whole, grid);
        } catch (const Error&) {
          continue;
        }
        // Repacked rows fill groups of 16 on every rank: a part of a small matrix may round up.
        const double expected = copied_by_ranks(whole, grid);
        EXPECT_NEAR(cpu_copied_bytes(whole, grid), expected, 0.1 * expected)
            << family.name << ", " << storage_info(storage).name << ", tp " << grid.tp;
      }
    }
  }
}

TEST(ServingMemory, EveryReplicaIsCounted) {
  EXPECT_EQ(replica_kv_memory(100e9, 0, 1), 50e9);
  EXPECT_EQ(replica_kv_memory(100e9, 10e9, 1), 45e9);
  EXPECT_EQ(replica_kv_memory(100e9, 10e9, 4), 30e9);
  EXPECT_EQ(replica_kv_memory(5e9, 10e9, 1), 0);
  EXPECT_THROW(replica_kv_memory(35e9, 10e9, 4), OptionError);
}

TEST(ServingMemory, TheHostWithTheLeastForEachRankDecides) {
  const std::vector<RankHost> one{{4, 100e9}};
  EXPECT_EQ(hosts_kv_memory(one, 20e9), replica_kv_memory(100e9, 20e9, 1));
  // Two of four ranks on each: half of the weights, 40 and 20 GB for their half of the cache.
  const std::vector<RankHost> two{{2, 90e9}, {2, 50e9}};
  EXPECT_DOUBLE_EQ(hosts_kv_memory(two, 20e9), 2 * 20e9);
  // The larger host has three of them: 12 GB for each, and 20 GB for the other one.
  const std::vector<RankHost> uneven{{3, 87e9}, {1, 45e9}};
  EXPECT_DOUBLE_EQ(hosts_kv_memory(uneven, 20e9), 4 * 12e9);
  const std::vector<RankHost> full{{1, 100e9}, {1, 1e9}};
  EXPECT_EQ(hosts_kv_memory(full, 20e9), 0);
}

TEST(ServingMemory, ReplicasShareTheTokensThatFit) {
  const Weights weights = tiny_weights(kTinyFamilies[0], Storage::q8_0);
  const Architecture& model = weights.architecture;
  RunnerOptions bounds = small_bounds();
  bounds.max_sequences = 1 << 20;  // more than memory holds
  const double token = 2.0 * model.layer_count() * model.kv_columns() * 2;  // f16
  const auto tokens = [&](double memory, int copies) {
    return default_kv_tokens(model, bounds, 512, memory, copies);
  };
  EXPECT_EQ(tokens(65536 * token, 1), 65536);
  EXPECT_EQ(tokens(65536 * token, 4), 16384);
  EXPECT_EQ(tokens(0, 4), 512);  // one context at least
  bounds.max_sequences = 2;
  EXPECT_EQ(tokens(65536 * token, 1), 1024);  // no more than the sequences fill
}

}  // namespace
}  // namespace ridge
