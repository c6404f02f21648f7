// Real files of other projects, read and judged whole. They lie beside the repository, in
// ../shared/evidence; its README says what the correct readings are.
#include <gtest/gtest.h>

#include <filesystem>

#include "diagnose/explain_options.h"

namespace ridge {
namespace {

namespace fs = std::filesystem;

class EvidenceFiles : public testing::Test {
 protected:
  void SetUp() override {
    if (!fs::exists(folder_)) GTEST_SKIP() << folder_ << " is not there";
  }
  Diagnosis read(const std::string& path, const std::string& model = "",
                 const std::string& machine = "") const {
    ExplainOptions o;
    o.files = {(folder_ / path).string()};
    if (!model.empty()) o.request.model = model;
    if (!machine.empty()) o.request.machine = machine;
    return explain(o);
  }
  fs::path folder_ = fs::path(RIDGE_SOURCE_DIR).parent_path() / "shared" / "evidence";
};

TEST_F(EvidenceFiles, OneRequestServedLongAgoIsIdle) {
  const Diagnosis d = read("prometheus/vllm_v0_opt125m_cpu.prom");
  EXPECT_EQ(d.verdict, Verdict::idle);
  EXPECT_TRUE(d.healthy);
}

TEST_F(EvidenceFiles, RaysOneRequestOfSeventyBillion) {
  const Diagnosis d = read("prometheus/vllm_v0_ray_llama70b_fp8.prom");
  EXPECT_EQ(d.verdict, Verdict::under_batched);
  EXPECT_NEAR(d.seen.value_or(Quantity::ttft, 0), 0.271, 1e-3);
  EXPECT_NEAR(d.seen.value_or(Quantity::itl, 0), 54e-3, 1e-3);
  EXPECT_EQ(d.seen.setup.prefix_caching, false);
  // With a machine the model and its format come from the file.
  const Diagnosis on = read("prometheus/vllm_v0_ray_llama70b_fp8.prom", "", "4xh100-sxm");
  ASSERT_TRUE(on.run.expected);
  EXPECT_TRUE(on.run.expected->request.model->name.starts_with("llama-3.1-70b"));
  EXPECT_EQ(on.run.expected->request.plan.weights->name, "fp8");
}

TEST_F(EvidenceFiles, Nim) {
  const Diagnosis d = read("prometheus/nim_llama31_8b.prom");
  EXPECT_TRUE(d.verdict == Verdict::under_batched || d.verdict == Verdict::idle);
  EXPECT_NEAR(d.seen.value_or(Quantity::itl, 0), 11e-3, 1e-3);
}

TEST_F(EvidenceFiles, TgiQueues) {
  const Diagnosis d = read("prometheus/tgi_payload.prom");
  EXPECT_EQ(d.verdict, Verdict::queue_capacity);
  EXPECT_NEAR(d.seen.value_or(Quantity::queue_time, 0), 2.71, 0.01);
  EXPECT_NEAR(d.seen.value_or(Quantity::decode_step, 0), 59e-3, 1e-3);
}

TEST_F(EvidenceFiles, VllmV1Idle) {
  EXPECT_EQ(read("prometheus/vllm_v1_idle_qwen1.5-0.5b.prom").verdict, Verdict::idle);
}

TEST_F(EvidenceFiles, ATensorLoadOnAMigSlice) {
  const Diagnosis d = read("dcgm/dcgm_exporter_a100_mig_nvidia_docs.prom");
  EXPECT_EQ(d.verdict, Verdict::compute_bound);
  EXPECT_NEAR(d.seen.value_or(Quantity::tensor_active, 0), 0.929, 1e-3);
  EXPECT_NEAR(d.seen.value_or(Quantity::dram_active, 0), 0.69, 0.01);
}

TEST_F(EvidenceFiles, AnIdleT4) {
  EXPECT_EQ(read("dcgm/dcgm_exporter_t4_datadog_fixture.prom").verdict, Verdict::idle);
}

TEST_F(EvidenceFiles, OneGemv) {
  const Diagnosis d = read("ncu/dsocr_rtx5090_k0002.details.csv");
  EXPECT_EQ(d.verdict, Verdict::memory_bound);
  ASSERT_EQ(d.seen.profile->kernels.size(), 1u);
  EXPECT_NEAR(*d.seen.profile->kernels.front().dram_bytes, 17.57e6, 0.02e6);
  EXPECT_NEAR(d.seen.profile->kernels.front().seconds, 18.34e-6, 1e-8);
}

TEST_F(EvidenceFiles, APrefillOfTenMicrosecondKernels) {
  const Diagnosis d = read("nsys/dsocr_rtx5090_prefill_cuda_gpu_kern_sum.csv");
  EXPECT_EQ(d.verdict, Verdict::host_bound);
  EXPECT_LT(d.confidence, 0.6);  // a summary cannot show the gaps
  EXPECT_NEAR(d.seen.profile->kernel_s, 65.7e-3, 0.1e-3);
  EXPECT_EQ(d.seen.profile->launches, 6660);
}

TEST_F(EvidenceFiles, AnEagerForwardPass) {
  const Diagnosis d = read("kineto/h100_qwen1.5-0.5b_hf.json.gz");
  EXPECT_EQ(d.verdict, Verdict::memory_bound);
  EXPECT_FALSE(d.healthy);
  EXPECT_NEAR(d.seen.profile->busy_s / d.seen.profile->wall_s, 0.919, 0.005);
}

TEST_F(EvidenceFiles, APrefillBehindAWait) {
  const Diagnosis d = read("kineto/sglang_qwen3-8b_prefilldecode.json.gz");
  EXPECT_EQ(d.verdict, Verdict::compute_bound);
  EXPECT_NEAR(d.seen.profile->kernel_s, 0.493, 0.005);
}

TEST_F(EvidenceFiles, LlamaBench) {
  const Diagnosis d = read("bench/llama_bench_qwen2.5-7b_q4km_rtx4080.json");
  EXPECT_EQ(d.verdict, Verdict::memory_bound);
  EXPECT_TRUE(d.healthy);
  EXPECT_NEAR(d.seen.value_or(Quantity::bytes_per_s, 0), 556e9, 1e9);
}

TEST_F(EvidenceFiles, ACacheThatFills) {
  const std::string folder = "serving/rtx4090_llama-3.1-8b/";
  EXPECT_EQ(read(folder + "timeseries.csv", "llama-3.1-8b", "rtx-4090").verdict, Verdict::kv_full);
  EXPECT_EQ(read(folder + "timeseries.csv").verdict, Verdict::kv_full);
  const Diagnosis requests = read(folder + "requests.jsonl");
  EXPECT_EQ(requests.verdict, Verdict::queue_capacity);
}

}  // namespace
}  // namespace ridge
