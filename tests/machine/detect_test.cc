// The machine the tests run on, whatever it is; and the reading of /proc/cpuinfo.
#include "machine/detect.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "base/affinity.h"
#include "machine/atlas.h"
#include "machine/nvml.h"
#include "measure/cpu/read_probe.h"

namespace ridge {
namespace {

CpuInfo info_with(const char* vendor, int family, const char* flags) {
  return parse_cpuinfo(std::string("processor\t: 0\nvendor_id\t: ") + vendor + "\ncpu family\t: " +
                       std::to_string(family) + "\nflags\t\t: " + flags + "\n");
}

Maybe rate(const CpuRates& rates, DType dtype) { return rates.per_clock[static_cast<int>(dtype)]; }

TEST(CpuInfo, ReadsTheFirstProcessorAndCountsAll) {
  const CpuInfo info = parse_cpuinfo(
      "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 143\n"
      "model name\t: Intel(R) Xeon(R)\ncpu MHz\t\t: 2000.5\nflags\t\t: fpu sse2 avx2 fma\n\n"
      "processor\t: 1\nmodel name\t: other\ncpu MHz\t\t: 900\n");
  EXPECT_EQ(info.processors, 2);
  EXPECT_EQ(info.model, "Intel(R) Xeon(R)");
  EXPECT_EQ(info.vendor, "GenuineIntel");
  EXPECT_EQ(info.mhz, 2000.5);
  EXPECT_TRUE(info.has("fma"));
  EXPECT_FALSE(info.has("fm"));
}

TEST(CpuInfo, NothingToReadIsNothingKnown) {
  for (const char* text : {"", "\n", ":", "processor", "flags:\ncpu MHz: fast\n", "\0x"}) {
    const CpuInfo info = parse_cpuinfo(text);
    EXPECT_FALSE(info.mhz) << text;
    EXPECT_FALSE(rate(cpu_rates(info), DType::fp32)) << text;
  }
}

TEST(CpuRates, FollowTheInstructionSet) {
  const CpuRates avx2 = cpu_rates(info_with("GenuineIntel", 6, "sse2 avx avx2 fma"));
  EXPECT_EQ(rate(avx2, DType::fp32), 32);
  EXPECT_EQ(rate(avx2, DType::fp64), 16);
  EXPECT_FALSE(rate(avx2, DType::bf16));
  const char* wide = "sse2 avx avx2 fma avx512f avx512_bf16 avx512_vnni";
  EXPECT_EQ(rate(cpu_rates(info_with("AuthenticAMD", 25, wide)), DType::fp32), 32);  // Zen 4
  EXPECT_EQ(rate(cpu_rates(info_with("AuthenticAMD", 26, wide)), DType::fp32), 64);  // Zen 5
  EXPECT_EQ(rate(cpu_rates(info_with("AuthenticAMD", 26, wide)), DType::bf16), 128);
  EXPECT_EQ(rate(cpu_rates(info_with("GenuineIntel", 6, wide)), DType::int8), 256);
  const CpuRates amx = cpu_rates(
      info_with("GenuineIntel", 6, "sse2 avx2 fma avx512f avx512_vnni amx_tile amx_bf16 amx_int8"));
  EXPECT_EQ(rate(amx, DType::bf16), 1024);
  EXPECT_EQ(rate(amx, DType::int8), 2048);
  const CpuRates arm = cpu_rates(parse_cpuinfo("processor: 0\nFeatures: fp asimd asimdhp i8mm\n"));
  EXPECT_EQ(rate(arm, DType::fp32), 16);
  EXPECT_EQ(rate(arm, DType::int8), 128);
}

TEST(Detect, ThisMachineIsUsable) {
  set_cpu_probe(probe_cpu);
  const System system = find_system("this");
  const Machine& machine = system.device;
  EXPECT_EQ(machine.name, "this");
  EXPECT_GE(*machine.units, 1);
  EXPECT_EQ(machine.memory().name, "DRAM");
  if (machine.memory().capacity) {
    EXPECT_LE(*machine.memory().capacity, 1e15);
  }
  for (const std::string& path : known_numbers(machine)) {
    EXPECT_NE(provenance_of(machine, path), nullptr) << path;
  }
  const Machine again = machine_from_json(machine_to_json(machine), "this");
  EXPECT_EQ(known_numbers(again), known_numbers(machine));
}

TEST(Detect, ProbeIsPlausible) {
  const std::optional<CpuProbe> probe = probe_cpu();
  ASSERT_TRUE(probe);
  if (probe->read_bandwidth) {  // left out where memory is short
    EXPECT_GT(probe->read_bandwidth->value, 1e8);
    EXPECT_LT(probe->read_bandwidth->value, 1e13);
    EXPECT_GE(probe->read_bandwidth->spread, 0);
    EXPECT_LT(probe->read_bandwidth->spread, 1);
  }
  ASSERT_TRUE(probe->clock);
  EXPECT_GT(probe->clock->value, 1e7);  // far below, under a sanitizer or on a shared core
  EXPECT_LT(probe->clock->value, 1e10);
}

// The buffer is flushed from the caches, so that it need not be larger than they are.
TEST(Detect, ProbeTakesLittleMemory) {
  if (usable_processors().size() > 32) GTEST_SKIP() << "4 MB a thread";
  EXPECT_LE(probe_bytes(), 128e6);
}

TEST(Detect, ProbeSaysWhenMemoryIsShort) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer maps more than any limit";
#endif
  const auto probe_in_64_megabytes = [] {
    std::ifstream statm("/proc/self/statm");
    size_t pages = 0;
    statm >> pages;
    const size_t stacks = usable_processors().size() * (9 << 20);
    const rlim_t most = pages * size_t(getpagesize()) + stacks + (64 << 20);
    const rlimit limit{most, most};
    setrlimit(RLIMIT_AS, &limit);
    const std::optional<CpuProbe> probe = probe_cpu();
    std::cerr << (probe ? probe->no_read_bandwidth : "no probe");
    std::_Exit(0);
  };
  EXPECT_EXIT(probe_in_64_megabytes(), testing::ExitedWithCode(0),
              "takes 1[0-9]+ MB of free memory, which could not be had");
}

TEST(Nvml, AbsentDriverIsNoGpu) {
  for (const GpuFound& gpu : detect_gpus()) EXPECT_FALSE(gpu.name.empty());
}

TEST(Nvml, DriverNamesMatchTheAtlas) {
  const std::pair<const char*, const char*> names[] = {
      {"NVIDIA H100 80GB HBM3", "h100-sxm"},
      {"NVIDIA H100 PCIe", "h100-pcie"},
      {"NVIDIA H100 NVL", "h100-nvl"},
      {"NVIDIA H200", "h200"},
      {"NVIDIA GH200 480GB", "gh200"},
      {"NVIDIA B200", "b200"},
      {"NVIDIA B300 SXM6 AC", "b300"},
      {"NVIDIA GB200", "gb200"},
      {"NVIDIA A100-SXM4-80GB", "a100-sxm-80gb"},
      {"NVIDIA A100-SXM4-40GB", "a100-sxm-40gb"},
      {"NVIDIA A100-PCIE-40GB", "a100-pcie-40gb"},
      {"NVIDIA A100 80GB PCIe", "a100-pcie-80gb"},
      {"NVIDIA A10", "a10"},
      {"NVIDIA A10G", "a10g"},
      {"NVIDIA H20", "h20"},
      {"NVIDIA L4", "l4"},
      {"NVIDIA L40S", "l40s"},
      {"Tesla T4", "t4"},
      {"Tesla V100-SXM2-32GB", "v100-sxm2"},
      {"Tesla P100-PCIE-16GB", "p100-pcie"},
      {"Tesla K80", "k80"},
      {"NVIDIA GeForce RTX 4090", "rtx-4090"},
      {"NVIDIA RTX A6000", "rtx-a6000"},
      {"NVIDIA RTX 6000 Ada Generation", "rtx-6000-ada"},
      {"NVIDIA RTX PRO 6000 Blackwell Server Edition", "rtx-pro-6000-server"}};
  for (const auto& [device, machine] : names) {
    EXPECT_EQ(machine_of_device_name(device), machine) << device;
  }
  for (const char* other : {"NVIDIA A16", "NVIDIA H200X", "GeForce GTX 1080", ""}) {
    EXPECT_EQ(machine_of_device_name(other), std::nullopt) << other;
  }
}

}  // namespace
}  // namespace ridge
