// The atlas checks itself: numbers of one machine must agree with each other.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "machine/atlas.h"

namespace ridge {
namespace {

// Datasheets round to two or three digits and mix boost clocks; 3 % covers both.
constexpr double kRounding = 0.03;

TEST(AtlasEntries, EveryNumberHasAProvenance) {
  for (const Machine& machine : all_machines()) {
    for (const std::string& path : known_numbers(machine)) {
      const Provenance* provenance = provenance_of(machine, path);
      ASSERT_NE(provenance, nullptr) << machine.name << " " << path;
      EXPECT_FALSE(provenance->source.empty()) << machine.name << " " << path;
    }
  }
}

TEST(AtlasEntries, ProvenanceNamesNumbersThatExist) {
  for (const Machine& machine : all_machines()) {
    const std::vector<std::string> paths = known_numbers(machine);
    for (const auto& [prefix, provenance] : machine.provenance) {
      const auto covers = [&, &prefix = prefix](const std::string& path) {
        return prefix.empty() || path == prefix || path.starts_with(prefix + ".");
      };
      const bool used = std::any_of(paths.begin(), paths.end(), covers);
      EXPECT_TRUE(used) << machine.name << ": \"" << prefix << "\" covers nothing";
    }
  }
}

TEST(AtlasEntries, Fp32PeakFollowsFromUnitsLanesAndClock) {
  int checked = 0;
  for (const Machine& machine : all_machines()) {
    const Maybe fp32 = machine.peak_of(DType::fp32);
    if (!fp32 || !machine.units || !machine.lanes || !machine.clock) continue;
    ++checked;
    const double derived = *machine.units * *machine.lanes * 2 * *machine.clock;
    EXPECT_NEAR(derived / *fp32, 1, kRounding) << machine.name;
  }
  EXPECT_GE(checked, 40);
}

TEST(AtlasEntries, HaveAYearAMemoryAndAPeak) {
  for (const Machine& machine : all_machines()) {
    EXPECT_TRUE(machine.year) << machine.name;
    EXPECT_TRUE(machine.memory().read_bandwidth) << machine.name;
    EXPECT_FALSE(machine.title.empty()) << machine.name;
    const bool has_peak = std::any_of(machine.peak.begin(), machine.peak.end(),
                                      [](const Maybe& peak) { return peak.has_value(); });
    // Apple publishes no peaks since the M3, AMD none of the MI308X; unknown stays unknown.
    const std::set<std::string> silent = {"M3", "M4"};
    const bool published = !silent.count(machine.architecture) && machine.name != "mi308x";
    EXPECT_EQ(has_peak, published) << machine.name;
    const std::set<std::string> names = {"HBM", "GDDR", "DRAM", "LPDDR"};
    EXPECT_TRUE(names.count(machine.memory().name)) << machine.name;
  }
}

// Half the bits, twice the rate, on the same tensor cores: `fast` is `factor` times `slow`.
void expect_ratio(DType fast, DType slow, double factor,
                  const std::map<std::string, const char*>& exceptions) {
  for (const Machine& machine : all_machines()) {
    const Maybe a = machine.peak_of(fast);
    const Maybe b = machine.peak_of(slow);
    if (!a || !b) continue;
    const bool sane = std::abs(*a / *b / factor - 1) <= kRounding;
    EXPECT_NE(sane, exceptions.count(machine.name) > 0)
        << machine.name << ": " << dtype_name(fast) << " is " << *a / *b << " times "
        << dtype_name(slow);
  }
}

TEST(AtlasEntries, Fp16RunsAtTheRateOfBf16) {
  expect_ratio(DType::fp16, DType::bf16, 1,
               {{"gaudi-3", "the matrix engines have no fp16"},
                {"xeon-8480p", "AMX has bf16, fp16 is AVX-512"},
                {"xeon-8592p", "AMX has bf16, fp16 is AVX-512"}});
}

TEST(AtlasEntries, Fp8RunsAtTwiceBf16) {
  expect_ratio(DType::fp8, DType::bf16, 2,
               {{"gaudi-3", "published equal"}, {"inferentia2", "cFP8 at the rate of bf16"}});
}

// Tensor cores that accumulate in fp32 run at half rate on GeForce, and fp8 with them; int8 and fp4
// do not. The atlas holds the rate with fp32 accumulation, which the engines' kernels use.
std::map<std::string, const char*> geforce() {
  std::map<std::string, const char*> names;
  for (const Machine& machine : all_machines()) {
    if (machine.title.find("GeForce") == std::string::npos) continue;
    names[machine.name] = "half rate with fp32 accumulation";
  }
  return names;
}

std::map<std::string, const char*> and_geforce(std::map<std::string, const char*> others) {
  others.merge(geforce());
  return others;
}

TEST(AtlasEntries, HalfRatePartsHoldTheRateWithFp32Accumulation) {
  std::map<std::string, const char*> half = geforce();
  EXPECT_GE(half.size(), 20u);
  for (const char* name : {"a10g", "l20", "l40"}) half[name] = "by its datasheet";
  for (const Machine& machine : all_machines()) {
    const Maybe fp16 = machine.peak_of(DType::fp16);
    const Maybe fp32 = machine.peak_of(DType::fp32);
    const bool known =
        fp16 && fp32 && machine.vendor == "NVIDIA" &&
        (machine.isa == "sm_86" || machine.isa == "sm_89" || machine.isa == "sm_120");
    if (known) {
      EXPECT_NEAR(*fp16 / *fp32, half.count(machine.name) ? 2 : 4, 0.1) << machine.name;
    }
  }
}

TEST(AtlasEntries, Int8RunsAtTwiceBf16) {
  const char* alike = "RDNA3 runs both alike";
  expect_ratio(DType::int8, DType::bf16, 2,
               and_geforce({{"rx-7900-xtx", alike},
                            {"w7900", alike},
                            {"strix-halo", alike},
                            {"mi210", "CDNA2 runs both alike"},
                            {"mi250x", "CDNA2 runs both alike"},
                            {"tpu-v4", "runs both alike"},
                            {"b300", "int8 was cut for fp4"}}));
}

TEST(AtlasEntries, Fp4RunsAtTwiceFp8) {
  expect_ratio(DType::fp4, DType::fp8, 2,
               and_geforce({{"b300", "Blackwell Ultra triples fp4"},
                            {"gb300", "Blackwell Ultra triples fp4"}}));
}

TEST(AtlasEntries, Tf32RunsAtHalfBf16) {
  expect_ratio(DType::tf32, DType::bf16, 0.5,
               {{"gaudi-3", "a quarter"},
                {"trainium2", "published equal"},
                {"inferentia2", "published equal"}});
}

TEST(AtlasEntries, SustainedNeverExceedsPeak) {
  for (const Machine& machine : all_machines()) {
    for (int i = 0; i < kDTypeCount; ++i) {
      if (!machine.sustained[i]) continue;
      ASSERT_TRUE(machine.peak[i]) << machine.name;
      EXPECT_LE(*machine.sustained[i], *machine.peak[i]) << machine.name;
    }
  }
}

// One definition for all: a stream's launches are the host's, a graph's edge is bare.
TEST(AtlasEntries, AStreamNeverLaunchesFasterThanAGraph) {
  for (const Machine& machine : all_machines()) {
    const Launch& launch = machine.launch;
    if (launch.stream && launch.graph) {
      EXPECT_GE(*launch.stream, *launch.graph) << machine.name;
    }
    if (launch.graph) {
      EXPECT_LT(*launch.graph, 1e-6) << machine.name << ": with a body?";
    }
  }
}

TEST(AtlasEntries, GeForceHasNoPeerToPeerOverPcie) {
  for (const Machine& machine : all_machines()) {
    const bool desk = machine.title.find("GeForce") != std::string::npos;
    for (const Link& link : machine.links) {
      if (!link.name.starts_with("PCIe")) continue;
      EXPECT_EQ(link.p2p.value_or(true), !desk) << machine.name;
      EXPECT_EQ(machine_from_json(machine_to_json(machine), "again").links.back().p2p,
                machine.links.back().p2p);
    }
  }
}

// Host and network are two ways out of the device, so neither lies inside the other: a Gaudi 3 has
// more network than PCIe.
TEST(AtlasEntries, BandwidthFallsAndLatencyRisesOutward) {
  for (const Machine& machine : all_machines()) {
    Maybe bandwidth, latency;
    for (const Level& level : machine.levels) {
      const std::string where = machine.name + " " + level.name;
      if (level.read_bandwidth && bandwidth) {
        EXPECT_LE(*level.read_bandwidth, *bandwidth) << where;
      }
      if (level.latency && latency) {
        EXPECT_GT(*level.latency, *latency) << where;
      }
      if (level.scope == Scope::host || level.scope == Scope::network) continue;
      if (level.read_bandwidth) bandwidth = level.read_bandwidth;
      if (level.latency) latency = level.latency;
    }
  }
}

// Shared levels grow outward. Private ones (registers, L1, a core's L2) have no such rule when
// added up: the registers of an H100 hold 33 MiB, its L1 29, and the L2 caches of a Xeon 8480+
// more than its L3. But none of them exceeds the memory.
TEST(AtlasEntries, SharedCapacityRisesOutward) {
  for (const Machine& machine : all_machines()) {
    const Maybe memory = machine.memory().total_capacity();
    Maybe inner;
    for (const Level& level : machine.levels) {
      const Maybe capacity = level.total_capacity();
      if (!capacity) continue;
      if (memory) {
        EXPECT_LE(*capacity, *memory) << machine.name << level.name;
      }
      if (level.scope != Scope::device) continue;
      if (inner) {
        EXPECT_GT(*capacity, *inner) << machine.name << level.name;
      }
      inner = capacity;
    }
  }
}

TEST(AtlasEntries, PrivateLevelsExistOncePerUnit) {
  for (const Machine& machine : all_machines()) {
    for (const Level& level : machine.levels) {
      if (level.scope == Scope::unit) {
        EXPECT_EQ(level.instances, machine.units) << machine.name;
      }
    }
  }
}

TEST(AtlasEntries, RidgeIsPeakOverBandwidthForEveryFormat) {
  for (const Machine& machine : all_machines()) {
    for (int i = 0; i < kDTypeCount; ++i) {
      const Maybe ridge = machine.ridge(static_cast<DType>(i));
      EXPECT_EQ(ridge.has_value(), machine.peak[i].has_value()) << machine.name;
      if (ridge) {
        EXPECT_DOUBLE_EQ(*ridge * *machine.memory().read_bandwidth, *machine.peak[i]);
      }
    }
  }
}

TEST(AtlasEntries, PinnedValues) {
  const Machine h100 = find_machine("h100-sxm");
  EXPECT_EQ(h100.peak_of(DType::bf16), 989.4e12);
  EXPECT_EQ(h100.peak_of(DType::fp8), 1978.9e12);
  EXPECT_EQ(h100.memory().read_bandwidth, 3.35e12);
  EXPECT_EQ(h100.level("L1")->capacity, 228 * 1024);
  EXPECT_EQ(h100.links.front().bandwidth, 450e9);
  const Machine a100 = find_machine("a100-sxm-80gb");
  EXPECT_EQ(a100.peak_of(DType::bf16), 312e12);
  EXPECT_EQ(a100.memory().read_bandwidth, 2.039e12);
  const Machine h200 = find_machine("h200");
  EXPECT_EQ(h200.memory().read_bandwidth, 4.8e12);
  EXPECT_EQ(h200.memory().capacity, 143771.0 * 1024 * 1024);  // what nvidia-smi shows
  EXPECT_EQ(find_machine("b200").memory().read_bandwidth, 7.672e12);
}

TEST(Claims, Claim01_RidgeOfTheH100) {
  const Machine h100 = find_machine("h100-sxm");
  EXPECT_NEAR(*h100.ridge(DType::bf16), 295.3, 0.05);
  EXPECT_NEAR(*h100.ridge(DType::fp8), 590.7, 0.05);
}

TEST(Claims, Claim02_RidgeOfTheA100) {
  const Machine a100 = find_machine("a100-sxm-80gb");
  EXPECT_NEAR(*a100.ridge(DType::bf16), 153.0, 0.05);
  // The figure often quoted rounds the bandwidth to 2.0 TB/s first.
  EXPECT_NEAR(*a100.peak_of(DType::bf16) / 2.0e12, 156, 0.05);
}

TEST(Claims, Claim20_PeakGrewFasterThanBandwidth) {
  const Machine fermi = find_machine("m2090");
  const Machine blackwell = find_machine("b200");
  const double fp32 = *blackwell.peak_of(DType::fp32) / *fermi.peak_of(DType::fp32);
  EXPECT_NEAR(fp32, 60, 6);  // "FLOPs grew about 60 times": true of fp32 from Fermi to Blackwell
  const double tensor = *blackwell.peak_of(DType::bf16) / *fermi.peak_of(DType::fp32);
  EXPECT_GT(tensor, 1000);  // with tensor cores far more
  // "bandwidth 8 to 10 times" is a decade: a K40 of 2013 to an H100 of 2022, a P100 of 2016 to a
  // B200 of 2024.
  const auto bandwidth = [](const char* name) {
    return *find_machine(name).memory().read_bandwidth;
  };
  EXPECT_NEAR(bandwidth("h100-sxm") / bandwidth("k40"), 10, 2);
  EXPECT_NEAR(bandwidth("b200") / bandwidth("p100-sxm2"), 10, 1);
  // "the ridge went from about 10 to about 300"
  EXPECT_NEAR(*fermi.ridge(DType::fp32), 10, 3);
  EXPECT_NEAR(*blackwell.ridge(DType::bf16), 300, 10);
}

}  // namespace
}  // namespace ridge
