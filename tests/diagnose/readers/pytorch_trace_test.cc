#include "diagnose/readers/pytorch_trace.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

#include "base/error.h"
#include "diagnose/readers/reader.h"

namespace ridge {
namespace {

namespace fs = std::filesystem;

EvidenceFile read_trace_text(std::string_view text, size_t longest_value = 1 << 16,
                             size_t piece = 1 << 20) {
  JsonStream stream(
      [&](char* into, size_t size) {
        const size_t count = std::min({size, piece, text.size()});
        std::memcpy(into, text.data(), count);
        text.remove_prefix(count);
        return count;
      },
      longest_value);
  return read_pytorch_trace_events(stream, "trace.json");
}

// Two kernels with a launch each, an annotation, a copy.
const std::string kSmallTrace = R"json({
  "schemaVersion": 1,
  "deviceProperties": [
    {"id": 0, "name": "NVIDIA H100 80GB HBM3", "totalGlobalMem": 85018279936, "numSms": 132}
  ],
  "distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 4},
  "traceEvents": [
  {"ph": "M", "name": "process_name", "pid": 0, "args": {"name": "python \"x\" {"}},
  {"ph": "X", "cat": "user_annotation", "name": "step[DECODE bs=32]", "pid": 1, "tid": 1,
   "ts": 1689861288825000.000, "dur": 900.5, "args": {}},
  {"ph": "X", "cat": "cpu_op", "name": "vllm::unified_attention", "pid": 1, "tid": 1,
   "ts": 1689861288825001.000, "dur": 3},
  {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1,
   "ts": 1689861288825010.000, "dur": 5.000, "args": {"cbid": 211, "correlation": 11}},
  {"ph": "X", "cat": "kernel", "name": "void flash::flash_fwd_kernel<1>()", "pid": 0, "tid": 7,
   "ts": 1689861288825020.125, "dur": 30.250,
   "args": {"device": 0, "stream": 7, "correlation": 11, "grid": [8, 12, 1]}},
  {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1,
   "ts": 1689861288825090.000, "dur": 5.000, "args": {"cbid": 211, "correlation": 12}},
  {"ph": "X", "cat": "kernel", "name": "nvjet_tst_64x8", "pid": 0, "tid": 7,
   "ts": 1689861288825100.375, "dur": 10.000,
   "args": {"device": 0, "stream": 7, "correlation": 12}},
  {"ph": "X", "cat": "gpu_memcpy", "name": "Memcpy HtoD (Pinned -> Device)", "pid": 0, "tid": 7,
   "ts": 1689861288825111.375, "dur": 2.000,
   "args": {"device": 0, "stream": 7, "correlation": 13, "bytes": 4096}},
  {"ph": "s", "id": 11, "pid": 1, "tid": 1, "ts": 1, "cat": "ac2g", "name": "ac2g"}
  ],
  "traceName": "/tmp/a.json", "with_stack": 1
})json";

TEST(PyTorchTrace, Small) {
  const EvidenceFile file = read_trace_text(kSmallTrace);
  EXPECT_EQ(file.kind, "PyTorch trace");
  EXPECT_TRUE(file.notes.empty()) << file.notes[0];
  EXPECT_EQ(file.setup.device, "NVIDIA H100 80GB HBM3");
  EXPECT_EQ(file.setup.engine, "vllm");
  EXPECT_EQ(file.setup.devices, 4);
  ASSERT_TRUE(file.profile);
  const KernelProfile& profile = *file.profile;
  EXPECT_NEAR(profile.wall_s, 93.25e-6, 1e-12);
  EXPECT_NEAR(profile.busy_s, 42.25e-6, 1e-12);
  EXPECT_EQ(profile.launches, 2);
  EXPECT_NEAR(profile.family_s(KernelFamily::attention), 30.25e-6, 1e-12);
  EXPECT_NEAR(profile.family_s(KernelFamily::gemm), 10e-6, 1e-12);
  EXPECT_NEAR(profile.family_s(KernelFamily::copy), 2e-6, 1e-12);
  EXPECT_NEAR(profile.gap(GapCause::host), 39.625e-6, 1e-12);
  EXPECT_NEAR(profile.gap(GapCause::launch), 10.375e-6, 1e-12);
  EXPECT_EQ(profile.host_to_device_bytes, 4096);
  EXPECT_EQ(profile.steps, 1);
  EXPECT_EQ(profile.decode_tokens, 32);
  EXPECT_TRUE(profile.with_stack);
}

