#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "base/error.h"
#include "base/file.h"
#include "diagnose/readers/nsight_numbers.h"
#include "diagnose/readers/reader.h"

namespace ridge {
namespace {

const std::string kDetailsHeader =
    "==PROF== Connected to process 1234 (/usr/bin/python3.11)\n"
    "==PROF== Profiling \"gemv\" - 0: 0%....50%....100% - 9 passes\n"
    "\"ID\",\"Process ID\",\"Process Name\",\"Host Name\",\"Kernel Name\",\"Context\",\"Stream\","
    "\"Block Size\",\"Grid Size\",\"Device\",\"CC\",\"Section Name\",\"Metric Name\","
    "\"Metric Unit\",\"Metric Value\",\"Rule Name\",\"Rule Type\"\n";

std::string details_row(int id, const char* kernel, const char* section, const char* metric,
                        const char* unit, const char* value) {
  return "\"" + std::to_string(id) + "\",\"1234\",\"python\",\"host\",\"" + kernel +
         "\",\"1\",\"7\",\"(256, 1, 1)\",\"(128, 1, 1)\",\"0\",\"9.0\",\"" + section + "\",\"" +
         metric + "\",\"" + unit + "\",\"" + value + "\",\"\",\"\"\n";
}

TEST(NsightCompute, Details) {
  const char *sol = "GPU Speed Of Light Throughput", *memory = "Memory Workload Analysis";
  std::string text = kDetailsHeader;
  text += details_row(0, "void gemv<float, 4>(int)", sol, "Memory Throughput", "%", "60.00");
  text += details_row(0, "void gemv<float, 4>(int)", sol, "DRAM Throughput", "%", "58.50");
  text += details_row(0, "void gemv<float, 4>(int)", sol, "Duration", "us", "10.00");
  text += details_row(0, "void gemv<float, 4>(int)", sol, "Compute (SM) Throughput", "%", "20.5");
  text += details_row(0, "void gemv<float, 4>(int)", memory, "Memory Throughput", "Gbyte/s",
                      "1,500.00");
  text += details_row(0, "void gemv<float, 4>(int)", "Occupancy", "Achieved Occupancy", "%", "15");
  text += details_row(0, "void gemv<float, 4>(int)", "Launch", "Waves Per SM", "", "0.97");
  text += details_row(0, "void gemv<float, 4>(int)", "X", "flop_count_hp.sum", "", "n/a");
  text += details_row(1, "void gemv<float, 4>(int)", sol, "Memory Throughput", "%", "90.00");
  text += details_row(1, "void gemv<float, 4>(int)", sol, "Duration", "ms", "0.03");
  text += details_row(1, "void gemv<float, 4>(int)", memory, "Memory Throughput", "Tbyte/s", "2");
  text += details_row(2, "rms_norm_kernel", sol, "Duration", "usecond", "5");
  const auto file = read_nsight_compute(text, "a.csv");
  ASSERT_TRUE(file && file->profile);
  const KernelProfile& profile = *file->profile;
  EXPECT_TRUE(profile.serialized);
  EXPECT_EQ(profile.launches, 3);
  EXPECT_NEAR(profile.kernel_s, 45e-6, 1e-12);
  EXPECT_EQ(profile.wall_s, 0);
  ASSERT_EQ(profile.kernels.size(), 2u);
  const KernelTime& gemv = profile.kernels[0];
  EXPECT_EQ(gemv.name, "gemv");
  EXPECT_EQ(gemv.family, KernelFamily::gemm);
  EXPECT_EQ(gemv.launches, 2);
  EXPECT_NEAR(gemv.seconds, 40e-6, 1e-12);
  EXPECT_NEAR(*gemv.dram_bytes, 1.5e12 * 10e-6 + 2e12 * 30e-6, 1);
  EXPECT_NEAR(*gemv.memory_share, (0.6 * 10 + 0.9 * 30) / 40, 1e-9);
  EXPECT_NEAR(*gemv.dram_share, 0.585, 1e-9);
  EXPECT_NEAR(*gemv.compute_share, 0.205, 1e-9);
  EXPECT_NEAR(*gemv.occupancy, 0.15, 1e-9);
  EXPECT_NEAR(*gemv.waves, 0.97, 1e-9);
  EXPECT_FALSE(gemv.flops);
  EXPECT_FALSE(gemv.tensor_share);
  EXPECT_NEAR(profile.family_s(KernelFamily::norm), 5e-6, 1e-12);
}

TEST(NsightCompute, RawPage) {
  const std::string text =
      "\"ID\",\"Process ID\",\"Kernel Name\",\"Context\",\"Device\",\"CC\","
      "\"device__attribute_display_name\",\"dram__bytes_read.sum\",\"dram__bytes_write.sum\","
      "\"gpu__time_duration.sum\",\"sm__throughput.avg.pct_of_peak_sustained_elapsed\","
      "\"gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed\","
      "\"sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active\","
      "\"sm__ops_path_tensor_src_bf16_dst_fp32.sum\","
      "\"sm__sass_thread_inst_executed_op_ffma_pred_on.sum\"\n"
      "\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"Mbyte\",\"Kbyte\",\"us\",\"%\",\"%\",\"%\",\"\","
      "\"inst\"\n"
      "\"0\",\"1\",\"nvjet_hsh_128\",\"1\",\"0\",\"9.0\",\"NVIDIA H100 PCIe\",\"16.50\",\"500\","
      "\"20.00\",\"80\",\"31.5\",\"75.5\",\"4,000,000\",\"1,000\"\n"
      "\"1\",\"1\",\"nvjet_hsh_128\",\"1\",\"0\",\"9.0\",\"NVIDIA H100 PCIe\",\"16.50\",\"500\","
      "\"20.00\",\"80\",\"31.5\",\"75.5\",\"4,000,000\",\"1,000\"\n";
  const auto file = read_nsight_compute(text, "raw.csv");
  ASSERT_TRUE(file && file->profile);
  EXPECT_EQ(file->setup.device, "NVIDIA H100 PCIe");
  ASSERT_EQ(file->profile->kernels.size(), 1u);
  const KernelTime& kernel = file->profile->kernels[0];
  EXPECT_EQ(kernel.launches, 2);
  EXPECT_NEAR(kernel.seconds, 40e-6, 1e-12);
  EXPECT_NEAR(*kernel.dram_bytes, 2 * 17e6, 1);
  EXPECT_NEAR(*kernel.flops, 2 * 4'002'000.0, 1e-3);
  EXPECT_NEAR(*kernel.compute_share, 0.8, 1e-9);
  EXPECT_NEAR(*kernel.dram_share, 0.315, 1e-9);
  EXPECT_NEAR(*kernel.memory_share, 0.315, 1e-9);  // the page has no other
  EXPECT_NEAR(*kernel.tensor_share, 0.755, 1e-9);
}

TEST(NsightCompute, NumbersOfAnotherLocale) {
  const char* sol = "GPU Speed Of Light Throughput";
  std::string text = kDetailsHeader;
  text += details_row(0, "gemv", sol, "Memory Throughput", "%", "65,77");
  text += details_row(0, "gemv", sol, "Elapsed Cycles", "cycle", "27.595.520");
  text += details_row(0, "gemv", sol, "Duration", "ns", "18.340");
  text += details_row(0, "gemv", "X", "dram__bytes.sum", "byte", "17.571.328");
  const auto file = read_nsight_compute(text, "de.csv");
  const KernelTime& kernel = file->profile->kernels[0];
  EXPECT_NEAR(*kernel.memory_share, 0.6577, 1e-9);
  EXPECT_NEAR(kernel.seconds, 18.34e-6, 1e-12);
  EXPECT_NEAR(*kernel.dram_bytes, 17571328, 1e-3);
}

TEST(NsightCompute, SummaryPerKernel) {
  const std::string text =
      "\"Process ID\",\"Process Name\",\"Host Name\",\"Kernel Name\",\"Block Size\",\"Grid Size\","
      "\"Device\",\"CC\",\"Invocations\",\"Section Name\",\"Metric Name\",\"Metric Unit\","
      "\"Minimum\",\"Maximum\",\"Average\"\n"
      "\"1\",\"p\",\"h\",\"gemm_a\",\"(1, 1, 1)\",\"(1, 1, 1)\",\"0\",\"8.0\",\"12\",\"S\","
      "\"Duration\",\"us\",\"1.0\",\"3.0\",\"2.0\"\n"
      "\"1\",\"p\",\"h\",\"gemm_b\",\"(1, 1, 1)\",\"(1, 1, 1)\",\"0\",\"8.0\",\"3\",\"S\","
      "\"Duration\",\"us\",\"1.0\",\"3.0\",\"4.0\"\n";
  const auto file = read_nsight_compute(text, "summary.csv");
  EXPECT_EQ(file->profile->launches, 15);
  EXPECT_NEAR(file->profile->kernel_s, 36e-6, 1e-12);
}

TEST(NsightCompute, PrintedPage) {
  const std::string text =
      "==PROF== Disconnected from process 7\n"
      "[7] python3.11@127.0.0.1\n"
      "  void gemv2T_kernel_val<int, float>(T1) (1024, 1, 1)x(128, 1, 1), Context 1, Stream 7, "
      "Device 0, CC 8.6\n"
      "    Section: GPU Speed Of Light Throughput\n"
      "    ----------------------- ----------- ------------\n"
      "    Metric Name             Metric Unit Metric Value\n"
      "    ----------------------- ----------- ------------\n"
      "    Elapsed Cycles                cycle       36,383\n"
      "    Memory Throughput                 %        91.20\n"
      "    DRAM Throughput                   %        91.20\n"
      "    Duration                         us        18.34\n"
      "    Compute (SM) Throughput           %        22.47\n"
      "    ----------------------- ----------- ------------\n"
      "    INF   This workload is utilizing greater than 80.0% of the available memory\n\n"
      "    Section: Launch Statistics\n"
      "    Waves Per SM                                0.50\n";
  const auto file = read_nsight_compute(text, "ncu.txt");
  ASSERT_TRUE(file && file->profile);
  const KernelTime& kernel = file->profile->kernels[0];
  EXPECT_EQ(kernel.name, "gemv2T_kernel_val");
  EXPECT_NEAR(kernel.seconds, 18.34e-6, 1e-12);
  EXPECT_NEAR(*kernel.memory_share, 0.912, 1e-9);
  EXPECT_NEAR(*kernel.waves, 0.5, 1e-9);
}

TEST(NsightCompute, HostileRows) {
  std::string text = kDetailsHeader;
  for (const char* value : {"nan", "inf", "-5", "", "1e999", "n/a", "999999", "1,2,3.4.5"})
    text += details_row(0, "gemv", "S", "Memory Throughput", "%", value);
  text += "\"0\",\"1234\"\n\"\n,,,,,,,,,,,,,,,,,,,,\n\"unterminated\n";
  const auto file = read_nsight_compute(text, "bad.csv");
  ASSERT_TRUE(file && file->profile);
  EXPECT_FALSE(file->profile->kernels[0].memory_share);
  EXPECT_EQ(file->profile->kernel_s, 0);
  EXPECT_FALSE(file->notes.empty());

  EXPECT_THROW(read_nsight_compute(kDetailsHeader, "empty.csv"), Error);
  EXPECT_FALSE(read_nsight_compute("Time (%),Total Time (ns)\n", "nsys.csv"));
  EXPECT_FALSE(read_nsight_compute("", "x"));
}

TEST(NsightNumbers, Units) {
  EXPECT_DOUBLE_EQ(*nsight_unit("Mbyte"), 1e6);
  EXPECT_DOUBLE_EQ(*nsight_unit("nsecond"), 1e-9);
  EXPECT_DOUBLE_EQ(*nsight_unit("ms"), 1e-3);
  EXPECT_DOUBLE_EQ(*nsight_unit("Gbyte/second"), 1e9);
  EXPECT_DOUBLE_EQ(*nsight_unit("byte/s"), 1);
  EXPECT_DOUBLE_EQ(*nsight_unit("MiB"), 1048576);
  EXPECT_FALSE(nsight_unit("register/thread"));
}

TEST(NsightNumbers, FormatIsTheFiles) {
  NumberFormat plain, english, continental;
  for (const char* text : {"36,383", "13.77", "1,234,567.5"}) english.learn(text);
  for (const char* text : {"36.383", "13,77", "1.234.567,5"}) continental.learn(text);
  EXPECT_EQ(english.parse("36,383"), 36383);
  EXPECT_EQ(english.parse("36.383"), 36.383);
  EXPECT_EQ(continental.parse("36.383"), 36383);
  EXPECT_EQ(continental.parse("36,383"), 36.383);
  EXPECT_EQ(plain.parse("2,035"), 2035);
  EXPECT_EQ(plain.parse("-1.5e3"), -1500);
  EXPECT_FALSE(plain.parse("12 us"));
  EXPECT_FALSE(plain.parse(std::string(1000, '1')));
}

TEST(NsightCompute, RealGemvOnRtx5090) {
  const std::string path =
      std::string(RIDGE_SOURCE_DIR) + "/../shared/evidence/ncu/dsocr_rtx5090_k0002.details.csv";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is not here";
  const auto file = read_nsight_compute(read_file(path, 1 << 20), path);
  ASSERT_TRUE(file && file->profile);
  EXPECT_TRUE(file->notes.empty());
  EXPECT_EQ(file->setup.device, "");  // the file has only its number
  ASSERT_EQ(file->profile->kernels.size(), 1u);
  const KernelTime& kernel = file->profile->kernels[0];
  EXPECT_EQ(kernel.family, KernelFamily::gemm);
  EXPECT_NEAR(kernel.seconds, 18.34e-6, 1e-10);
  EXPECT_NEAR(*kernel.dram_bytes, 17.57e6, 1);
  EXPECT_NEAR(*kernel.dram_share, 0.5436, 1e-9);
  EXPECT_NEAR(*kernel.memory_share, 0.5436, 1e-9);
  EXPECT_NEAR(*kernel.compute_share, 0.2247, 1e-9);
  EXPECT_NEAR(*kernel.occupancy, 0.1523, 1e-9);
}

}  // namespace
}  // namespace ridge
