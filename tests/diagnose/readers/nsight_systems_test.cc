#include <gtest/gtest.h>
#include <sqlite3.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/thread_cpu.h"
#include "diagnose/readers/reader.h"

namespace ridge {
namespace {

namespace fs = std::filesystem;

const std::string kKernelSummary =
    "NOTICE: Existing SQLite export found: a.sqlite\n"
    "Processing [a.sqlite] with [/opt/nsys/reports/cuda_gpu_kern_sum.py]...\n"
    "Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name\n"
    "80.0,\"8,000,000\",\"1,000\",8000.0,7000.0,5792,27008,2339.3,\"void gemm<int, 4>(int, T1)\"\n"
    "20.0,2000000,500,4000.0,3000.0,2752,310532,74113.9,rms_norm_kernel\n";

TEST(NsightSystems, KernelSummary) {
  const auto file = read_nsight_systems_csv(kKernelSummary, "a.csv", {});
  ASSERT_TRUE(file && file->profile);
  const KernelProfile& profile = *file->profile;
  EXPECT_EQ(profile.launches, 1500);
  EXPECT_NEAR(profile.kernel_s, 10e-3, 1e-12);
  EXPECT_NEAR(profile.family_s(KernelFamily::gemm), 8e-3, 1e-12);
  EXPECT_NEAR(profile.median_kernel_s, 7e-6, 1e-12);
  EXPECT_EQ(profile.kernels[0].name, "gemm");
  EXPECT_EQ(profile.wall_s, 0);
  EXPECT_EQ(profile.busy_s, 0);
  ASSERT_EQ(file->notes.size(), 1u);
  EXPECT_NE(file->notes[0].find("--wall-time"), std::string::npos);
}

TEST(NsightSystems, StatedWallTime) {
  ReadOptions options;
  options.wall_time_s = 0.04;
  const auto file = read_nsight_systems_csv(kKernelSummary, "a.csv", options);
  EXPECT_EQ(file->profile->wall_s, 0.04);
  EXPECT_NEAR(file->profile->busy_s, 0.01, 1e-12);
  EXPECT_TRUE(file->notes.empty());
}

TEST(NsightSystems, SeveralTablesOfOneFile) {
  const std::string text =
      kKernelSummary +
      "\nProcessing [a.sqlite] with [cuda_api_sum.py]...\n"
      "Time (%),Total Time (us),Num Calls,Avg (us),Med (us),Min (us),Max (us),StdDev (us),Name\n"
      "50.0,1000,10,100,100,1,1,1,cudaGraphLaunch_v10000\n"
      "50.0,1000,300,100,100,1,1,1,cudaLaunchKernel\n"
      "10.0,1000,5,100,100,1,1,1,cudaStreamSynchronize\n\n"
      "Time (%),Total Time (ns),Count,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Operation\n"
      "90.0,3000000,7,1,1,1,1,1,[CUDA memcpy Host-to-Device]\n"
      "10.0,1000,7,1,1,1,1,1,[CUDA memset]\n\n"
      "Total (MB),Count,Avg (MB),Med (MB),Min (MB),Max (MB),StdDev (MB),Operation\n"
      "150.5,7,1,1,1,1,1,[CUDA memcpy Host-to-Device]\n\n"
      "Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Style,"
      "Range\n"
      "90.0,3000000,10,1,1,1,1,1,PushPop,:execute_context_0(0)_generation_32(32)\n";
  const auto file = read_nsight_systems_csv(text, "a.csv", {});
  const KernelProfile& profile = *file->profile;
  EXPECT_EQ(profile.launches, 1500);
  EXPECT_EQ(profile.graph_launches, 10);
  EXPECT_EQ(profile.graph_kernels, 1200);
  EXPECT_NEAR(profile.host_to_device_s, 3e-3, 1e-12);
  EXPECT_NEAR(profile.host_to_device_bytes, 150.5e6, 1e-3);
  EXPECT_NEAR(profile.family_s(KernelFamily::copy), 3.001e-3, 1e-12);
  EXPECT_EQ(profile.steps, 10);
  EXPECT_EQ(profile.decode_tokens, 320);
}

TEST(NsightSystems, OldAndPrintedTables) {
  const auto old = read_nsight_systems_csv(
      "Time(%),Total Time (ns),Instances,Average,Minimum,Maximum,StdDev,Name\n"
      "100.0,5000000,100,50000.0,1,2,3,gemm\n",
      "gpukernsum.csv", {});
  EXPECT_NEAR(old->profile->kernel_s, 5e-3, 1e-12);
  EXPECT_NEAR(old->profile->median_kernel_s, 50e-6, 1e-12);

  const auto printed = read_nsight_systems_csv(
      " ** CUDA GPU Kernel Summary (cuda_gpu_kern_sum):\n\n"
      " Time (%)  Total Time (ns)  Instances  Avg (ns)  Med (ns)  Min (ns)  Max (ns)  StdDev (ns)  "
      "                 Name\n"
      " --------  ---------------  ---------  --------  --------  --------  --------  -----------  "
      "---------------------------\n"
      "     75.0        3,000,000         30   100,000   100,000         1         1          1.0  "
      "void flash_fwd<int, 4>(int)\n"
      "     25.0        1,000,000         10   100,000   100,000         1         1          1.0  "
      "gemm\n",
      "pasted.txt", {});
  ASSERT_TRUE(printed && printed->profile);
  EXPECT_EQ(printed->profile->launches, 40);
  EXPECT_NEAR(printed->profile->family_s(KernelFamily::attention), 3e-3, 1e-12);
}

const std::string kGpuTrace =
    "Start (ns),Duration (ns),CorrId,GrdX,GrdY,GrdZ,BlkX,BlkY,BlkZ,Reg/Trd,StcSMem (MB),"
    "DymSMem (MB),Bytes (MB),Throughput (MB/s),SrcMemKd,DstMemKd,Device,Ctx,GreenCtx,Strm,Name\n"
    "9000200,50000,12,1,1,1,1,1,1,137,0.000,0.007,,,,,NVIDIA H100 80GB HBM3 (0),1,,7,"
    "\"void gemm<int, 4>(int)\"\n"
    "9000000,100000,11,1,1,2304,128,1,1,137,0.000,0.007,,,,,NVIDIA H100 80GB HBM3 (0),1,,7,nccl\n"
    "9120000,10000,13,,,,,,,,,,2.500,250000,Pinned,Device,NVIDIA H100 80GB HBM3 (0),1,,7,"
    "[CUDA memcpy Host-to-Device]\n";

TEST(NsightSystems, GpuTrace) {
  const auto file = read_nsight_systems_csv(kGpuTrace, "trace.csv", {});
  ASSERT_TRUE(file && file->profile);
  const KernelProfile& profile = *file->profile;
  EXPECT_EQ(file->setup.device, "NVIDIA H100 80GB HBM3");
  EXPECT_NEAR(profile.wall_s, 130e-6, 1e-12);
  EXPECT_NEAR(profile.busy_s, 110e-6, 1e-12);
  EXPECT_NEAR(profile.exposed_collective_s, 50e-6, 1e-12);
  EXPECT_NEAR(profile.host_to_device_bytes, 2.5e6, 1e-3);
  EXPECT_NEAR(profile.gap(GapCause::host), 20e-6, 1e-12);
  EXPECT_EQ(profile.launches, 2);
  // With the calls, the gap has a cause.
  const auto calls = read_nsight_systems_csv(
      kGpuTrace +
          "\nStart (ns),Duration (ns),Name,Result,CorrID,Pid,Tid,T-Pri,Thread Name\n"
          "9105000,5000,cudaMemcpyAsync,0,13,1,1,20,python\n",
      "trace.csv", {});
  EXPECT_NEAR(calls->profile->gap(GapCause::launch), 15e-6, 1e-12);
  EXPECT_NEAR(calls->profile->gap(GapCause::host), 5e-6, 1e-12);
}

TEST(NsightSystems, HostileRows) {
  const auto file = read_nsight_systems_csv(
      kKernelSummary +
          "nan,nan,nan,1,1,1,1,1,gemm\n1,-5,2,1,1,1,1,1,gemm\n1,5,1e300,1,1,1,1,1,x\n"
          "1,2\n\"\n,,,,,,,,\n1,,,1,1,1,1,1,gemm\n",
      "bad.csv", {});
  ASSERT_TRUE(file && file->profile);
  EXPECT_EQ(file->profile->launches, 1500);
  EXPECT_NE(file->notes[0].find("rows are no numbers, the first in line 6"), std::string::npos)
      << file->notes[0];
  const auto trace = read_nsight_systems_csv(
      "Start (ns),Duration (ns),CorrId,Device,Name\n5,-1,1,GPU,gemm\n1e30,5,1,GPU,gemm\n"
      "nan,nan,nan,GPU (99999999999999999999),gemm\n0,7,-5,GPU,gemm\n",
      "bad.csv", {});
  EXPECT_EQ(trace->profile->launches, 1);
  // Only calls.
  const auto calls = read_nsight_systems_csv(
      "Time (%),Total Time (ns),Num Calls,Avg (ns),Name\n1,2,3,4,cudaLaunchKernel\n", "c.csv", {});
  ASSERT_TRUE(calls);
  EXPECT_FALSE(calls->profile);
  EXPECT_FALSE(calls->notes.empty());
  EXPECT_FALSE(read_nsight_systems_csv("# HELP Total Time\nDuration\n", "x", {}));
  EXPECT_FALSE(read_nsight_systems_csv("", "x", {}));
}

TEST(NsightSystems, RealPrefillOnRtx5090) {
  const std::string path = std::string(RIDGE_SOURCE_DIR) +
                           "/../shared/evidence/nsys/dsocr_rtx5090_prefill_cuda_gpu_kern_sum.csv";
  if (!fs::exists(path)) GTEST_SKIP() << path << " is not here";
  const auto file = read_nsight_systems_csv(read_file(path, 1 << 20), path, {});
  ASSERT_TRUE(file && file->profile);
  EXPECT_NEAR(file->profile->kernel_s, 65.7e-3, 0.05e-3);
  EXPECT_EQ(file->profile->launches, 6660);
  EXPECT_LT(file->profile->family_s(KernelFamily::other) / file->profile->kernel_s, 0.006);
  EXPECT_GT(file->profile->family_s(KernelFamily::routing), 0);  // torch.topk, once per MoE layer
  EXPECT_NEAR(file->profile->family_s(KernelFamily::gemm) / file->profile->kernel_s, 0.595, 0.001);
}

// A profile as nsys exports it, with the tables that are needed.
class NsightSqlite : public testing::Test {
 protected:
  void SetUp() override {
    folder_ =
        fs::temp_directory_path() / (std::string("ridge_nsight_") +
                                     testing::UnitTest::GetInstance()->current_test_info()->name());
    fs::create_directories(folder_);
    path_ = (folder_ / "a #1?.sqlite").string();
  }
  void TearDown() override { fs::remove_all(folder_); }