// However the text is cut into pieces, and however small the buffer is.
TEST(PyTorchTrace, PiecesDoNotMatter) {
  for (size_t piece = 1; piece < 70; ++piece)
    for (size_t longest : {300, 500, 1 << 16}) {
      const EvidenceFile file = read_trace_text(kSmallTrace, longest, piece);
      ASSERT_TRUE(file.profile);
      EXPECT_NEAR(file.profile->busy_s, 42.25e-6, 1e-12);
      EXPECT_EQ(file.setup.device, "NVIDIA H100 80GB HBM3");
    }
}

TEST(PyTorchTrace, EventsThatAreTooLongAreNamed) {
  const EvidenceFile file = read_trace_text(kSmallTrace, 190);
  ASSERT_EQ(file.notes.size(), 1u);
  EXPECT_NE(file.notes[0].find("too long to read, the first at byte "), std::string::npos);
  EXPECT_EQ(file.profile->launches, 1);
}

TEST(PyTorchTrace, OldNamesAndStrings) {
  const EvidenceFile file = read_trace_text(R"json([
    {"name": "ampere_sgemm_128x64", "ph": "X", "args": {"device": 1, "correlation": 3},
     "dur": "7", "ts": "1600000000000001", "cat": "Kernel"},
    {"name": "Memset (Device)", "ph": "X", "dur": 1, "ts": 1600000000000009, "cat": "Memset"},
    {"name": "cudaLaunchKernel", "ph": "X", "dur": 2, "ts": 1.6e15, "cat": "Runtime",
     "args": {"correlation": 3}}])json");
  ASSERT_TRUE(file.profile);
  EXPECT_EQ(file.profile->devices, 2);  // the fill names no device
  EXPECT_NEAR(2 * file.profile->kernel_s, 8e-6, 1e-12);
  EXPECT_EQ(file.profile->kernels[0].name, "ampere_sgemm_128x64");
}

TEST(PyTorchTrace, EveryTruncationGivesWhatItHas) {
  size_t read = 0;
  for (size_t end = 0; end < kSmallTrace.size(); ++end) {
    try {
      const EvidenceFile file = read_trace_text(kSmallTrace.substr(0, end));
      ++read;
      ASSERT_FALSE(file.notes.empty()) << end;
      EXPECT_NE(file.notes[0].find("ends too early, at byte "), std::string::npos) << file.notes[0];
    } catch (const Error&) {
      EXPECT_LT(end, 500u);  // no event yet
    }
  }
  EXPECT_GT(read, kSmallTrace.size() / 2);
  EXPECT_EQ(read_trace_text(kSmallTrace.substr(0, kSmallTrace.find("nvjet"))).profile->launches, 1);
}

TEST(PyTorchTrace, DamagedEventsAreCountedAndTheRestIsRead) {
  const EvidenceFile file = read_trace_text(R"({"traceEvents": [
    {"cat": "kernel", "name": "gemm", "ts": NaN, "dur": 1},
    {"cat": "kernel", "name": "gemm", "ts": 1, "dur": -5},
    {"cat": "kernel", "name": "gemm", "ts": 1e300, "dur": 5},
    {"cat": "kernel", "name": "gemm", "ts": 99999999999999999999999, "dur": 5},
    {"cat": "kernel", "name": "gemm", "ts": {}, "dur": 5},
    {"cat": "kernel", "name": "gemm", "ts": 5},
    {"cat": "kernel"},
    {"cat": 7, "name": [], "ts": "x"},
    {"cat": "kernel", "name": "gemm", "ts": 5, "dur": 5, "args": [1]},
    {"cat": "kernel", "ts": 12, "dur": 5, "args": {"device": "x", "correlation": -1}},
    {"cat": "kernel", "name": "gemm\q", "ts": 20, "dur": 5},
    "a string", 17, [[]], {]},
    {"cat": "kernel", "name": "gemm", "ts": 30, "dur": 5, "pid": 0}
    ]})");
  ASSERT_TRUE(file.profile);
  EXPECT_EQ(file.profile->launches, 3);
  EXPECT_NEAR(file.profile->kernel_s, 15e-6, 1e-12);
  ASSERT_EQ(file.notes.size(), 3u);
  EXPECT_NE(file.notes[0].find("are no valid JSON, the first at byte "), std::string::npos);
  EXPECT_NE(file.notes[1].find("7 events have no time or an impossible one"), std::string::npos)
      << file.notes[1];
  EXPECT_NE(file.notes[2].find("calls are not in this trace"), std::string::npos);
}

