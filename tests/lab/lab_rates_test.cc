// Rates that the lab reads around an experiment, and what it says where they changed.
#include <gtest/gtest.h>

#include "lab/levels.h"

namespace ridge {
namespace {

Machine two_levels() {
  Machine machine;
  machine.kind = MachineKind::cpu;
  Level cache, memory;
  cache.name = "L3", cache.scope = Scope::device, cache.capacity = 32e6;
  memory.name = "DRAM", memory.scope = Scope::device;
  machine.levels = {cache, memory};
  return machine;
}

LabRates rates_of(double cache, double memory, double fp32) {
  LabRates rates;
  rates.read = {cache, memory};
  rates.fp32 = fp32;
  return rates;
}

TEST(LabRates, ReplaceWhatTheMachineHad) {
  System system;
  system.device = two_levels();
  system.device.levels[1].read_bandwidth = 90e9;
  LabRates rates = rates_of(0, 40e9, 2e11);
  rates.barrier = 2e-7;
  const System now = with_rates(system, rates);
  EXPECT_EQ(now.device.levels[1].read_bandwidth, 40e9);
  EXPECT_EQ(now.device.launch.persistent, 2e-7);
  EXPECT_FALSE(now.device.levels[0].read_bandwidth);  // not read
  EXPECT_EQ(now.device.peak_of(DType::fp32), 2e11);
}

TEST(LabRates, DriftOfMemoryAndOfTheCores) {
  const Machine machine = two_levels();
  const LabRates before = rates_of(100e9, 40e9, 2e11);
  EXPECT_EQ(drift_between(machine, before, rates_of(110e9, 43e9, 2.1e11)), "");
  const std::string memory = drift_between(machine, before, rates_of(100e9, 30e9, 2e11));
  EXPECT_NE(memory.find("DRAM"), std::string::npos) << memory;
  EXPECT_NE(memory.find("30"), std::string::npos) << memory;
  EXPECT_NE(drift_between(machine, before, rates_of(60e9, 40e9, 2e11)).find("L3"),
            std::string::npos);
  EXPECT_NE(drift_between(machine, before, rates_of(100e9, 40e9, 1.5e11)).find("fp32"),
            std::string::npos);
  // An experiment that does not touch memory rests on the cores alone.
  EXPECT_EQ(drift_between(machine, before, rates_of(100e9, 30e9, 2e11), false), "");
}

}  // namespace
}  // namespace ridge