  void execute(const std::string& sql) {
    sqlite3* database = nullptr;
    ASSERT_EQ(sqlite3_open(path_.c_str(), &database), SQLITE_OK);
    char* error = nullptr;
    EXPECT_EQ(sqlite3_exec(database, sql.c_str(), nullptr, nullptr, &error), SQLITE_OK) << error;
    sqlite3_free(error);
    sqlite3_close(database);
  }
  void make_profile() {
    execute(R"sql(
      CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT NOT NULL);
      INSERT INTO StringIds VALUES (1, 'void flash_fwd<int>(int)'), (2, 'ncclDevKernel_AllReduce'),
        (3, 'cudaLaunchKernel_v7000'), (4, 'cudaStreamSynchronize_v3020'),
        (5, 'cudaGraphLaunch_v10000'), (6, 'step[DECODE bs=8]');
      CREATE TABLE TARGET_INFO_GPU (id INT, name TEXT);
      INSERT INTO TARGET_INFO_GPU VALUES (0, 'NVIDIA A100-SXM4-80GB'), (1, 'NVIDIA A100-SXM4-80GB');
      CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INT, end INT, deviceId INT, streamId INT,
        correlationId INT, globalPid INT, demangledName INT, graphNodeId INT);
      INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES
        (1000000, 1100000, 0, 7, 21, 16777216 * 9, 1, 0),
        (1150000, 1250000, 0, 7, 22, 16777216 * 9, 2, 33);
      CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INT, end INT, deviceId INT, correlationId INT,
        globalPid INT, bytes INT, copyKind INT);
      INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (1300000, 1310000, 0, 23, 16777216 * 9, 4096, 1);
      CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INT, end INT, globalTid INT,
        correlationId INT, nameId INT);
      INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES
        (990000, 995000, 16777216 * 9 + 9, 21, 3), (1120000, 1140000, 16777216 * 9 + 9, 22, 5),
        (1240000, 1290000, 16777216 * 9 + 9, 24, 4),
        (1255000, 1290000, 16777216 * 5 + 5, 24, 3);
      CREATE TABLE NVTX_EVENTS (start INT, end INT, eventType INT, text TEXT, globalTid INT,
        textId INT);
      INSERT INTO NVTX_EVENTS VALUES (980000, 1290000, 59, NULL, 16777216 * 9 + 9, 6),
        (980000, 1290000, 59, 'step[DECODE bs=8]', 16777216 * 5 + 5, 0), (1, NULL, 34, 'x', 0, 0);
    )sql");
  }

  fs::path folder_;
  std::string path_;
};

