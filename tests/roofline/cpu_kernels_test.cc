#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "machine/atlas.h"
#include "roofline/kernels/cpu.h"
#include "roofline/roofline.h"
#include "roofline/stack.h"

namespace ridge {
namespace {

constexpr CpuKernelRates kTwoCores{1 / 200e9, 1 / 40e9, 2};

CpuKernels avx2_kernels() {
  const Stack stack = find_stack("ridge");
  for (const CpuKernels& kernels : stack.cpu) {
    if (kernels.isa == "AVX2") return kernels;
  }
  throw Error("the stack has no figures for AVX2");
}

Op cpu_gemm_op(double m, CpuFormat format) {
  MatmulShape shape;
  shape.m = m, shape.k = 1024, shape.n = 4096;
  shape.format = format;
  Op op;
  op.math = DType::fp32;
  op.work = matmul_work(shape);
  op.shape = shape;
  return op;
}

Op decode_op(double heads, double kv_heads, double context) {
  BatchedAttention attention;
  attention.shape.heads = heads, attention.shape.kv_heads = kv_heads;
  attention.shape.head_dim = attention.shape.v_head_dim = 64;
  attention.shape.kv_bytes = 2;
  attention.span = {1, 1, context};
  Op op;
  op.kind = OpKind::attention_decode;
  op.work = flash_attention_work(attention.shape, attention.span);
  op.shape = attention;
  return op;
}

TEST(CpuKernels, BelongToOneInstructionSet) {
  const Stack stack = find_stack("ridge");
  const auto has_figures = [&](const char* machine) {
    return make_ceilings(find_system(machine), {}, stack).cpu != nullptr;
  };
  EXPECT_TRUE(has_figures("ryzen-5950x"));      // AVX2
  EXPECT_FALSE(has_figures("ryzen-7950x"));     // AVX-512, BF16, VNNI
  EXPECT_FALSE(has_figures("core-i9-14900k"));  // AVX2 with VNNI: other kernels
  EXPECT_FALSE(has_figures("h100-sxm"));
}

TEST(CpuKernels, EveryFormatOfTheEngineHasFigures) {
  const CpuKernels kernels = avx2_kernels();
  for (int i = 1; i < kCpuFormatCount; ++i) {
    const CpuGemm& gemm = kernels.gemms[size_t(i)];
    EXPECT_GT(gemm.bits, 0) << i;
    EXPECT_GT(gemm.tile + gemm.token, 0) << i;
    EXPECT_GT(gemm.panel_token, 0.5) << i;
  }
}

TEST(CpuKernels, GemmsReadWhatThePackedFormatHolds) {
  const CpuKernels kernels = avx2_kernels();
  const auto memory = [&](CpuFormat format) {
    return cpu_time(cpu_gemm_op(1, format), kernels, kTwoCores)->memory;
  };
  EXPECT_DOUBLE_EQ(memory(CpuFormat::q5_k), 2 * memory(CpuFormat::q4_0));  // 9 bits, 4.5 bits
  EXPECT_DOUBLE_EQ(memory(CpuFormat::q5_0), memory(CpuFormat::q8_0));
  EXPECT_NEAR(memory(CpuFormat::bf16), 1024 * 4096 * 2 / 40e9 / kernels.memory, 1e-12);
}

TEST(CpuKernels, WeightsAreUnpackedForEveryTileOfTokens) {
  CpuKernels kernels;
  kernels.tile_tokens = 3;
  kernels.gemms[size_t(CpuFormat::bf16)] = {16, 5, 2, 7, 3};
  const auto operations = [&](double m) {
    const CpuTime time = *cpu_time(cpu_gemm_op(m, CpuFormat::bf16), kernels, kTwoCores);
    return time.compute * 200e9 / (1024 * 4096);
  };
  EXPECT_NEAR(operations(1), 5 + 2, 1e-9);
  EXPECT_NEAR(operations(3), 5 + 6, 1e-9);
  EXPECT_NEAR(operations(4), 10 + 8, 1e-9);
  EXPECT_NEAR(operations(9), 7 + 27, 1e-9);      // a panel
  EXPECT_NEAR(operations(133), 14 + 399, 1e-9);  // two blocks of tokens
  EXPECT_FALSE(cpu_time(cpu_gemm_op(1, CpuFormat::other), kernels, kTwoCores));
}

TEST(CpuKernels, ArithmeticAndReadsAddUp) {
  const Ceilings c = make_ceilings(find_system("ryzen-5950x"), {}, find_stack("ridge"));
  const Estimate e = estimate(cpu_gemm_op(4, CpuFormat::bf16), c);
  double sum = 0;
  for (const double seconds : e.on) sum += seconds;
  EXPECT_DOUBLE_EQ(e.expected_s, sum);
  EXPECT_GE(e.expected_s, e.roof_s);
  EXPECT_LE(e.low_s, e.expected_s);
  EXPECT_GE(e.high_s, e.expected_s);
}

TEST(CpuKernels, OneShortKvHeadLeavesACoreIdle) {
  const CpuKernels kernels = avx2_kernels();
  const auto compute = [&](double kv_heads, double context) {
    return cpu_time(decode_op(2 * kv_heads, kv_heads, context), kernels, kTwoCores)->compute;
  };
  // One job on one of two cores takes as long as two jobs on both.
  EXPECT_DOUBLE_EQ(compute(1, 500), compute(2, 500));
  // Beyond a span of 1024 keys the jobs are split.
  EXPECT_LT(compute(1, 2047), 0.6 * compute(2, 2047));
}

TEST(CpuKernels, SoftmaxTakesWholeTilesOfKeys) {
  CpuKernels kernels;
  kernels.caches[1] = {0, 0, 1, 0};
  const auto scores = [&](double fresh, double past) {
    Op op = decode_op(2, 2, past);
    std::get<BatchedAttention>(op.shape).span = {1, fresh, past};
    return cpu_time(op, kernels, kTwoCores)->compute * 200e9 / 2;
  };
  for (const auto& [fresh, past] :
       {std::pair{1, 0}, {1, 63}, {1, 64}, {5, 62}, {40, 0}, {130, 17}}) {
    double tiles = 0;
    for (int i = 1; i <= fresh; ++i) tiles += (past + i + 63) / 64;
    EXPECT_NEAR(scores(fresh, past), 64 * tiles, 1e-6) << fresh << " " << past;
  }
}

TEST(CpuKernels, ACacheKeepsPartOfALargerSet) {
  System system = find_system("ryzen-5950x");
  for (Level& level : system.device.levels) {
    if (level.name == "L3") level.read_bandwidth = 500e9;
  }
  const Machine &cpu = system.device, gpu = find_machine("h100-sxm");
  const double held = *cpu.cache()->total_capacity();
  EXPECT_EQ(cached_share(cpu, 0.5 * held), 1);
  double before = 1;
  for (double sets = 0.8; sets < 6; sets *= 1.3) {
    const double share = cached_share(cpu, sets * held);
    EXPECT_LT(share, before) << sets;
    // What stays and what is replaced balance.
    EXPECT_NEAR(share, std::exp(-(1 - share) * sets / 0.75), 1e-4) << sets;
    before = share;
  }
  EXPECT_LT(before, 0.01);
  EXPECT_EQ(cached_share(gpu, 1.01 * *gpu.cache()->total_capacity()), 0);

  Ceilings c = make_ceilings(system, {}, find_stack("ridge"));
  const double memory_s = c.memory_s, cache_s = 1 / *cpu.cache()->read_bandwidth;
  place_working_set(c, cpu, held);
  EXPECT_LT(c.memory_s, memory_s);
  EXPECT_GT(c.memory_s, cache_s);
}

TEST(CpuKernels, FiguresThatMakeNoSenseAreRefused) {
  const auto read = [](const char* text) {
    return read_cpu_kernels(nlohmann::json::parse(text), "here");
  };
  EXPECT_THROW(read("{}"), Error);
  EXPECT_THROW(read(R"([{"gemm": {"nvfp4": {"bits": 4}}}])"), Error);
  EXPECT_THROW(read(R"([{"memory": 0}])"), Error);
  EXPECT_EQ(read("[]").size(), 0u);
}

}  // namespace
}  // namespace ridge
