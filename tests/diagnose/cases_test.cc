// Cases as people describe them in threads: what they type, and what an expert answers. They are
// invented after the kinds of questions that are asked about vLLM, SGLang, TensorRT-LLM, llama.cpp
// and Ollama.
#include <gtest/gtest.h>

#include <CLI/CLI.hpp>

#include "base/error.h"
#include "cli/explain_text.h"
#include "cli/options.h"

namespace ridge {
namespace {

struct ThreadCase {
  const char* verdict;
  const char* options;
};

constexpr ThreadCase kThreadCases[] = {
    {"under-batched", "-m llama-3-70b -M 8xh100-sxm --observed 280tok/s --batch 8 --gpu-util 0.38"},
    {"under-batched",
     "-m llama-3-8b -M a100-sxm-80gb --running 1 --waiting 0 --kv-usage 0.01 --itl 12.5ms "
     "--gpu-util 0.95"},
    {"under-batched", "--running 2 --waiting 0 --kv-usage 0.02 --observed 90tok/s"},
    {"under-batched",
     "-m llama-3-8b -M h100-sxm --itl 9ms --batch 4 --dram-active 0.72 --tensor-active 0.06"},
    {"admission-limit",
     "-m llama-3-8b -M a100-sxm-80gb --running 256 --waiting 700 --kv-usage 0.35"},
    {"admission-limit",
     "-m qwen3-8b -M h100-sxm --running 64 --waiting 300 --kv-usage 0.25 --max-running 64"},
    {"admission-limit", "--running 8 --waiting 40 --kv-usage 0.08 --gpu-util 0.6"},
    {"admission-limit", "--running 16 --waiting 120 --kv-usage 0.4"},
    {"kv-full", "--running 35 --waiting 80 --kv-usage 0.99 --preemptions 120"},
    {"kv-full", "-m llama-3-70b -M 4xa100-sxm-80gb --running 40 --waiting 15 --kv-usage 0.97"},
    {"kv-full",
     "-m qwen2.5-32b -M 2xa100-sxm-80gb --preemptions 500 --running 60 --kv-usage 0.93 --waiting "
     "0"},
    {"queue-capacity",
     "-m llama-3-8b -M h100-sxm --running 256 --waiting 400 --kv-usage 0.5 --itl 30ms --ttft 12s "
     "--queue-time 11s"},
    {"queue-capacity", "-m llama-3-8b -M l4 --ttft 20s --queue-time 18s --itl 90ms --batch 64"},
    {"queue-capacity",
     "--waiting 50 --running 120 --queue-time 9s --ttft 9.5s --gpu-util 1 --tensor-active 0.7 "
     "--dram-active 0.5"},
    {"prefill-interference",
     "-m llama-3-8b -M h100-sxm --itl-p50 12ms --itl-p99 240ms --batch 32 --prompt 8000 --output "
     "300"},
    {"prefill-interference",
     "--itl-p50 25ms --itl-p99 600ms --running 24 --waiting 0 --kv-usage 0.4"},
    {"host-bound", "-m llama-3-8b -M h100-sxm --itl 40ms --batch 32 --gpu-util 0.35 --cpu 1.0"},
    {"host-bound",
     "-m llama-3-8b -M h100-sxm --itl 30ms --batch 8 --no-graphs --dram-active 0.15 "
     "--tensor-active 0.03"},
    {"host-bound",
     "-m qwen3-0.6b -M h100-sxm --itl 15ms --batch 64 --gpu-util 0.4 --dram-active 0.1 "
     "--tensor-active 0.03"},
    {"host-bound",
     "-m llama-3-8b -M h100-sxm --itl 45ms --running 300 --graph-max 256 --gpu-util 0.6 "
     "--dram-active 0.2 --tensor-active 0.1"},
    {"host-bound", "--cpu 99% --gpu-util 0.3 --running 100 --waiting 40 --kv-usage 0.3"},
    {"interconnect",
     "-m llama-3-70b -M 4xrtx-4090 --weights int4 --batch 8 --itl 120ms --gpu-util 1 --dram-active "
     "0.2 --tensor-active 0.05"},
    {"interconnect", "-m llama-3-8b -M 2xrtx-3090 --tp 2 --batch 1 --itl 35ms --gpu-util 0.98"},
    {"slow-kernel",
     "-m qwen2.5-14b -M a100-sxm-80gb --weights int4 --batch 64 --itl 180ms --gpu-util 1 "
     "--sm-active 0.95 --dram-active 0.2 --tensor-active 0.15"},
    {"prefix-miss",
     "-m llama-3-8b -M a100-sxm-80gb --prompt 6000 --ttft 1.2s --prompt-hit 0.02 --batch 8 --itl "
     "14ms --output 150"},
    {"prefix-miss", "--prompt-hit 0.01 --ttft 4s --waiting 0 --running 20 --kv-usage 0.5"},
    {"drafts-too-long",
     "-m llama-3-8b -M h100-sxm --batch 64 --speculate 7 --accepted 1.4 --itl 14ms"},
    {"drafts-too-long",
     "-m llama-3-70b -M 4xh100-sxm --batch 1 --speculate 5 --accepted 0.12 --itl 28ms"},
    {"host-weights", "-m llama-3-70b -M rtx-4090 --weights int4 --observed 2tok/s --batch 1"},
    {"host-weights", "-m llama-3-8b -M rtx-3060 --weights bf16 --observed 3.5tok/s --batch 1"},
    {"host-weights",
     "-m qwen2.5-32b -M rtx-4090 --weights q4_k_m --offload 0.4 --observed 5tok/s --batch 1"},
    {"power",
     "-m llama-3-8b -M h100-sxm --ttft 120ms --prompt 2048 --power 345W --power-limit 350W "
     "--sm-clock 900MHz --tensor-active 0.8"},
    {"power",
     "-m llama-3-8b -M rtx-4090 --weights bf16 --itl 60ms --batch 16 --sm-clock 600MHz --power "
     "150W --power-limit 150W"},
    {"memory-bound", "-m llama-3-8b -M rtx-4090 --weights q4_k_m --observed 128tok/s --batch 1"},
    {"memory-bound", "-m llama-3-8b -M m2-max --weights q4_0 --observed 62tok/s --batch 1"},
    {"memory-bound",
     "--dram-active 0.75 --tensor-active 0.1 --gpu-util 0.99 --running 80 --waiting 0 --kv-usage "
     "0.6"},
    {"compute-bound", "--dram-active 0.3 --tensor-active 0.85 --gpu-util 1"},
    {"compute-bound", "-m llama-3-8b -M h100-sxm --ttft 95ms --prompt 4096"},
    {"impossible", "-m llama-3-70b -M h100-sxm --observed 500tok/s --batch 1"},
    {"impossible", "-m llama-3-8b -M rtx-4090 --weights bf16 --observed 400tok/s --batch 1"},
    {"impossible", "-m llama-3-8b -M h100-sxm --observed 10000 --itl 28ms --batch 8"},
    {"idle", "--running 0 --waiting 0 --kv-usage 0 --gpu-util 0"},
    {"unknown", "--gpu-util 0.9"},
    {"unknown", "-m llama-3-8b -M h100-sxm --gpu-util 0.97"},
    {"prefill-bound",
     "-m llama-3-8b -M a100-sxm-80gb --prompt 12000 --output 20 --tensor-active 0.8 --running 12 "
     "--waiting 0"},
    // Figures of public threads, by their numbers.
    {"interconnect",  // FastChat 2746: half the devices are faster
     "-m llama-2-70b -M 4xa100-sxm-80gb --tp 4 --observed 0.2tok/s --batch 1"},
    {"interconnect",  // exllamav2 734: prompts over PCIe
     "-m llama-3.3-70b -M 2xrtx-3090 --tp 2 --weights int4 --prompt 16000 --ttft 42s"},
    {"slow-kernel",  // pytorch/ao 3496: 4 bits slower than 16 in a batch
     "-m qwen3-8b -M a100-sxm-80gb --weights int4 --observed 255tok/s --batch 100 --prompt 512 "
     "--output 128"},
    {"impossible",  // TensorRT-LLM 2329: total tokens were counted
     "-m gemma-2-9b -M a100-sxm-80gb --observed 4267tok/s --batch 32"},
    {"drafts-too-long",  // SpecForge 310
     "--speculate 4 --accepted 1.037 --observed 42tok/s --batch 1"},
    {"kv-full",  // vLLM 14412: two requests fill the cache
     "-m qwen2.5-32b -M l40 --weights fp8 --running 2 --kv-usage 1.0"},
    {"host-bound",  // vLLM 580: half of the device's time, 128 requests
     "-m llama-2-13b -M a100-sxm-80gb --running 128 --gpu-util 0.5"},
    {"host-bound", "--running 500 --cpu 100%"},  // OpenLLM 551: one core
    {"host-bound",                               // vllm-omni 7960
     "-m qwen2.5-7b -M a100-sxm-80gb --no-graphs --tpot 22ms --batch 1"},
    {"host-bound", "--no-graphs --observed 3tok/s --running 3"},  // vLLM 56892
    {"host-bound",                                                // vLLM 3567: guided decoding
     "-m qwen2.5-14b -M h100-sxm --running 100 --observed 70tok/s --itl 1.7s --prompt 512"},
    {"host-bound",  // 8 billion parameters in eager transformers
     "-m llama-3-8b -M a100-sxm-40gb --observed 40tok/s --batch 1"},
    {"under-batched",  // vLLM 14513: a pool of 100 connections
     "--concurrency 200 --running 100 --waiting 0 --kv-usage 0.2"},
    {"host-weights", "-m llama-3-70b -M gh200 --observed 4.6tok/s --batch 1"},  // vLLM 6317
    {"host-weights", "--offload 0.3 --observed 120tok/s --batch 64"},           // vLLM 57771
    {"host-weights",  // llama.cpp 12237: a tenth of the layers on the CPU
     "-m mistral-small-24b -M rtx-3060 --weights q4_k_m --observed 17.7tok/s --batch 1"},
    {"impossible", "-m llama-3-70b -M gh200 --observed 125tok/s --batch 1"},  // vLLM 10267
    {"memory-bound",                                                          // llama.cpp 26284
     "-m llama-3-8b -M rx-7900-xtx --weights q4_k_m --observed 105.8tok/s --batch 1"},
    {"memory-bound",  // tinygrad 3837
     "-m llama-2-7b -M rtx-3090 --observed 50.9tok/s --batch 1"},
    {"prefill-bound",  // llm-d 662: the cache has room, the device has not
     "-M h100-sxm --running 20 --waiting 150 --kv-usage 0.32 --prompt 6000 --output 2"},
    {"admission-limit", "--stack llama.cpp --running 1 --waiting 3"},     // Ollama 9054
    {"queue-capacity", "--arrivals 200/s --served 5.99/s --e2e 67.59s"},  // vLLM 359
    {"power", "--power 100W --power-limit 100W --sm-clock 628 --gpu-util 1"},
    {"power",  // 210 W of a 350 W board
     "-m gemma-3-27b -M 2xrtx-3090 --tp 2 --weights int4 --observed 38.8tok/s --batch 1 --power "
     "209.6W --power-limit 210W --sm-clock 1395MHz"},
    {"prefix-miss", "--prompt-hit 0 --ttft 5.86s --running 16 --observed 46.5tok/s"},
};

Diagnosis explain_typed(const std::string& options) {
  ExplainOptions o;
  CLI::App command;
  add_request_options(command, o.request, EndpointOptions::left_out);
  command.remove_option(command.get_option("--batch"));
  add_stated_options(command, o.stated, true);
  command.parse(options);
  return explain(o);
}

TEST(Cases, TheVerdictIsTheExperts) {
  for (const ThreadCase& c : kThreadCases) {
    const Diagnosis d = explain_typed(c.options);
    EXPECT_EQ(verdict_name(d.verdict), c.verdict) << c.options << "\n" << d.sentence;
    EXPECT_FALSE(d.sentence.empty());
    EXPECT_GE(d.confidence, 0);
    EXPECT_LE(d.confidence, 0.97);
    EXPECT_EQ(d.confidence == 0, d.verdict == Verdict::unknown) << c.options;
    EXPECT_NE(d.runner_up, d.verdict);
  }
}

TEST(Cases, AHealthyRunIsCalledHealthy) {
  EXPECT_TRUE(
      explain_typed("-m llama-3-8b -M rtx-4090 --weights q4_k_m --observed 128tok/s -b 1").healthy);
  EXPECT_TRUE(explain_typed("--dram-active 0.3 --tensor-active 0.85 --gpu-util 1").healthy);
  EXPECT_TRUE(explain_typed("--running 0 --waiting 0 --gpu-util 0").healthy);
  EXPECT_FALSE(explain_typed("--running 35 --waiting 80 --kv-usage 0.99").healthy);
  EXPECT_FALSE(explain_typed("--running 2 --waiting 0 --kv-usage 0.02").healthy);
}

// A card whose tensor cores accumulate in fp32 at half rate is busy at half the counter.
TEST(Cases, ThresholdsArePerMachine) {
  const std::string seen = " --tensor-active 0.42 --dram-active 0.3 --gpu-util 1";
  EXPECT_EQ(explain_typed("-M rtx-4090" + seen).verdict, Verdict::compute_bound);
  EXPECT_EQ(explain_typed("-M a10g" + seen).verdict, Verdict::compute_bound);
  EXPECT_EQ(explain_typed("-M h100-sxm" + seen).verdict, Verdict::unknown);
}

TEST(Cases, ALeverThatTheEvidenceExcludesIsNotOffered) {
  const auto offers = [](const Diagnosis& d, const std::string& start) {
    for (const Lever& l : d.levers) {
      if (l.name.starts_with(start)) return true;
    }
    return false;
  };
  const std::string model = "-m llama-3-8b -M h100-sxm ";
  EXPECT_FALSE(offers(explain_typed(model + "--running 60 --waiting 9 --kv-usage 0.98"), "batch "));
  EXPECT_FALSE(offers(explain_typed(model + "-b 64 --speculate 7 --accepted 1.4 --itl 14ms"),
                      "speculation"));
  EXPECT_TRUE(offers(explain_typed(model + "-b 64 --speculate 7 --accepted 1.4 --itl 14ms"),
                     "3 drafts instead of 7"));
}

TEST(Cases, TheEngineNamesItsSetting) {
  const std::string seen = " --running 16 --waiting 120 --kv-usage 0.4";
  EXPECT_EQ(explain_typed("--stack vllm" + seen).levers.front().setting, "--max-num-seqs");
  EXPECT_EQ(explain_typed("--stack sglang" + seen).levers.front().setting,
            "--max-running-requests");
}

TEST(Cases, OptionsReadWhatToolsPrint) {
  EXPECT_EQ(*explain_typed("--cpu 383% --running 9").seen[Quantity::cpu], 1);
  EXPECT_EQ(*explain_typed("--arrivals 20req/s --served 6rps").seen[Quantity::arrivals_per_s], 20);
  try {
    explain_typed("--gpu-util 60");
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("85%"), std::string::npos) << error.what();
  }
}

TEST(Cases, AcceptedIsALengthOrAShare) {
  const auto accepted = [](const char* text) {
    return *explain_typed(std::string("-b 1 --itl 9ms --speculate 4 --accepted ") + text)
                .seen[Quantity::accepted];
  };
  EXPECT_NEAR(accepted("2.4"), 1.4, 1e-9);
  EXPECT_NEAR(accepted("0.35"), 1.4, 1e-9);
  EXPECT_NEAR(accepted("35%"), 1.4, 1e-9);
  EXPECT_NEAR(accepted("100%"), 4, 1e-9);
  EXPECT_THROW(accepted("5.5"), Error);
  EXPECT_THROW(explain_typed("-b 1 --itl 9ms --accepted 0.3"), Error);
}

}  // namespace
}  // namespace ridge