TEST_F(NsightSqlite, Profile) {
  make_profile();
  EXPECT_TRUE(is_sqlite(read_file(path_, 1 << 20)));
  const EvidenceFile file = read_nsight_systems_sqlite(path_);
  EXPECT_TRUE(file.notes.empty()) << file.notes[0];
  EXPECT_EQ(file.setup.device, "NVIDIA A100-SXM4-80GB");
  ASSERT_TRUE(file.profile);
  const KernelProfile& profile = *file.profile;
  EXPECT_EQ(profile.devices, 1);
  EXPECT_EQ(profile.launches, 2);
  EXPECT_EQ(profile.graph_launches, 1);
  EXPECT_EQ(profile.graph_kernels, 1);
  EXPECT_NEAR(profile.wall_s, 310e-6, 1e-12);
  EXPECT_NEAR(profile.busy_s, 210e-6, 1e-12);
  EXPECT_NEAR(profile.exposed_collective_s, 100e-6, 1e-12);
  EXPECT_NEAR(profile.family_s(KernelFamily::attention), 100e-6, 1e-12);
  EXPECT_NEAR(profile.host_to_device_bytes, 4096, 1e-9);
  // Before the graph: 20 us of host, its launch and 10 us of latency. Before the copy: 40 us of
  // synchronisation; the launch of another process does not count.
  EXPECT_NEAR(profile.gap(GapCause::launch), 30e-6, 1e-12);
  EXPECT_NEAR(profile.gap(GapCause::synchronize), 40e-6, 1e-12);
  EXPECT_NEAR(profile.gap(GapCause::host), 30e-6, 1e-12);
  EXPECT_EQ(profile.steps, 1);
  EXPECT_EQ(profile.decode_tokens, 8);
  // In memory, as the page sends it.
  const std::string bytes = read_file(path_, 1 << 20);
  const EvidenceFile sent = read_nsight_systems_sqlite({"p.sqlite", bytes, 0});
  EXPECT_EQ(sent.path, "p.sqlite");
  ASSERT_TRUE(sent.profile);
  EXPECT_EQ(sent.profile->wall_s, profile.wall_s);
  EXPECT_EQ(sent.profile->busy_s, profile.busy_s);
  EXPECT_EQ(bytes, read_file(path_, 1 << 20));
  // A header that says that writes went to a log beside the file.
  std::string logged = bytes;
  logged[18] = logged[19] = 2;
  const EvidenceFile of_logged = read_nsight_systems_sqlite({"p.sqlite", logged, 0});
  ASSERT_TRUE(of_logged.profile);
  EXPECT_EQ(of_logged.profile->busy_s, profile.busy_s);
  // The file is only read.
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()), 1);
}