// Fields that are damaged inside an object end that event, whatever their brackets and quotes say.
TEST(PyTorchTrace, DamagedFieldsDoNotLeadIntoOtherEvents) {
  const std::string kernel = R"({"cat": "kernel", "name": "gemm", "ts": 5, "dur": 5})";
  for (
      const char* damaged :
      {R"({"cat": "cuda_runtime", "ts": 2, "dur": 5, "args": {"correlation":  "args": {"device": 1}}})",
       R"({"cat": "kernel", "ts": 1, "dur": 1, "args": {"device":}})",
       R"({"cat": "kernel", "ts": 1, "dur": 1, g"t"rs: w"device": 0})",
       R"({"cat": "kernel" "ts": 1, "dur": 1})", R"({"cat": "kernel", "ts": [1, 2}, "dur": 1})",
       R"({"cat": "kernel", "ts": 1,})", R"({"cat": "kernel", 7: 1})"}) {
    const EvidenceFile file = read_trace_text("[" + std::string(damaged) + ", " + kernel + "]");
    ASSERT_TRUE(file.profile) << damaged;
    EXPECT_EQ(file.profile->launches, 1) << damaged;
    ASSERT_FALSE(file.notes.empty()) << damaged;
    EXPECT_NE(file.notes[0].find("1 events are no valid JSON, the first at byte 1"),
              std::string::npos)
        << damaged << ": " << file.notes[0];
  }
}

TEST(PyTorchTrace, DeepNesting) {
  const std::string deep(1'000'000, '['), close(1'000'000, ']');
  const std::string kernel = R"({"cat": "kernel", "name": "gemm", "ts": 5, "dur": 5, "args": )";
  const std::string next = R"({"cat": "kernel", "name": "gemm", "ts": 5, "dur": 5})";
  const EvidenceFile file =
      read_trace_text("{\"traceEvents\": [" + kernel + deep + close + "}, " + next + "]}", 4 << 20);
  EXPECT_GE(file.profile->launches, 1);
  const EvidenceFile open = read_trace_text("[" + next + ", " + kernel + deep, 4 << 20);
  EXPECT_EQ(open.profile->launches, 1);
  EXPECT_THROW(read_trace_text(deep), Error);
}

TEST(PyTorchTrace, SaysWhereNoKernelIs) {
  const EvidenceFile file = read_trace_text(
      R"({"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": 1, "dur": 2}]})");
  EXPECT_FALSE(file.profile);
  ASSERT_EQ(file.notes.size(), 1u);
  EXPECT_NE(file.notes[0].find("no GPU kernel"), std::string::npos);
  for (const char* text :
       {"", "{}", "[]", "x", "{\"traceEvents\": []}", "{\"traceEvents\": {}}", "17"})
    EXPECT_THROW(read_trace_text(text), Error) << text;
}

TEST(PyTorchTrace, IsRecognisedByContent) {
  EXPECT_TRUE(is_pytorch_trace(kSmallTrace));
  EXPECT_TRUE(is_pytorch_trace(" [ {\"ph\": \"X\", \"ts\": 1"));
  EXPECT_TRUE(is_pytorch_trace("{\"metadata\": {}, \"traceEvents\": ["));
  EXPECT_FALSE(is_pytorch_trace("{\"backend\": \"vllm\", \"duration\": 12}"));
  EXPECT_FALSE(is_pytorch_trace("# HELP traceEvents \"traceEvents\""));
  EXPECT_FALSE(is_pytorch_trace(""));
}

