#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "diagnose/readers/reader.h"
#include "results_support.h"

namespace ridge {
namespace {

using Q = Quantity;
using namespace results_test;

Json llama_row(int prompt, int generate, int depth, double rate) {
  return {{"cpu_info", "Some CPU"},
          {"gpu_info", "NVIDIA GeForce RTX 4090"},
          {"model_filename", "models/Some-8B-Instruct-Q4_K_M.gguf"},
          {"model_type", "llama 8B Q4_K - Medium"},
          {"model_size", 5'000'000'000},
          {"n_gpu_layers", 99},
          {"type_k", "f16"},
          {"n_prompt", prompt},
          {"n_gen", generate},
          {"n_depth", depth},
          {"avg_ts", rate}};
}

EvidenceFile read_llama(const std::string& text) {
  const std::optional<EvidenceFile> file = read_llama_bench(text, "bench.json");
  if (!file) throw Error("not recognised");
  return *file;
}

void expect_llama(const EvidenceFile& file) {
  EXPECT_EQ(file.setup.engine, "llama.cpp");
  EXPECT_DOUBLE_EQ(value_of(file, Q::tokens_per_s), 100);
  EXPECT_DOUBLE_EQ(value_of(file, Q::itl), 0.01);
  EXPECT_DOUBLE_EQ(value_of(file, Q::batch), 1);
  EXPECT_DOUBLE_EQ(value_of(file, Q::prompt_tokens_per_s), 5000);
  EXPECT_EQ(file.setup.weights, "q4_k_m");
}

TEST(LlamaBench, JsonLinesAndArrays) {
  const Json rows{llama_row(512, 0, 0, 5000), llama_row(0, 128, 8192, 60),
                  llama_row(0, 128, 0, 100)};
  for (const std::string& text :
       {rows.dump(2), rows[0].dump() + "\n" + rows[1].dump() + "\n" + rows[2].dump() + "\n"}) {
    const EvidenceFile file = read_llama(text);
    expect_llama(file);
    EXPECT_DOUBLE_EQ(value_of(file, Q::bytes_per_s), 5e11);
    EXPECT_EQ(file.setup.model, "Some-8B-Instruct");
    EXPECT_EQ(file.setup.device, "NVIDIA GeForce RTX 4090");
    EXPECT_EQ(file.setup.weight_bytes, 5e9);
    EXPECT_TRUE(has_note(file, "tg128 @ d8192: 60 tok/s, 60 % of tg128"));
    EXPECT_FALSE(file.setup.offloaded);
  }
}

TEST(LlamaBench, Csv) {
  const EvidenceFile file = read_llama(
      "build_commit,cpu_info,gpu_info,model_filename,model_type,model_size,n_gpu_layers,n_prompt,"
      "n_gen,n_depth,avg_ts\n"
      "\"a\",\"Some CPU\",\"NVIDIA A10\",\"Some-8B-Q4_K_M.gguf\",\"llama "
      "8B\",\"5000000000\",\"99\","
      "\"512\",\"0\",\"0\",\"5000\"\n"
      "\"a\",\"Some CPU\",\"NVIDIA A10\",\"Some-8B-Q4_K_M.gguf\",\"llama "
      "8B\",\"5000000000\",\"99\","
      "\"0\",\"128\",\"0\",\"100\"\n");
  expect_llama(file);
  EXPECT_EQ(file.setup.device, "NVIDIA A10");
}

TEST(LlamaBench, PrintedTable) {
  const EvidenceFile file = read_llama(R"(
ggml_cuda_init: found 1 CUDA devices:
  Device 0: NVIDIA GeForce RTX 3090, compute capability 8.6, VMM: yes
| model                          |       size |     params | backend    | ngl |            test |                  t/s |
| ------------------------------ | ---------: | ---------: | ---------- | --: | --------------: | -------------------: |
| llama 8B Q4_K - Medium         |   4.58 GiB |     8.03 B | CUDA       |  99 |           pp512 |      5000.00 ± 12.00 |
| llama 8B Q4_K - Medium         |   4.58 GiB |     8.03 B | CUDA       |  99 |           tg128 |        100.00 ± 0.30 |
| llama 8B Q4_K - Medium         |   4.58 GiB |     8.03 B | CUDA       |  99 |   tg128 @ d4096 |         80.00 ± 0.30 |
build: 8cf427ff (5163)
)");
  expect_llama(file);
  EXPECT_EQ(file.setup.device, "NVIDIA GeForce RTX 3090");
  EXPECT_NEAR(file.setup.weight_bytes, 4.58 * 0x1p30, 1);
  EXPECT_TRUE(has_note(file, "80 % of tg128"));
}

TEST(LlamaBench, LayersOnTheHost) {
  Json cpu = llama_row(0, 128, 0, 9);
  cpu["n_gpu_layers"] = 0;
  const EvidenceFile on_cpu = read_llama(cpu.dump());
  EXPECT_EQ(on_cpu.setup.device, "Some CPU");
  EXPECT_EQ(on_cpu.setup.offloaded, 1);
  Json part = llama_row(0, 128, 0, 9);
  part["n_gpu_layers"] = 20;
  EXPECT_TRUE(has_note(read_llama(part.dump()), "20 layers are on the device"));
}

TEST(LlamaBench, Hostile) {
  EXPECT_FALSE(read_llama_bench("", "x"));
  EXPECT_FALSE(read_llama_bench("{\"avg_ts\": 5}", "x"));
  EXPECT_FALSE(read_llama_bench("| t/s |\n| --- |\n", "x"));
  EXPECT_THROW(read_llama_bench("{\"avg_ts\": 0, \"n_gen\": 128}", "x"), Error);
  EXPECT_THROW(read_llama_bench("{\"avg_ts\": -3, \"n_gen\": 128}", "x"), Error);
  EXPECT_THROW(read_llama_bench("{\"avg_ts\": NaN, \"n_gen\": 128}", "x"), Error);
}

// The README of the folder: 118.9 tok/s x 4.677 GB = 556 GB/s.
TEST(LlamaBench, RealFile) {
  const std::filesystem::path path =
      evidence_folder() / "bench/llama_bench_qwen2.5-7b_q4km_rtx4080.json";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is not there";
  const EvidenceFile file = read_llama(read_file(path.string(), 1 << 20));
  EXPECT_NEAR(value_of(file, Q::bytes_per_s), 556e9, 0.5e9);
  EXPECT_NEAR(value_of(file, Q::tokens_per_s), 118.9, 0.05);
  EXPECT_EQ(file.setup.device, "NVIDIA GeForce RTX 4080");
  EXPECT_EQ(file.setup.model, "Qwen2.5-7B-Instruct");
  EXPECT_EQ(file.setup.weights, "q4_k_m");
  EXPECT_EQ(file.setup.kv, "fp16");
  EXPECT_FALSE(file.setup.offloaded);  // n_gpu_layers -1: all
}

}  // namespace
}  // namespace ridge