TEST_F(NsightSqlite, GraphsWithoutNodes) {
  make_profile();
  execute(
      "CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE (start INT, end INT, deviceId INT, "
      "globalPid INT, correlationId INT);"
      "INSERT INTO CUPTI_ACTIVITY_KIND_GRAPH_TRACE VALUES (1400000, 1500000, 0, 16777216 * 9, 30)");
  const EvidenceFile file = read_nsight_systems_sqlite(path_);
  ASSERT_EQ(file.notes.size(), 1u);
  EXPECT_NE(file.notes[0].find("--cuda-graph-trace=node"), std::string::npos);
  EXPECT_NEAR(file.profile->busy_s, 310e-6, 1e-12);
}

TEST_F(NsightSqlite, OlderColumnsAndImpossibleTimes) {
  execute(
      "CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT);"
      "INSERT INTO StringIds VALUES (1, 'gemm');"
      "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INT, end INT, deviceId INT, "
      "demangledName INT);"
      "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (10, 20, 0, 1), (50, 40, 0, 1), "
      "(9223372036854775807, -9223372036854775807, 0, 1), ('x', NULL, 'y', 7)");
  const EvidenceFile file = read_nsight_systems_sqlite(path_);
  EXPECT_NE(file.notes[0].find("2 rows have an impossible time"), std::string::npos);
  EXPECT_EQ(file.profile->launches, 2);
}