TEST(PyTorchTrace, PlainAndPackedFiles) {
  const fs::path folder = fs::temp_directory_path() / "ridge_pytorch_trace_test";
  fs::create_directories(folder);
  const std::string plain = (folder / "a.json").string(), packed = (folder / "a.json.gz").string();
  std::ofstream(plain, std::ios::binary) << kSmallTrace;
  const gzFile zip = gzopen(packed.c_str(), "wb");
  gzwrite(zip, kSmallTrace.data(), unsigned(kSmallTrace.size()));
  gzclose(zip);
  for (const std::string& path : {plain, packed})
    EXPECT_NEAR(read_pytorch_trace(path).profile->busy_s, 42.25e-6, 1e-12);
  // Half of the packed file.
  fs::resize_file(packed, fs::file_size(packed) * 3 / 4);
  EXPECT_FALSE(read_pytorch_trace(packed).notes.empty());
  EXPECT_THROW(read_pytorch_trace((folder / "none").string()), Error);
  fs::remove_all(folder);
}

// The figures of ../shared/evidence/README.md.
class RealTrace : public testing::Test {
 protected:
  void read(const char* name) {
    const std::string path = std::string(RIDGE_SOURCE_DIR) + "/../shared/evidence/kineto/" + name;
    if (!fs::exists(path)) GTEST_SKIP() << path << " is not here";
    file_ = read_pytorch_trace(path);
    ASSERT_TRUE(file_.profile);
    EXPECT_TRUE(file_.notes.empty()) << file_.notes[0];
  }
  double share(KernelFamily family) const {
    return file_.profile->family_s(family) / file_.profile->kernel_s;
  }
  EvidenceFile file_;
};

TEST_F(RealTrace, EagerForwardOnH100) {
  read("h100_qwen1.5-0.5b_hf.json.gz");
  if (!file_.profile) return;
  const KernelProfile& profile = *file_.profile;
  EXPECT_EQ(file_.setup.device, "NVIDIA H100 80GB HBM3");
  EXPECT_NEAR(profile.wall_s, 49.7e-3, 0.05e-3);
  EXPECT_NEAR(profile.busy_s / profile.wall_s, 0.919, 0.0005);
  EXPECT_NEAR(share(KernelFamily::gemm), 0.28, 0.005);
  EXPECT_NEAR(share(KernelFamily::elementwise), 0.63, 0.005);
  EXPECT_EQ(profile.gap(GapCause::outside), 0);
  EXPECT_EQ(profile.graph_launches, 0);
  EXPECT_TRUE(profile.with_stack);
}

TEST_F(RealTrace, PrefillOfSglangOnMi300x) {
  read("sglang_qwen3-8b_prefilldecode.json.gz");
  if (!file_.profile) return;
  const KernelProfile& profile = *file_.profile;
  EXPECT_EQ(file_.setup.device, "AMD Instinct MI300X");
  EXPECT_EQ(file_.setup.engine, "sglang");
  EXPECT_EQ(file_.setup.devices, 1);
  EXPECT_NEAR(profile.kernel_s, 0.493, 0.0005);
  // Another tool's table of the same file: gpu_timeline.csv, ops_summary_by_category.csv.
  EXPECT_NEAR(profile.busy_s, 0.4928068642578125, 1e-6);
  EXPECT_NEAR(profile.wall_s, 0.98728888671875, 1e-6);
  EXPECT_NEAR(share(KernelFamily::gemm), 0.8529, 0.0005);
  EXPECT_NEAR(share(KernelFamily::norm), 0.0533, 0.0005);
  EXPECT_NEAR(share(KernelFamily::attention) + share(KernelFamily::kv_write), 0.0433, 0.0005);
  EXPECT_NEAR(share(KernelFamily::activation), 0.0335, 0.0005);
  EXPECT_NEAR(share(KernelFamily::rope), 0.0096, 0.0005);
  // The wait of 493 ms at its beginning is for work that the file does not have.
  EXPECT_NEAR(profile.gap(GapCause::outside), 0.4932, 0.0002);
  EXPECT_LT(profile.gap(GapCause::launch) + profile.gap(GapCause::host), 0.002);
  EXPECT_EQ(profile.steps, 1);
  EXPECT_EQ(profile.prefill_tokens, 15360);
  EXPECT_EQ(profile.decode_tokens, 0);
}

}  // namespace
}  // namespace ridge
