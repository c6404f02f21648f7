// Real pages beside the repository, against what their README says of them.
#include <gtest/gtest.h>

#include "base/file.h"
#include "diagnose/readers/metrics_window.h"
#include "results_support.h"

namespace ridge {
namespace {

using results_test::evidence_folder;
using results_test::observed_value;
using results_test::value_of;
using Q = Quantity;

class MetricsEvidence : public testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(evidence_folder())) {
      GTEST_SKIP() << "no " << evidence_folder();
    }
  }
  EvidenceFile read(const char* name) {
    const std::string path = evidence_folder() / name;
    const std::string text = read_file(path, 1 << 20);
    EXPECT_TRUE(is_prometheus_text(std::string_view(text).substr(0, 4096)));
    const std::vector<MetricsPage> pages = parse_metrics(text, path);
    EXPECT_EQ(pages.size(), 1u);
    const std::vector<EvidenceFile> files = observe_metrics(pages, 0);
    EXPECT_EQ(files.size(), 1u);
    EXPECT_TRUE(files.front().unknown.empty());
    return files.front();
  }
};

TEST_F(MetricsEvidence, VllmV0OfOneRequest) {
  const EvidenceFile file = read("prometheus/vllm_v0_opt125m_cpu.prom");
  EXPECT_EQ(file.kind, "vLLM metrics (v0)");
  EXPECT_EQ(file.setup.model, "facebook/opt-125m");
  EXPECT_EQ(file.setup.prefix_caching, false);
  EXPECT_EQ(value_of(file, Q::requests), 1);
  EXPECT_EQ(value_of(file, Q::running), 0);
  EXPECT_EQ(value_of(file, Q::waiting), 0);
  EXPECT_EQ(value_of(file, Q::kv_tokens), 7281 * 16);
}

TEST_F(MetricsEvidence, VllmV0ThroughRay) {
  const EvidenceFile file = read("prometheus/vllm_v0_ray_llama70b_fp8.prom");
  EXPECT_EQ(file.kind, "vLLM metrics (v0, through Ray)");
  EXPECT_EQ(file.setup.model, "neuralmagic/Meta-Llama-3.1-70B-Instruct-FP8");
  EXPECT_EQ(file.setup.prefix_caching, false);
  EXPECT_FALSE(observed_value(file, Q::prompt_hit));
  EXPECT_NEAR(value_of(file, Q::ttft), 0.271, 5e-4);
  EXPECT_NEAR(value_of(file, Q::itl), 0.054, 5e-4);
  EXPECT_EQ(value_of(file, Q::output), 300);
  EXPECT_EQ(value_of(file, Q::requests), 1);
}

TEST_F(MetricsEvidence, Nim) {
  const EvidenceFile file = read("prometheus/nim_llama31_8b.prom");
  EXPECT_EQ(file.kind, "NIM metrics");
  EXPECT_EQ(file.setup.model, "meta/llama-3.1-8b-instruct");
  EXPECT_EQ(value_of(file, Q::requests), 5);
  EXPECT_NEAR(value_of(file, Q::itl), 0.011, 5e-4);
  EXPECT_EQ(value_of(file, Q::max_running), 64);
}

TEST_F(MetricsEvidence, Tgi) {
  const EvidenceFile file = read("prometheus/tgi_payload.prom");
  EXPECT_EQ(file.kind, "TGI metrics");
  EXPECT_EQ(value_of(file, Q::requests), 109);
  EXPECT_NEAR(value_of(file, Q::queue_time), 2.71, 5e-3);
  EXPECT_NEAR(value_of(file, Q::prefill_time) + value_of(file, Q::decode_time), 2.26, 5e-3);
  EXPECT_NEAR(value_of(file, Q::decode_step), 0.059, 5e-4);
}

TEST_F(MetricsEvidence, VllmV1Idle) {
  const EvidenceFile file = read("prometheus/vllm_v1_idle_qwen1.5-0.5b.prom");
  EXPECT_EQ(file.kind, "vLLM metrics (v1)");
  EXPECT_EQ(value_of(file, Q::requests), 0);
  EXPECT_EQ(value_of(file, Q::running), 0);
  EXPECT_EQ(file.setup.prefix_caching, true);
  for (const Q q : {Q::itl, Q::ttft, Q::e2e, Q::prompt, Q::output, Q::prompt_hit, Q::itl_p50}) {
    EXPECT_FALSE(observed_value(file, q)) << quantity_info(q).name;
  }
}

TEST_F(MetricsEvidence, DcgmWithOneMigInstance) {
  const EvidenceFile file = read("dcgm/dcgm_exporter_a100_mig_nvidia_docs.prom");
  EXPECT_EQ(file.kind, "dcgm-exporter metrics");
  EXPECT_EQ(file.setup.devices, 1);
  EXPECT_NEAR(value_of(file, Q::tensor_active), 0.929, 5e-4);
  EXPECT_NEAR(value_of(file, Q::dram_active), 0.69, 1e-3);
  EXPECT_NEAR(value_of(file, Q::power), 409.7, 0.1);
}

TEST_F(MetricsEvidence, DcgmOfAnIdleT4) {
  const EvidenceFile file = read("dcgm/dcgm_exporter_t4_datadog_fixture.prom");
  EXPECT_EQ(file.setup.device, "Tesla T4");
  EXPECT_EQ(file.setup.devices, 1);
  EXPECT_EQ(value_of(file, Q::gpu_util), 0);
  EXPECT_EQ(value_of(file, Q::tensor_active), 0);
  EXPECT_NEAR(value_of(file, Q::power), 8.97, 0.01);
  EXPECT_EQ(value_of(file, Q::power_limit), 70);
}

}  // namespace
}  // namespace ridge