TEST_F(NsightSqlite, DamagedAndForeignFiles) {
  execute("CREATE TABLE a (b INT)");
  EXPECT_THROW(read_nsight_systems_sqlite(path_), Error);
  EXPECT_THROW(read_nsight_systems_sqlite((folder_ / "none").string()), Error);
  fs::remove(path_);
  std::ofstream(path_) << "SQLite format 3" << '\0' << std::string(5000, 'x');
  EXPECT_THROW(read_nsight_systems_sqlite(path_), Error);
  // A view is not read: its rows could have no end.
  fs::remove(path_);
  execute(
      "CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT);"
      "CREATE VIEW CUPTI_ACTIVITY_KIND_KERNEL AS WITH RECURSIVE n(start) AS (SELECT 1 UNION ALL "
      "SELECT start + 1 FROM n) SELECT start, start + 1 AS end, 0 AS deviceId FROM n");
  EXPECT_FALSE(read_nsight_systems_sqlite(path_).profile);
}

TEST_F(NsightSqlite, StringsNeedNoIndex) {
  // Without one, a query for each kernel took 11 s for 30,000 of them.
  execute(R"sql(
    CREATE TABLE StringIds (id INT, value TEXT);
    CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INT, end INT, demangledName INT);
    WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 30000)
      INSERT INTO StringIds SELECT 30001 - i, 'gemm_' || (30001 - i) FROM n;
    INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL SELECT id * 10, id * 10 + 5, id FROM StringIds;
  )sql");
  const double before = thread_cpu_s();
  const EvidenceFile file = read_nsight_systems_sqlite(path_);
  EXPECT_LT(thread_cpu_s() - before, 1);
  EXPECT_EQ(file.profile->launches, 30000);
  EXPECT_NEAR(file.profile->family_s(KernelFamily::gemm), 30000 * 5e-9, 1e-12);
}

TEST_F(NsightSqlite, OfEqualIdsTheFirstCounts) {
  execute(
      "CREATE TABLE StringIds (id INT, value TEXT);"
      "INSERT INTO StringIds VALUES (1, 'gemm'), (1, 'ncclDevKernel_AllReduce');"
      "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INT, end INT, demangledName INT);"
      "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (10, 20, 1), (30, 40, 2)");
  const EvidenceFile file = read_nsight_systems_sqlite(path_);
  EXPECT_NEAR(file.profile->family_s(KernelFamily::gemm), 10e-9, 1e-15);
  EXPECT_EQ(file.profile->family_s(KernelFamily::collective), 0);
}

