// Operators against ceilings: the roof, the wall, what is unknown.
#include "roofline/roofline.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "cost/collective.h"
#include "cost/elementwise.h"
#include "cost/matmul.h"
#include "machine/atlas.h"
#include "model/read.h"
#include "roofline/pipeline.h"
#include "step/lower.h"
#include "step/support.h"

namespace ridge {
namespace {

Op matmul_op(double m, double k, double n, DType math = DType::bf16) {
  return {"product", OpKind::matmul, math, matmul_work({.m = m, .k = k, .n = n, .math = math}), 1};
}

Ceilings ideal(const char* machine, const Plan& plan = {}) {
  return make_ceilings(find_system(machine), plan, find_stack("ideal"));
}

bool mentions(const std::vector<std::string>& notes, const std::string& text) {
  return std::any_of(notes.begin(), notes.end(),
                     [&](const std::string& n) { return n.find(text) != std::string::npos; });
}

TEST(Roofline, ExpectedIsNeverBelowTheRoof) {
  const Sequences steps[] = {{1, 1, 99, 1}, {64, 1, 4095, 1}, {1, 777, 0, 1}, {4, 5, 1000, 5}};
  Plan eager = parallel({.tp = 2});
  eager.graphs = eager.fusion = eager.flash = false;
  Plan narrow = parallel({.tp = 4});
  narrow.weights = format_from_name("fp8");
  Plan staged = parallel({.tp = 2, .pp = 2});
  for (const char* name : {"llama-3-8b", "mixtral-8x7b", "deepseek-v3.2", "qwen3-next-80b-a3b",
                           "gemma-3-27b", "gpt-oss-20b", "lfm2-1.2b"}) {
    const Model model = find_model(name);
    for (const char* machine :
         {"8xh100-sxm", "8xa100-sxm-80gb", "8xmi300x", "4xl40s", "8xtpu-v5e", "4xv100-sxm2"}) {
      for (const Plan& plan : {Plan{}, eager, narrow, staged}) {
        const Rank rank = make_rank(model, plan);
        for (const char* stack : {"ideal", "typical", "ridge-cuda"}) {
          const Ceilings c = make_ceilings(find_system(machine), plan, find_stack(stack));
          for (const Sequences& s : steps) {
            std::vector<Op> ops;
            lower(rank, {&s, 1}, ops);
            for (const Op& op : ops) {
              const Estimate e = estimate(op, c);
              ASSERT_TRUE(std::isfinite(e.expected_s)) << name << machine << op.name;
              ASSERT_GT(e.roof_s, 0) << name << machine << op.name;
              ASSERT_LE(e.roof_s, e.expected_s * (1 + 1e-12)) << name << machine << op.name;
              ASSERT_NE(e.wall, e.next_wall);
              const double slowest = *std::max_element(e.on.begin(), e.on.end());
              ASSERT_EQ(e.on[static_cast<int>(e.wall)], slowest);
            }
            const StepEstimate step = estimate_step(ops, c, rank.math);
            ASSERT_LE(step.roof_s, step.low_s * (1 + 1e-12));
            ASSERT_LE(step.low_s, step.expected_s * (1 + 1e-12));
            ASSERT_LE(step.expected_s, step.high_s * (1 + 1e-12));
          }
        }
      }
    }
  }
}

TEST(Roofline, RoofIsTheSlowestCeiling) {
  const Ceilings c = ideal("h100-sxm");
  // One row: 2 k n bytes at 3.35 TB/s. 8192 rows: 2 m k n operations at 989.4 TFLOP/s.
  const Estimate thin = estimate(matmul_op(1, 8192, 8192), c);
  EXPECT_NEAR(thin.roof_s, (2 * 8192.0 * 8192 + 4 * 8192) / 3.35e12, 1e-3 * thin.roof_s);
  EXPECT_EQ(thin.wall, Wall::memory);
  const Estimate thick = estimate(matmul_op(8192, 8192, 8192), c);
  EXPECT_NEAR(thick.roof_s, 2 * std::pow(8192.0, 3) / 989.4e12, 1e-3 * thick.roof_s);
  EXPECT_EQ(thick.wall, Wall::compute);
  EXPECT_EQ(thick.roof_s, thick.expected_s);  // the ideal stack reaches the roof
}

TEST(Roofline, AttainableTurnsAtTheRidge) {
  EXPECT_DOUBLE_EQ(attainable(1000, 10, 50), 500);
  EXPECT_DOUBLE_EQ(attainable(1000, 10, 100), 1000);
  EXPECT_DOUBLE_EQ(attainable(1000, 10, 500), 1000);
}

TEST(Roofline, HostLinkIsAWall) {
  Op op = matmul_op(1, 8192, 8192);
  op.work.host_bytes = op.work.weight_bytes;
  const Estimate e = estimate(op, ideal("h100-sxm"));
  const double rate = *find_machine("h100-sxm").level("host")->read_bandwidth;
  EXPECT_EQ(e.wall, Wall::host_link);
  EXPECT_EQ(e.next_wall, Wall::memory);
  EXPECT_DOUBLE_EQ(e.roof_s, op.work.host_bytes / rate);
}

TEST(Roofline, UnknownHostLinkRefusesOffload) {
  Plan plan;
  plan.offload = 0.5;
  ASSERT_EQ(find_machine("tpu-v5e").level("host"), nullptr);
  EXPECT_THROW(ideal("tpu-v5e", plan), Error);
  EXPECT_NO_THROW(ideal("tpu-v5e"));
}

TEST(Roofline, LinksAreAWallAndNodesAreSlower) {
  const Op reduce{"r", OpKind::collective, DType::bf16,
                  collective_work(Collective::all_reduce, 64e6, 8), 1};
  const Estimate inside = estimate(reduce, ideal("8xh100-sxm", parallel({.tp = 8})));
  EXPECT_EQ(inside.wall, Wall::interconnect);
  // 2 (n-1)/n of the message at 450 GB/s and at most a few microseconds of messages.
  const double bytes_s = 2 * 7.0 / 8 * 64e6 / 450e9;
  EXPECT_GE(inside.roof_s, bytes_s);
  EXPECT_LE(inside.roof_s, bytes_s + 20e-6);
  const Op wide{"r", OpKind::collective, DType::bf16,
                collective_work(Collective::all_reduce, 64e6, 16), 1};
  const Estimate across = estimate(wide, ideal("2x8xh100-sxm", parallel({.tp = 16})));
  EXPECT_GT(across.roof_s, inside.roof_s);
}

double all_reduce_s(const char* system, double bytes, const char* stack) {
  const System devices = find_system(system);
  Plan plan;
  plan.tp = devices.devices_per_node;
  const Op op{"all-reduce", OpKind::collective, DType::bf16,
              collective_work(Collective::all_reduce, bytes, plan.tp), 1};
  return estimate(op, make_ceilings(devices, plan, find_stack(stack))).expected_s;
}

// Measured on two GeForce cards without peer-to-peer: 39 us for 10 KB, 1.9 GB/s for 20 MB on one
// host; plain copies reach 10 GB/s.
TEST(Roofline, WithoutPeerToPeerMessagesPassThroughTheHost) {
  for (const char* stack : {"typical", "vllm"}) {
    for (const char* system : {"2xrtx-4090", "2xrtx-3080", "2xrtx-5090"}) {
      EXPECT_NEAR(all_reduce_s(system, 10e3, stack), 39e-6, 12e-6) << system;
      const double rate = 20e6 / all_reduce_s(system, 20e6, stack);
      EXPECT_GT(rate, 1.9e9) << system;
      EXPECT_LT(rate, 10e9) << system;
    }
    for (const double bytes : {10e3, 1e6, 20e6}) {
      EXPECT_LT(all_reduce_s("2xl40s", bytes, stack), all_reduce_s("2xrtx-4090", bytes, stack));
    }
  }
}

TEST(Roofline, ABridgeJoinsTwoAndPcieTheRest) {
  const auto link_s = [](const char* system) {
    const System devices = find_system(system);
    Plan plan;
    plan.tp = devices.devices_per_node;
    return make_ceilings(devices, plan, find_stack("ideal")).link_s;
  };
  EXPECT_DOUBLE_EQ(link_s("2xa100-pcie-80gb"), 1 / 300e9);
  EXPECT_DOUBLE_EQ(link_s("4xa100-pcie-80gb"), 1 / 31.508e9);
  EXPECT_DOUBLE_EQ(link_s("2xrtx-3090"), 1 / 56.25e9);
  EXPECT_DOUBLE_EQ(link_s("4xrtx-3090"), 2 / 31.508e9);  // to the host and back
}

TEST(Roofline, AStackWithoutTilesHasTheVectorPeaksOfACpu) {
  const auto peak = [](const char* machine, const char* stack, DType dtype) {
    return make_ceilings(find_system(machine), {}, find_stack(stack)).peak[static_cast<int>(dtype)];
  };
  EXPECT_DOUBLE_EQ(peak("xeon-8480p", "typical", DType::bf16), 114.7e12);  // AMX
  EXPECT_DOUBLE_EQ(peak("xeon-8480p", "llama.cpp", DType::bf16), 2 * 7.168e12);
  EXPECT_DOUBLE_EQ(peak("xeon-8480p", "ridge", DType::bf16), 114.7e12);
  EXPECT_DOUBLE_EQ(peak("xeon-8480p", "ridge", DType::int8), 4 * 7.168e12);
  EXPECT_DOUBLE_EQ(peak("xeon-8480p", "ridge", DType::fp32), 7.168e12);
  for (const DType dtype : {DType::fp32, DType::bf16, DType::int8}) {  // Zen has no tiles
    EXPECT_NEAR(peak("epyc-9755", "ridge", dtype) / peak("epyc-9755", "typical", dtype), 1, 1e-3);
  }
}

// Ridge multiplies bf16 in tiles, and block formats of large steps; attention is predicted in
// vectors.
TEST(Roofline, OnlyTheGemmsOfRidgeRunInTiles) {
  const Stack ridge = find_stack("ridge");
  const Ceilings c = make_ceilings(find_system("xeon-8480p"), {}, ridge);
  Op gemm = matmul_op(4096, 4096, 4096);
  EXPECT_DOUBLE_EQ(estimate(gemm, c).roof_s, gemm.work.flops / 114.7e12);
  EXPECT_NEAR(estimate(gemm, c).expected_s, gemm.work.flops / (ridge.cpu_tile_compute * 114.7e12),
              c.launch_s * 1.01);
  gemm.kind = OpKind::attention_prefill;
  EXPECT_DOUBLE_EQ(estimate(gemm, c).roof_s, gemm.work.flops / (2 * 7.168e12));
}

TEST(Roofline, LaunchesAreAWallWithoutGraphs) {
  Plan eager;
  eager.graphs = false;
  const Stack typical = find_stack("typical");
  const System h100 = find_system("h100-sxm");
  const Op tiny{"t", OpKind::elementwise, DType::bf16, norm_work(1, 4096, 2, true), 1};
  const Estimate slow = estimate(tiny, make_ceilings(h100, eager, typical));
  const Estimate fast = estimate(tiny, make_ceilings(h100, {}, typical));
  EXPECT_EQ(slow.wall, Wall::launch);
  EXPECT_GT(slow.expected_s, fast.expected_s);
  EXPECT_EQ(slow.roof_s, fast.roof_s);  // launches are no part of the roof
}

TEST(Roofline, UnknownPeakIsAssumedAndSaidSo) {
  System unknown = find_system("m4-max");
  unknown.device.peak.fill(std::nullopt);
  const Ceilings c = make_ceilings(unknown, {}, find_stack("ideal"));
  EXPECT_TRUE(mentions(c.notes, "no published"));
  const Estimate e = estimate(matmul_op(8192, 8192, 8192), c);
  EXPECT_GT(e.on[static_cast<int>(Wall::compute)], 0);
  EXPECT_EQ(e.wall, Wall::compute);
  const Op op = matmul_op(1, 4096, 4096);
  EXPECT_EQ(estimate_step({&op, 1}, c, DType::bf16).mfu, 0);
  EXPECT_FALSE(mentions(ideal("h100-sxm").notes, "left out"));
}

TEST(Roofline, UnknownBandwidthIsRefused) {
  System system = find_system("h100-sxm");
  for (Level& level : system.device.levels) {
    if (level.name == system.device.memory().name) level.read_bandwidth.reset();
  }
  EXPECT_THROW(make_ceilings(system, {}, find_stack("ideal")), Error);
  system.device.notes = "Measuring it takes 128 MB of free memory, which could not be had.";
  try {
    make_ceilings(system, {}, find_stack("ideal"));
    FAIL() << "made";
  } catch (const Error& error) {
    EXPECT_EQ(
        std::string(error.what()),
        "h100-sxm: the bandwidth of HBM is unknown, so nothing can be predicted. Measuring it "
        "takes 128 MB of free memory, which could not be had.");
  }
}

TEST(Roofline, UnknownLinksAreRefusedOnlyWhereNeeded) {
  System system = find_system("2x8xh100-sxm");
  std::erase_if(system.device.levels, [](const Level& l) { return l.name == "network"; });
  EXPECT_THROW(make_ceilings(system, parallel({.tp = 8, .pp = 2}), find_stack("ideal")), Error);
  EXPECT_NO_THROW(make_ceilings(system, {}, find_stack("ideal")));
}

TEST(Roofline, MissingUnitsRunInTheNextWiderType) {
  const Ceilings a100 = ideal("a100-sxm-80gb"), h100 = ideal("h100-sxm"), v100 = ideal("v100-sxm2");
  const auto runs = [](const Ceilings& c, DType d) { return c.runs_as[static_cast<int>(d)]; };
  EXPECT_EQ(runs(a100, DType::fp8), DType::bf16);
  EXPECT_EQ(runs(h100, DType::fp8), DType::fp8);
  EXPECT_EQ(runs(h100, DType::fp4), DType::fp8);
  EXPECT_EQ(runs(v100, DType::bf16), DType::fp16);
  // On an A100 fp8 arithmetic takes as long as bf16; on an H100 half.
  const auto seconds = [](const Ceilings& c, DType d) {
    return estimate(matmul_op(8192, 8192, 8192, d), c).on[static_cast<int>(Wall::compute)];
  };
  EXPECT_DOUBLE_EQ(seconds(a100, DType::fp8), seconds(a100, DType::bf16));
  EXPECT_NEAR(seconds(h100, DType::bf16) / seconds(h100, DType::fp8), 2, 0.01);
}

TEST(Roofline, AWorkingSetInTheCacheStreamsFromIt) {
  const Machine h100 = find_machine("h100-sxm");
  const double cache = *h100.cache()->total_capacity();
  Ceilings c = ideal("h100-sxm");
  const double from_memory = c.memory_s;
  place_working_set(c, h100, cache * 1.01);
  EXPECT_EQ(c.memory_s, from_memory);
  place_working_set(c, h100, cache);
  EXPECT_DOUBLE_EQ(c.memory_s, 1 / *h100.cache()->read_bandwidth);
  EXPECT_LT(c.memory_s, from_memory);
  EXPECT_TRUE(mentions(c.notes, "working set fits"));
}

TEST(Roofline, StepsAddUp) {
  const Ceilings c = make_ceilings(find_system("h100-sxm"), {}, find_stack("typical"));
  std::vector<Op> ops{matmul_op(1, 4096, 4096), matmul_op(512, 4096, 4096)};
  ops[0].count = 3;
  const StepEstimate both = estimate_step(ops, c, DType::bf16);
  const Estimate a = estimate(ops[0], c), b = estimate(ops[1], c);
  EXPECT_DOUBLE_EQ(both.roof_s, 3 * a.roof_s + b.roof_s);
  EXPECT_DOUBLE_EQ(both.expected_s, 3 * a.expected_s + b.expected_s + c.step_s);
  StepEstimate sum;
  append(sum, both, c, DType::bf16);
  append(sum, both, c, DType::bf16);
  EXPECT_DOUBLE_EQ(sum.expected_s, 2 * both.expected_s);
  EXPECT_DOUBLE_EQ(sum.mfu, both.mfu);
  EXPECT_EQ(sum.wall, both.wall);
}

TEST(Stack, BothAreReadAndOthersRefused) {
  const Stack ideal_stack = find_stack("ideal"), typical = find_stack("typical");
  for (int i = 0; i < kOpKindCount; ++i) {
    EXPECT_EQ(ideal_stack.kinds[i].compute, 1);
    EXPECT_EQ(ideal_stack.kinds[i].memory, 1);
    EXPECT_EQ(ideal_stack.kinds[i].ramp, 0);
    EXPECT_LT(typical.kinds[i].memory, 1);
    EXPECT_GT(typical.kinds[i].memory, 0.3);
  }
  EXPECT_FALSE(ideal_stack.counts_launches);
  EXPECT_LT(typical.low, 1);
  EXPECT_GT(typical.high, 1);
  EXPECT_FALSE(typical.basis.empty());  // documented, as long as it is not calibrated
  try {
    find_stack("vllm-9000");
    FAIL() << "an unknown stack was found";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("typical"), std::string::npos);
  }
}

TEST(Pipeline, MoreStagesAreNeverSlower) {
  for (const char* name : {"h100-sxm", "h200", "a100-sxm-80gb", "v100-sxm2"}) {
    const Machine machine = find_machine(name);
    for (double reuse : {0.0, 0.5, 0.95, 1.0}) {
      for (double k : {16.0, 64.0, 128.0}) {
        double last = INFINITY;
        for (int stages = 1; stages <= 8; ++stages) {
          const PipelineResult r =
              simulate_pipeline(machine, {.k = k, .stages = stages, .reuse = reuse});
          EXPECT_LE(r.seconds, last * (1 + 1e-12)) << name;
          EXPECT_NEAR(r.hbm + r.cache + r.waiting + r.computing, 1, 1e-9);
          EXPECT_LE(r.compute_share, 1 + 1e-9);
          last = r.seconds;
        }
      }
    }
  }
}

TEST(Pipeline, LivesAreInOrderAndBuffersAreReused) {
  const TileShape shape{.stages = 3, .steps = 12};
  const PipelineResult r = simulate_pipeline(find_machine("h100-sxm"), shape);
  ASSERT_EQ(r.lives.size(), 12u);
  for (size_t i = 0; i < r.lives.size(); ++i) {
    const TileLife& t = r.lives[i];
    EXPECT_LE(t.issued, t.from_hbm);
    EXPECT_LE(t.from_hbm, t.in_shared);
    EXPECT_LE(t.in_shared, t.computing);
    EXPECT_LT(t.computing, t.done);
    if (i > 0) {
      EXPECT_GE(t.computing, r.lives[i - 1].done);
    }
    if (i >= 3) {
      EXPECT_GE(t.issued, r.lives[i - 3].done);
    }
  }
}

TEST(Pipeline, AsFastAsItsSlowestPart) {
  const Machine h100 = find_machine("h100-sxm");
  for (double reuse : {0.0, 0.9}) {
    const TileShape shape{.stages = 8, .steps = 200, .reuse = reuse};
    const PipelineResult r = simulate_pipeline(h100, shape);
    const double memory =
        200 * shape.stage_bytes() * (1 - reuse) * *h100.units / *h100.memory().read_bandwidth;
    const double compute = 200 * shape.flops() * *h100.units / *h100.peak_of(DType::fp16);
    const double cache = 200 * shape.stage_bytes() * *h100.units / *h100.cache()->read_bandwidth;
    const double slowest = std::max({memory, cache, compute});
    EXPECT_GE(r.seconds, slowest);
    EXPECT_LE(r.seconds, 1.1 * slowest);  // 200 steps hide the fill of eight buffers
  }
}

TEST(Pipeline, FitsIsTheCapacityOfSharedMemory) {
  const Machine h100 = find_machine("h100-sxm");  // 228 KiB; a 128x128x64 stage takes 32 KiB
  EXPECT_TRUE(simulate_pipeline(h100, {.stages = 7}).fits);
  EXPECT_FALSE(simulate_pipeline(h100, {.stages = 8}).fits);
  EXPECT_EQ(simulate_pipeline(h100, {.stages = 7}).shared_bytes, 7 * 32 * 1024);
}

TEST(Pipeline, BadShapesAndBareMachinesAreRefused) {
  const Machine h100 = find_machine("h100-sxm");
  for (const TileShape& bad :
       {TileShape{.m = 0}, TileShape{.k = -64}, TileShape{.n = 1e9}, TileShape{.m = NAN},
        TileShape{.stages = 0}, TileShape{.stages = 65}, TileShape{.steps = 0},
        TileShape{.steps = 1000000}, TileShape{.reuse = 1.5}, TileShape{.reuse = NAN}}) {
    EXPECT_THROW(simulate_pipeline(h100, bad), Error);
  }
  EXPECT_THROW(simulate_pipeline(find_machine("m4-max"), {}), Error);  // no peak
}

}  // namespace
}  // namespace ridge
