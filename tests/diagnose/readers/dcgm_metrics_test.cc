#include <fmt/format.h>
#include <gtest/gtest.h>

#include "diagnose/readers/metrics_window.h"
#include "results_support.h"

namespace ridge {
namespace {

using results_test::has_note;
using results_test::observed_value;
using results_test::value_of;
using Q = Quantity;

EvidenceFile observe_device_pages(const std::vector<std::string>& texts, double window_s = 0) {
  std::vector<MetricsPage> pages;
  for (const std::string& text : texts) pages.push_back(parse_metrics(text, "d.prom").front());
  return observe_metrics(pages, window_s).front();
}

std::string gpu_row(const char* field, int gpu, double value, const char* labels = "") {
  return fmt::format(
      "DCGM_FI_{}{{gpu=\"{}\",UUID=\"GPU-{}\",modelName=\"NVIDIA H100\"{}}} {:.20g}\n", field, gpu,
      gpu, labels, value);
}

TEST(DcgmMetrics, UnitsAndDevices) {
  std::string text;
  for (const int gpu : {0, 1}) {
    text += gpu_row("DEV_GPU_UTIL", gpu, 90) + gpu_row("PROF_PIPE_TENSOR_ACTIVE", gpu, 0.4) +
            gpu_row("DEV_POWER_USAGE", gpu, 600 + 40 * gpu) +
            gpu_row("DEV_POWER_MGMT_LIMIT", gpu, 700) + gpu_row("DEV_SM_CLOCK", gpu, 1500) +
            gpu_row("DEV_FB_USED", gpu, 1000) + gpu_row("DEV_FB_FREE", gpu, 3000) +
            gpu_row("PROF_PCIE_TX_BYTES", gpu, 1e9) + gpu_row("PROF_PCIE_RX_BYTES", gpu, 2e9) +
            gpu_row("DEV_CLOCK_THROTTLE_REASONS", gpu, gpu == 0 ? 0x4 : 0x21);
  }
  const EvidenceFile file = observe_device_pages({text});
  EXPECT_EQ(file.kind, "dcgm-exporter metrics");
  EXPECT_EQ(file.setup.device, "NVIDIA H100");
  EXPECT_EQ(file.setup.devices, 2);
  EXPECT_DOUBLE_EQ(value_of(file, Q::gpu_util), 0.9);
  EXPECT_DOUBLE_EQ(value_of(file, Q::tensor_active), 0.4);
  EXPECT_DOUBLE_EQ(value_of(file, Q::power), 620);
  EXPECT_DOUBLE_EQ(value_of(file, Q::power_limit), 700);
  EXPECT_DOUBLE_EQ(value_of(file, Q::sm_clock), 1.5e9);
  EXPECT_DOUBLE_EQ(value_of(file, Q::memory_used), 1000. * (1 << 20));
  EXPECT_DOUBLE_EQ(value_of(file, Q::memory_total), 4000. * (1 << 20));
  EXPECT_DOUBLE_EQ(value_of(file, Q::pcie_bytes), 3e9);
  EXPECT_DOUBLE_EQ(value_of(file, Q::power_throttled), 0.5);
  EXPECT_DOUBLE_EQ(value_of(file, Q::thermal_throttled), 0.5);
  EXPECT_EQ(file.observed.front().trust, Trust::instant);
}

TEST(DcgmMetrics, DevicesThatDifferAreNoted) {
  const EvidenceFile file = observe_device_pages(
      {gpu_row("PROF_GR_ENGINE_ACTIVE", 0, 0.1) + gpu_row("PROF_GR_ENGINE_ACTIVE", 1, 0.9)});
  EXPECT_DOUBLE_EQ(value_of(file, Q::gr_active), 0.5);
  EXPECT_TRUE(has_note(file, "differs between the 2 devices: 10 % to 90 %"));
}

TEST(DcgmMetrics, InstancesAreNeverAddedToTheGpu) {
  const char* first = ",GPU_I_PROFILE=\"1g.5gb\",GPU_I_ID=\"7\"";
  const char* second = ",GPU_I_PROFILE=\"1g.5gb\",GPU_I_ID=\"8\"";
  const std::string instances =
      gpu_row("PROF_DRAM_ACTIVE", 0, 0.8, first) + gpu_row("PROF_DRAM_ACTIVE", 0, 0.4, second);
  EXPECT_DOUBLE_EQ(value_of(observe_device_pages({gpu_row("PROF_DRAM_ACTIVE", 0, 0.2) + instances}),
                            Q::dram_active),
                   0.2);
  const EvidenceFile file = observe_device_pages({instances});
  EXPECT_NEAR(value_of(file, Q::dram_active), 0.6, 1e-12);
  EXPECT_EQ(file.setup.devices, 1);
  EXPECT_NEAR(value_of(observe_device_pages(
                           {gpu_row("PROF_DRAM_ACTIVE", 0, 9223372036854775794.) + instances}),
                       Q::dram_active),
              0.6, 1e-12);
}

TEST(DcgmMetrics, BlankValuesAreMissing) {
  const EvidenceFile file = observe_device_pages(
      {gpu_row("DEV_GPU_TEMP", 0, 9223372036854775794.) +
       gpu_row("DEV_POWER_USAGE", 0, 140737488355328.) + gpu_row("DEV_SM_CLOCK", 0, 2147483632) +
       gpu_row("DEV_GPU_UTIL", 0, 12) + gpu_row("PROF_SM_ACTIVE", 0, 55) +
       "DCGM_FI_PROF_DRAM_ACTIVE{gpu=\"0\"} NaN\n"});
  EXPECT_EQ(file.observed.size(), 1u);
  EXPECT_EQ(value_of(file, Q::gpu_util), 0.12);
  EXPECT_TRUE(has_note(file, "1 values cannot be"));
}

TEST(DcgmMetrics, LinksAsGaugeOrCounter) {
  const std::string types =
      "# TYPE DCGM_FI_PROF_NVLINK_TX_BYTES counter\n# TYPE DCGM_FI_PROF_NVLINK_RX_BYTES counter\n";
  const auto page = [&types](double bytes) {
    return types + gpu_row("PROF_NVLINK_TX_BYTES", 0, bytes) +
           gpu_row("PROF_NVLINK_RX_BYTES", 0, bytes);
  };
  EXPECT_DOUBLE_EQ(value_of(observe_device_pages({page(1e12), page(1.5e12)}, 10), Q::nvlink_bytes),
                   1e11);
  const EvidenceFile one = observe_device_pages({page(1e12)});
  EXPECT_FALSE(observed_value(one, Q::nvlink_bytes));
  EXPECT_TRUE(has_note(one, "two snapshots give its rate"));
  // Declared a counter, and falling: a rate.
  EXPECT_DOUBLE_EQ(value_of(observe_device_pages({page(3e9), page(1e9)}, 10), Q::nvlink_bytes),
                   4e9);
}

TEST(DcgmMetrics, FaultsAndUnknownFields) {
  const EvidenceFile file =
      observe_device_pages({gpu_row("DEV_GPU_UTIL", 0, 1) + gpu_row("DEV_XID_ERRORS", 0, 79) +
                                gpu_row("DEV_POWER_VIOLATION", 0, 5) +
                                gpu_row("DEV_NEW_FIELD", 0, 5) + gpu_row("DEV_MEM_CLOCK", 0, 5),
                            gpu_row("DEV_GPU_UTIL", 0, 1) + gpu_row("DEV_XID_ERRORS", 0, 79) +
                                gpu_row("DEV_POWER_VIOLATION", 0, 9)});
  EXPECT_TRUE(has_note(file, "XID error 79"));
  EXPECT_TRUE(has_note(file, "POWER_VIOLATION rises"));
  EXPECT_EQ(file.unknown, std::vector<std::string>{"DCGM_FI_DEV_NEW_FIELD"});
}

}  // namespace
}  // namespace ridge