// The smallest rows that a table can have need fewer instructions than the limit for their bytes.
TEST_F(NsightSqlite, SmallestRowsAreWithinTheLimit) {
  execute("CREATE TABLE StringIds (id INT, value TEXT); INSERT INTO StringIds VALUES (1, 'gemm');");
  for (const char* table : {"KERNEL", "MEMCPY", "MEMSET", "RUNTIME", "GRAPH_TRACE"}) {
    const std::string name = std::string("CUPTI_ACTIVITY_KIND_") + table;
    execute("CREATE TABLE " + name +
            " (start INT);"
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100000)"
            " INSERT INTO " +
            name + " SELECT NULL FROM n;");
  }
  EXPECT_EQ(read_nsight_systems_sqlite(path_).profile->launches, 200'000);
}

// Pages of the b-tree that all name the next one as each of their children: rows without end in a
// file of 300 KB.
TEST_F(NsightSqlite, RowsWithoutEndAreRefused) {
  execute(R"sql(
    PRAGMA page_size = 512;
    CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT);
    CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INT, end INT);
    WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000)
      INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL SELECT i * 100, i * 100 + 50 FROM n;
  )sql");
  constexpr size_t kPage = 512;
  constexpr char kInner = 5, kLeaf = 13;
  std::string bytes = read_file(path_, 1 << 20);
  const auto write_number = [&](size_t at, size_t number) {
    for (size_t i = 0; i < 4; ++i) bytes[at + i] = char(number >> (8 * (3 - i)));
  };
  size_t root = 0, leaf = 0;
  std::vector<size_t> inner;
  for (size_t page = 2; page <= bytes.size() / kPage; ++page) {
    const char kind = bytes[(page - 1) * kPage];
    if (kind == kInner) (root == 0 ? root : inner.emplace_back()) = page;
    if (kind == kLeaf) leaf = page;
  }
  ASSERT_GE(inner.size(), 4u);
  for (size_t page = root; page != leaf;) {
    const size_t begin = (page - 1) * kPage;
    const size_t next = inner.empty() ? leaf : inner.back();
    if (!inner.empty()) inner.pop_back();
    const auto number = [&](size_t at) {
      return size_t(uint8_t(bytes[begin + at])) << 8 | uint8_t(bytes[begin + at + 1]);
    };
    const size_t cells = number(3);
    for (size_t i = 0; i < cells; ++i) write_number(begin + number(12 + 2 * i), next);
    write_number(begin + 8, next);
    page = next;
  }
  try {
    read_nsight_systems_sqlite({"endless.sqlite", bytes, 0});
    FAIL() << "read";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("endless.sqlite: SQLite: more than"),
              std::string::npos)
        << error.what();
  }
}

TEST_F(NsightSqlite, NothingOfTheSchemaRuns) {
  execute(R"sql(
    CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT);
    CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INT,
      end INT GENERATED ALWAYS AS (length(zeroblob(1000000)) + start),
      deviceId INT AS (abs(start)) STORED);
    INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (10);
    CREATE INDEX i ON CUPTI_ACTIVITY_KIND_KERNEL (hex(start));
    CREATE TRIGGER t AFTER INSERT ON StringIds BEGIN DELETE FROM StringIds; END;
  )sql");
  // Without its end, the kernel's time is impossible.
  EXPECT_THROW(read_nsight_systems_sqlite(path_), Error);
}

TEST_F(NsightSqlite, EveryTruncationIsAnErrorOrANote) {
  make_profile();
  const std::string whole = read_file(path_, 1 << 20);
  for (size_t size = 0; size < whole.size(); size += 1536) {
    fs::remove(path_);
    const std::string part = whole.substr(0, size);
    std::ofstream(path_, std::ios::binary) << part;
    try {
      EXPECT_FALSE(read_nsight_systems_sqlite({"sent", part, 0}).notes.empty()) << size;
    } catch (const Error&) {
    }
    try {
      const EvidenceFile file = read_nsight_systems_sqlite(path_);
      EXPECT_FALSE(file.notes.empty()) << size;
    } catch (const Error&) {
    }
  }
  // One damaged byte in each place.
  for (size_t at = 16; at < whole.size(); at += 397) {
    std::string damaged = whole;
    damaged[at] = char(damaged[at] ^ 0xFF);
    std::ofstream(path_, std::ios::binary) << damaged;
    try {
      read_nsight_systems_sqlite(path_);
    } catch (const Error&) {
    }
  }
}

}  // namespace
}  // namespace ridge
