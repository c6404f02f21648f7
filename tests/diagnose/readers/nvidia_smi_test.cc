#include <gtest/gtest.h>

#include "base/error.h"
#include "diagnose/readers/reader.h"
#include "results_support.h"

namespace ridge {
namespace {

using results_test::has_note;
using results_test::observed_value;
using results_test::value_of;
using Q = Quantity;

EvidenceFile read_smi(const std::string& text) {
  const auto file = read_nvidia_smi(text, "smi.csv");
  EXPECT_TRUE(file);
  return file.value_or(EvidenceFile{});
}

TEST(NvidiaSmi, QueryWithUnits) {
  const EvidenceFile file = read_smi(
      "timestamp, name, utilization.gpu [%], utilization.memory [%], memory.used [MiB], "
      "memory.total [MiB], power.draw [W], power.limit [W], temperature.gpu, clocks.current.sm "
      "[MHz], clocks.max.sm [MHz], clocks_throttle_reasons.active\r\n"
      "2024/10/30 18:42:33.000, NVIDIA A10G, 80 %, 60 %, 5000 MiB, 23028 MiB, 140.00 W, 150.00 W, "
      "60, 1500 MHz, 1710 MHz, 0x0000000000000004\r\n"
      "2024/10/30 18:42:35.500, NVIDIA A10G, 100 %, 60 %, 6000 MiB, 23028 MiB, 150.00 W, 150.00 W, "
      "[N/A], 1400 MHz, 1710 MHz, 0x0000000000000000\r\n");
  EXPECT_EQ(file.kind, "nvidia-smi query");
  EXPECT_EQ(file.setup.device, "NVIDIA A10G");
  EXPECT_EQ(file.setup.devices, 1);
  EXPECT_DOUBLE_EQ(value_of(file, Q::gpu_util), 0.9);
  EXPECT_DOUBLE_EQ(value_of(file, Q::memory_used), 5500. * (1 << 20));
  EXPECT_DOUBLE_EQ(value_of(file, Q::memory_total), 23028. * (1 << 20));
  EXPECT_DOUBLE_EQ(value_of(file, Q::power), 145);
  EXPECT_DOUBLE_EQ(value_of(file, Q::power_limit), 150);
  EXPECT_DOUBLE_EQ(value_of(file, Q::temperature), 60);
  EXPECT_DOUBLE_EQ(value_of(file, Q::sm_clock), 1.45e9);
  EXPECT_DOUBLE_EQ(value_of(file, Q::max_sm_clock), 1.71e9);
  EXPECT_DOUBLE_EQ(value_of(file, Q::power_throttled), 0.5);
  EXPECT_DOUBLE_EQ(value_of(file, Q::thermal_throttled), 0);
  EXPECT_EQ(file.window, "2 samples of 1 device over 2.50 s");
  EXPECT_EQ(file.observed[0].trust, Trust::instant);
  EXPECT_EQ(file.observed[0].window_s, 2.5);
}

TEST(NvidiaSmi, QueryWithoutUnitsInAnyOrderOfColumns) {
  std::string text =
      "$ nvidia-smi --query-gpu=... --format=csv,nounits -l 1\n"
      "clocks_event_reasons.sw_power_cap, power.draw [W], index, utilization.gpu [%], "
      "clocks_event_reasons.hw_thermal_slowdown, fan.speed [%]\n";
  for (int i = 0; i < 6; ++i) {
    text +=
        "Not Active, 300.5, 0, 96, Active, [Not Supported]\nActive, 299.5, 1, 98, Not Active, -\n";
  }
  const EvidenceFile file = read_smi(text);
  EXPECT_EQ(file.setup.devices, 2);
  EXPECT_DOUBLE_EQ(value_of(file, Q::power), 300);
  EXPECT_DOUBLE_EQ(value_of(file, Q::gpu_util), 0.97);
  EXPECT_DOUBLE_EQ(value_of(file, Q::power_throttled), 0.5);
  EXPECT_DOUBLE_EQ(value_of(file, Q::thermal_throttled), 0.5);
  EXPECT_EQ(file.observed[0].trust, Trust::window);
  EXPECT_TRUE(has_note(file, "differs between the 2 devices"));
}

TEST(NvidiaSmi, DevicesWithoutAColumnAreToldApartByTheirOrder) {
  const EvidenceFile file = read_smi(
      "timestamp, utilization.gpu [%]\n2024/10/30 18:42:33.189, 10 %\n2024/10/30 18:42:33.189, 90 "
      "%\n"
      "2024/10/30 18:42:34.189, 10 %\n2024/10/30 18:42:34.189, 90 %\n");
  EXPECT_EQ(file.setup.devices, 2);
  EXPECT_DOUBLE_EQ(value_of(file, Q::gpu_util), 0.5);
}

TEST(NvidiaSmi, IdleTailsAreNotedAndStayInTheMeans) {
  std::string text = "utilization.gpu [%], power.draw [W]\n";
  for (int i = 0; i < 4; ++i) text += "0 %, 60 W\n";
  for (int i = 0; i < 4; ++i) text += "80 %, 300 W\n";
  for (int i = 0; i < 2; ++i) text += "0 %, 60 W\n";
  const EvidenceFile file = read_smi(text);
  EXPECT_DOUBLE_EQ(value_of(file, Q::gpu_util), 0.32);
  EXPECT_TRUE(has_note(file, "6 of 10 samples have no utilisation"));
  EXPECT_FALSE(
      has_note(read_smi("utilization.gpu [%], power.draw [W]\n0 %, 1 W\n0 %, 1 W\n"), "of"));
}

TEST(NvidiaSmi, Dmon) {
  const EvidenceFile file = read_smi(
      "# gpu    pwr  gtemp  mtemp     sm    mem    enc    dec   pclk  pviol  tviol     fb  rxpci  "
      "txpci\n"
      "# Idx      W      C      C      %      %      %      %    MHz      %   bool     MB   MB/s   "
      "MB/s\n"
      "    0    300     60      -     80     50      0      0   1500     20      0   1000    100   "
      " 200\n"
      "    1    320     62      -     90     50      0      0   1600     40      1   1000    100   "
      " 200\n"
      "# gpu    pwr  gtemp  mtemp     sm    mem    enc    dec   pclk  pviol  tviol     fb  rxpci  "
      "txpci\n"
      "# Idx      W      C      C      %      %      %      %    MHz      %   bool     MB   MB/s   "
      "MB/s\n"
      "    0    300     60      -     80     50      0      0   1500     20      0   1000    100   "
      " 200\n"
      "    1    320      -      -     90     50      0      0   1600     40      1   1000    100   "
      " 200\n"
      "    0    30\n");
  EXPECT_EQ(file.kind, "nvidia-smi dmon");
  EXPECT_EQ(file.setup.devices, 2);
  EXPECT_DOUBLE_EQ(value_of(file, Q::gpu_util), 0.85);
  EXPECT_DOUBLE_EQ(value_of(file, Q::power), 310);
  EXPECT_DOUBLE_EQ(value_of(file, Q::temperature), 61);
  EXPECT_DOUBLE_EQ(value_of(file, Q::sm_clock), 1.55e9);
  EXPECT_NEAR(value_of(file, Q::power_throttled), 0.3, 1e-12);
  EXPECT_DOUBLE_EQ(value_of(file, Q::thermal_throttled), 0.5);
  EXPECT_DOUBLE_EQ(value_of(file, Q::pcie_bytes), 3e8);
  EXPECT_TRUE(has_note(file, "line 9: 2 columns, not 14"));
}

TEST(NvidiaSmi, DmonWithDates) {
  const EvidenceFile file = read_smi(
      "#Date       Time        gpu   pwr    sm\n#YYYYMMDD   HH:MM:SS    Idx     W     %\n"
      " 20241030   18:42:33      0   200    50\n 20241030   18:42:34      0   210    60\n");
  EXPECT_DOUBLE_EQ(value_of(file, Q::power), 205);
  EXPECT_DOUBLE_EQ(value_of(file, Q::gpu_util), 0.55);
  EXPECT_EQ(file.setup.devices, 1);
}

TEST(NvidiaSmi, Table) {
  const EvidenceFile file = read_smi(
      "Wed Oct 30 18:42:33 2024\n"
      "+---------------------------------------------------------------------------------------+\n"
      "| NVIDIA-SMI 535.129.03             Driver Version: 535.129.03   CUDA Version: 12.2     |\n"
      "|-----------------------------------------+----------------------+----------------------+\n"
      "| GPU  Name                 Persistence-M | Bus-Id        Disp.A | Volatile Uncorr. ECC |\n"
      "| Fan  Temp   Perf          Pwr:Usage/Cap |         Memory-Usage | GPU-Util  Compute M. |\n"
      "|=========================================+======================+======================|\n"
      "|   0  NVIDIA A100-SXM4-80GB          On  | 00000000:07:00.0 Off |                    0 |\n"
      "| N/A   35C    P0             370W / 400W |  12345MiB / 81920MiB |     97%      Default |\n"
      "|                                         |                      |             Disabled |\n"
      "|   1  NVIDIA A100-SXM4-80GB          On  | 00000000:0F:00.0 Off |                    0 |\n"
      "| N/A   45C    P0             390W / 400W |  12347MiB / 81920MiB |     99%      Default "
      "|\n");
  EXPECT_EQ(file.kind, "nvidia-smi table");
  EXPECT_EQ(file.setup.device, "NVIDIA A100-SXM4-80GB");
  EXPECT_EQ(file.setup.devices, 2);
  EXPECT_DOUBLE_EQ(value_of(file, Q::temperature), 40);
  EXPECT_DOUBLE_EQ(value_of(file, Q::power), 380);
  EXPECT_DOUBLE_EQ(value_of(file, Q::power_limit), 400);
  EXPECT_DOUBLE_EQ(value_of(file, Q::memory_used), 12346. * (1 << 20));
  EXPECT_DOUBLE_EQ(value_of(file, Q::memory_total), 81920. * (1 << 20));
  EXPECT_DOUBLE_EQ(value_of(file, Q::gpu_util), 0.98);
}

TEST(NvidiaSmi, OtherTextIsNotRecognised) {
  for (const char* text : {"", "a,b\n1,2\n", "{\"power.draw\": 3}", "# HELP gpu sm\n",
                           "Time (%),Total Time (ns),Instances,Name\n50,1000,2,kernel\n",
                           "INFO 11-16 10:00:00 Avg prompt throughput: 1.0 tokens/s\n"}) {
    EXPECT_FALSE(read_nvidia_smi(text, "x")) << text;
  }
}

TEST(NvidiaSmi, RecognisedWithoutAValueIsAnError) {
  EXPECT_THROW(read_nvidia_smi("utilization.gpu [%], power.draw [W]\n", "x"), Error);
  EXPECT_THROW(read_nvidia_smi("utilization.gpu [%], power.draw [W]\n[N/A], [N/A]\n", "x"), Error);
  EXPECT_THROW(read_nvidia_smi("# gpu pwr sm\n# Idx W %\n", "x"), Error);
  EXPECT_THROW(read_nvidia_smi("| NVIDIA-SMI 535 | x |\n", "x"), Error);
}

TEST(NvidiaSmi, ValuesThatCannotBeAreDropped) {
  const EvidenceFile file =
      read_smi("utilization.gpu [%], power.draw [W]\n400 %, -3 W\n50 %, nan\n60 %, 1e999 W\n");
  EXPECT_DOUBLE_EQ(value_of(file, Q::gpu_util), 0.55);
  EXPECT_FALSE(observed_value(file, Q::power));
  EXPECT_TRUE(has_note(file, "2 values cannot be"));
}

}  // namespace
}  // namespace ridge
