// The stack llama.cpp against published llama-bench runs. Sources, also in docs/accuracy.md:
//   [1] github.com/XiongjieDai/GPU-Benchmarks-on-LLM-Inference, README, runs of May 2024: tg 1024
//       (512 tokens of context in the mean) and pp 512
//   [2] github.com/ggml-org/llama.cpp/pull/4766, January 2024: tg 128 (64 in the mean), pp 512
//   [3] github.com/ggml-org/llama.cpp/discussions/4167, quoted by openllmbenchmarks.com: tg 128,
//       pp 512
//   [4] github.com/brand-o/normiebench/issues/3 and 40, 2026: tg 128, pp 512
//   [5] github.com/ggml-org/llama.cpp/issues/34, August 2023: gen 128 with 8 threads, pp 512 with
//   32 [6] decode rates without a page of their own: RTX 4080 118.9, T4 38 tok/s
// Machines are given by the bandwidth and the 16-bit rate of their datasheets (GeForce: with fp32
// accumulation; Apple: fp32), so that the figures do not move with the atlas.
#include <gtest/gtest.h>

#include <cmath>

#include "predict/support.h"
#include "roofline/default_stack.h"

namespace ridge {
namespace {

struct LlamaBench {
  const char* like;  // a machine of the same family
  double bandwidth, peak;
  const char *model, *weights;
  double context, decode, prefill;  // tokens/s; 0: not published
  double decode_error, prefill_error;
};

constexpr double kTera = 1e12, kGiga = 1e9;

constexpr LlamaBench kRuns[] = {
    // [1] RTX 3070, 3080, 4070 Ti, 4080, 3090, 4090
    {"rtx-3090", 448, 40.6, "llama-3-8b", "q4_k_m", 512, 70.94, 2402.51, 0.10, 0.20},
    {"rtx-3090", 760, 59.5, "llama-3-8b", "q4_k_m", 512, 106.40, 3728.86, 0.10, 0.20},
    {"rtx-4090", 504, 80.2, "llama-3-8b", "q4_k_m", 512, 82.21, 3936.29, 0.10, 0.20},
    {"rtx-4090", 716.8, 97.5, "llama-3-8b", "q4_k_m", 512, 106.22, 5389.74, 0.10, 0.20},
    {"rtx-4090", 716.8, 97.5, "llama-3-8b", "fp16", 512, 40.29, 7246.97, 0.10, 0.35},
    {"rtx-3090", 936, 71, "llama-3-8b", "q4_k_m", 512, 111.74, 4030.40, 0.15, 0.20},
    {"rtx-3090", 936, 71, "llama-3-8b", "fp16", 512, 46.51, 4444.65, 0.10, 0.20},
    {"rtx-4090", 1008, 165.2, "llama-3-8b", "q4_k_m", 512, 127.74, 7138.99, 0.10, 0.25},
    {"rtx-4090", 1008, 165.2, "llama-3-8b", "fp16", 512, 54.34, 9382.00, 0.10, 0.20},
    // [2] RTX 3090
    {"rtx-3090", 936, 71, "llama-2-7b", "q4_0", 64, 121.82, 3408.18, 0.20, 0.25},
    {"rtx-3090", 936, 71, "llama-2-7b", "fp16", 64, 48.52, 4184.85, 0.15, 0.20},
    // [6] RTX 4080; the T4 throttles at its 70 W and reads at half its bandwidth
    {"rtx-4090", 716.8, 97.5, "qwen2.5-7b", "q4_k_m", 64, 118.9, 0, 0.10, 0},
    {"t4", 320, 65, "llama-2-7b", "q4_0", 64, 38, 0, 0.75, 0},
    // [3] M1 Ultra (48 cores), M2 Max (30 cores)
    {"m4-max", 800, 15.9, "llama-2-7b", "fp16", 64, 33.92, 875.81, 0.30, 0.20},
    {"m4-max", 800, 15.9, "llama-2-7b", "q8_0", 64, 55.69, 783.45, 0.30, 0.20},
    {"m4-max", 800, 15.9, "llama-2-7b", "q4_0", 64, 74.93, 772.24, 0.35, 0.20},
    {"m4-max", 400, 10.7, "llama-2-7b", "fp16", 64, 24.16, 600.46, 0.10, 0.20},
    {"m4-max", 400, 10.7, "llama-2-7b", "q8_0", 64, 39.97, 540.15, 0.10, 0.20},
    // [1] M2 Ultra (76 cores), M3 Max (40 cores)
    {"m4-max", 800, 27.2, "llama-3-8b", "q4_k_m", 512, 76.28, 994.04, 0.20, 0.35},
    {"m4-max", 800, 27.2, "llama-3-8b", "fp16", 512, 36.25, 1175.40, 0.10, 0.20},
    {"m4-max", 400, 14.2, "llama-3-8b", "q4_k_m", 512, 50.74, 693.32, 0.15, 0.20},
    {"m4-max", 400, 14.2, "llama-3-8b", "fp16", 512, 22.39, 769.84, 0.10, 0.20},
    // [4] M4 (10 cores), M1 Max (32 cores)
    {"m4-max", 120, 4.6, "llama-3-8b", "q4_k_m", 64, 20.87, 224.81, 0.10, 0.20},
    {"m4-max", 400, 10.4, "llama-3-8b", "q4_k_m", 64, 46.2, 499.58, 0.25, 0.20},
    // [5] Core i9-13900K, DDR5-6400, AVX2 at 4.3 GHz on 8 + 16 cores
    {"xeon-8480p", 102.4, 1.2, "llama-2-7b", "q4_0", 64, 18.27, 55.21, 0.10, 0.20},
};

Request bench_request(const LlamaBench& run) {
  Request r = make_request(run.model, run.like, 1, run.context, "llama.cpp");
  Machine& machine = r.system.device;
  for (Level& level : machine.levels) {
    if (level.name == r.system.device.memory().name) level.read_bandwidth = run.bandwidth * kGiga;
  }
  machine.peak.fill(std::nullopt);
  for (const DType dtype : {DType::bf16, DType::fp16}) {
    machine.peak[static_cast<int>(dtype)] = run.peak * kTera;
  }
  const bool vector_only = machine.vendor == "Apple" || machine.kind == MachineKind::cpu;
  machine.peak[static_cast<int>(DType::fp32)] = run.peak * kTera / (vector_only ? 1 : 2);
  r.plan.weights = format_from_name(run.weights);
  r.prompt = 512;
  return r;
}

TEST(LlamaCpp, MeetsPublishedRuns) {
  double sum = 0;
  for (const LlamaBench& run : kRuns) {
    const Request r = bench_request(run);
    const Prediction p = predict(r);
    const double decode = 1 / p.tpot_s() / run.decode - 1;
    SCOPED_TRACE(testing::Message() << run.like << " at " << run.bandwidth << " GB/s, " << run.model
                                    << " " << run.weights << ": decode " << 1 / p.tpot_s()
                                    << " tok/s, prompt " << 512 / p.ttft_s() << " tok/s");
    EXPECT_LE(std::abs(decode), run.decode_error);
    if (run.prefill > 0) {
      EXPECT_LE(std::abs(512 / p.ttft_s() / run.prefill - 1), run.prefill_error);
    }
    sum += std::abs(decode);
  }
  EXPECT_LT(sum / std::size(kRuns), 0.12);
}

// Llama 3 8B in Q4_K_M is a file of 4.58 GiB, in Q8_0 of 7.95 GiB (llama-bench prints both).
TEST(LlamaCpp, GgufWeightsAreAsLargeAsTheFile) {
  constexpr double kGiB = 1024.0 * 1024 * 1024;
  const std::pair<const char*, double> files[] = {{"q4_k_m", 4.58}, {"q8_0", 7.95}};
  for (const auto& [weights, size] : files) {
    Request r = make_request("llama-3-8b", "rtx-4090");
    r.plan.weights = format_from_name(weights);
    EXPECT_NEAR(predict(r).memory.weights / kGiB, size, 0.02 * size) << weights;
  }
}

TEST(DefaultStack, FollowsTheMachine) {
  const auto of = [](const char* name) { return default_stack(find_system(name).device); };
  for (const char* name : {"h100-sxm", "h200", "a100-sxm-80gb", "b200", "gb200", "l40s", "l4"}) {
    EXPECT_EQ(of(name), "vllm") << name;
  }
  for (const char* name : {"rtx-4090", "rtx-3090", "m4-max", "epyc-9654", "xeon-8480p"}) {
    EXPECT_EQ(of(name), "llama.cpp") << name;
  }
  for (const char* name : {"mi300x", "t4", "k80", "tpu-v5e"})
    EXPECT_EQ(of(name), "typical") << name;
}

}  // namespace
}  // namespace ridge
