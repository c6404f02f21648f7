// The kernel models: monotone, above the roof where the data is cold, and cheap.
#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "base/json.h"
#include "machine/atlas.h"
#include "roofline/kernel_fits.h"

namespace ridge {
namespace {

GpuTraits traits(const char* name) { return gpu_traits(find_machine(name)); }

GemmCall product(double m, double n, double k) {
  GemmCall call;
  call.m = m;
  call.n = n;
  call.k = k;
  return call;
}

AttentionCall attention(double batch, double length, double heads = 32, double kv_heads = 8) {
  AttentionCall call;
  call.batch = batch;
  call.length = length;
  call.heads = heads;
  call.kv_heads = kv_heads;
  call.head_dim = call.v_head_dim = 128;
  call.resident = false;
  return call;
}

MoeCall experts(double tokens) {
  MoeCall call;
  call.tokens = tokens;
  call.hidden = 4096;
  call.inter = 1536;
  call.top_k = 8;
  call.experts = 128;
  call.load = balanced_load(tokens, 8, 128, 1);
  return call;
}

TEST(Traits, ComputeCapabilityNamesTheArchitecture) {
  EXPECT_EQ(traits("h100-sxm").arch, Arch::hopper);
  EXPECT_EQ(traits("gb300").arch, Arch::blackwell);
  EXPECT_EQ(traits("rtx-pro-6000-server").arch, Arch::blackwell_rtx);
  EXPECT_EQ(traits("l40s").arch, Arch::ada);
  EXPECT_THROW(arch_from_name("kepler"), Error);
  // A100 has no fp8 units: such a product runs in 16 bits.
  const GpuTraits a100 = traits("a100-sxm-80gb");
  EXPECT_EQ(a100.peak_of(DType::fp8), a100.peak_of(DType::bf16));
}

TEST(GemmKernel, NeverFasterThanTheRoofWithColdWeights) {
  const GpuTraits gpu = traits("h100-sxm");
  const GemmParams params;
  for (double m = 1; m <= 16384; m *= 4)
    for (double n : {512.0, 4096.0, 28672.0})
      for (double k : {512.0, 4096.0, 14336.0}) {
        const GemmCall call = product(m, n, k);
        EXPECT_GE(gemm_seconds(call, gpu, params), 0.85 * roof_seconds(KernelKind::gemm, call, gpu))
            << m << "x" << n << "x" << k;
      }
}

TEST(GemmKernel, MoreWorkTakesLonger) {
  const GpuTraits gpu = traits("h100-sxm");
  const GemmParams params;
  double last = 0;
  for (double m = 64; m <= 32768; m *= 2) {
    const double t = gemm_seconds(product(m, 8192, 8192), gpu, params);
    EXPECT_GE(t, last * 0.999) << m;
    last = t;
  }
  last = 0;
  for (double k = 256; k <= 65536; k *= 2) {
    const double t = gemm_seconds(product(16, 4096, k), gpu, params);
    EXPECT_GE(t, last * 0.999) << k;
    last = t;
  }
}

TEST(GemmKernel, WarmWeightsAreFasterThanCold) {
  const GpuTraits gpu = traits("h100-sxm");
  GemmCall call = product(8, 4096, 1024);
  const double cold = gemm_seconds(call, gpu, {});
  call.reuse_bytes = call.n * call.k * 2;
  EXPECT_LT(gemm_seconds(call, gpu, {}), cold);
}

TEST(GemmKernel, QuantizationPassCosts) {
  const GpuTraits gpu = traits("h100-sxm");
  GemmCall call = product(4096, 4096, 4096);
  const double plain = gemm_seconds(call, gpu, {});
  call.quantize = true;
  EXPECT_GT(gemm_seconds(call, gpu, {}), plain);
}

TEST(AttentionKernel, LongerIsSlower) {
  const GpuTraits gpu = traits("h100-sxm");
  double last = 0;
  for (double length = 1; length <= 65536; length *= 2) {
    const double t = prefill_seconds(attention(1, length), gpu, {});
    EXPECT_GE(t, last * 0.999) << length;
    last = t;
  }
  last = 0;
  for (double batch = 1; batch <= 1024; batch *= 2) {
    const double t = decode_seconds(attention(batch, 4096), gpu, {});
    EXPECT_GE(t, last * 0.98) << batch;
    last = t;
  }
}

// Every fit of prompt attention, on the GPU it was made for.
template <typename Check>
void for_each_prefill(Check check) {
  for (const KernelFit& fit : builtin_fits()) {
    const auto* params = std::get_if<PrefillParams>(&fit.params);
    if (!params) continue;
    SCOPED_TRACE(fit.stack + " " + fit.dtype + " " + fit.kernel);
    check(*params);
  }
}

TEST(PromptAttention, MoreOfAPromptInTheCacheIsNeverSlower) {
  const GpuTraits gpu = traits("h100-sxm");
  for (const double window : {0.0, 1024.0}) {
    for_each_prefill([&](const PrefillParams& params) {
      double last = INFINITY;
      for (double past = 0; past < 8192; past += 1 + std::floor((8192 - past) / 50)) {
        AttentionCall call = attention(1, 8192 - past);
        call.past = past;
        call.window = window;
        const double seconds = prefill_seconds(call, gpu, params);
        // A last tile that is only partly filled computes as much as a full one.
        EXPECT_LE(seconds, last * 1.02) << past << " window " << window;
        last = seconds;
      }
    });
  }
}

TEST(PromptAttention, ChunksCostTheirFixedTimeAndPartialTilesOnly) {
  const GpuTraits gpu = traits("h100-sxm");
  for_each_prefill([&](const PrefillParams& params) {
    const double whole = prefill_seconds(attention(1, 8192), gpu, params);
    for (const double chunk : {2048.0, 512.0, 256.0, 64.0}) {
      double sum = 0;
      for (double past = 0; past < 8192; past += chunk) {
        AttentionCall call = attention(1, chunk);
        call.past = past;
        sum += prefill_seconds(call, gpu, params);
      }
      const double alone = prefill_seconds(attention(1, chunk), gpu, params);
      const double filled = blocks(chunk, params.tile) * params.tile / chunk;
      EXPECT_LE(sum, 8192 / chunk * alone + 1.35 * filled * whole) << chunk;
      EXPECT_GE(sum, 0.9 * whole) << chunk;
    }
  });
}

TEST(AttentionKernel, NeverFasterThanTheRoofWithAColdCache) {
  const GpuTraits gpu = traits("h200");
  for (double batch : {1.0, 8.0, 64.0, 512.0})
    for (double length : {128.0, 2048.0, 32768.0}) {
      const AttentionCall call = attention(batch, length);
      EXPECT_GE(decode_seconds(call, gpu, {}),
                0.9 * roof_seconds(KernelKind::generation_attention, call, gpu));
      EXPECT_GE(prefill_seconds(call, gpu, {}),
                0.9 * roof_seconds(KernelKind::context_attention, call, gpu));
    }
}

TEST(AttentionKernel, AWindowCapsTheWork) {
  const GpuTraits gpu = traits("h200");
  AttentionCall call = attention(1, 65536);
  const double full = prefill_seconds(call, gpu, {});
  call.window = 1024;
  EXPECT_LT(prefill_seconds(call, gpu, {}), 0.2 * full);
}

TEST(AttentionKernel, MlaDecodesOneSharedHead) {
  const AttentionCall call = mla_decode_call(attention(8, 4096, 128, 128));
  EXPECT_EQ(call.kv_heads, 1);
  EXPECT_EQ(call.head_dim, 576);
  EXPECT_TRUE(call.shared_kv);
  EXPECT_EQ(mla_prefill_call(attention(1, 64)).head_dim, 192);
}

TEST(MoeKernel, LoadsCountEveryRow) {
  const ExpertLoad even = balanced_load(64, 8, 128, 1);
  EXPECT_DOUBLE_EQ(even.pairs, 512);
  EXPECT_DOUBLE_EQ(even.active, 128);
  EXPECT_DOUBLE_EQ(even.tiles[0], 128);  // four rows fit one tile of 16
  const ExpertLoad few = balanced_load(1, 8, 128, 1);
  EXPECT_DOUBLE_EQ(few.active, 8);
  const ExpertLoad skewed = power_law_load(1024, 8, 128, 8, 1.2);
  EXPECT_GE(skewed.pairs, 1024);  // the busiest of 8 ranks has at least the mean
  EXPECT_LE(skewed.pairs, 8192);
  EXPECT_LE(skewed.active, 16);
  EXPECT_NEAR(routed_load({128, 8, 0}, 1, 1).active, 8, 1e-9);
  // The busiest of several ranks has more than the mean, and popular experts are fewer.
  const ExpertLoad one = routed_load({128, 8, 0}, 64, 1), ranks = routed_load({128, 8, 0}, 64, 8);
  EXPECT_GT(ranks.active, one.active / 8);
  EXPECT_LE(ranks.active, 16);
  EXPECT_GT(ranks.pairs, one.pairs / 8);
  EXPECT_LT(routed_load({128, 8, 0.7}, 64, 1).active, one.active);
}

TEST(MoeKernel, MoreTokensTakeLonger) {
  const GpuTraits gpu = traits("h100-sxm");
  double last = 0;
  for (double tokens = 1; tokens <= 16384; tokens *= 2) {
    const MoeCall call = experts(tokens);
    const double t = moe_seconds(call, gpu, {});
    EXPECT_GE(t, last * 0.98) << tokens;
    EXPECT_GE(t, 0.85 * roof_seconds(KernelKind::moe, call, gpu)) << tokens;
    last = t;
  }
}

TEST(CollectiveKernel, LatencyThenBandwidth) {
  const GpuTraits gpu = traits("h100-sxm");
  double last = 0;
  for (double bytes = 256; bytes <= 1 << 30; bytes *= 2) {
    const CollectiveCall call{Collective::all_reduce, bytes, 8};
    const double t = collective_kernel_seconds(call, gpu, {});
    EXPECT_GE(t, last);
    EXPECT_GE(t, roof_seconds(KernelKind::nccl, call, gpu));
    last = t;
  }
}

TEST(KernelFits, EveryBuiltInFitReadsBack) {
  const KernelFits& all = builtin_fits();
  ASSERT_GT(all.size(), 50u);
  for (const KernelFit& fit : all) {
    EXPECT_EQ(fit.bands.size(), stratum_names(fit.family).size()) << fit.kernel;
    for (const Band& band : fit.bands) {
      EXPECT_LE(band.low, 1);
      EXPECT_GE(band.high, 1);
    }
  }
}

TEST(KernelFits, TheNearestFitIsTheObviousOne) {
  const KernelFits& all = builtin_fits();
  const auto find = [&](KernelKind family, const char* stack, const char* dtype, Arch arch) {
    return find_fit(all, {family, stack, dtype, "", arch, 0});
  };
  // Fitted: the stack's own numbers on the GPU's own architecture.
  const KernelMatch own = find(KernelKind::gemm, "vllm", "bfloat16", Arch::hopper);
  EXPECT_EQ(own.fit->stack, "vllm");
  EXPECT_EQ(own.fit->arch, Arch::hopper);
  EXPECT_EQ(own.distance, 0);
  // SGLang was never measured on Ada: another stack's numbers there beat its own elsewhere.
  const KernelMatch ada = find(KernelKind::gemm, "sglang", "bfloat16", Arch::ada);
  EXPECT_EQ(ada.fit->arch, Arch::ada);
  EXPECT_GT(ada.distance, 0);
  // Blackwell RTX follows Ada.
  EXPECT_EQ(find(KernelKind::gemm, "vllm", "fp8", Arch::blackwell_rtx).fit->arch, Arch::ada);
  const Band near = band_of(own, 0), far = band_of({own.fit, 2}, 0);
  EXPECT_LT(far.low, near.low);
  EXPECT_GT(far.high, near.high);
}

TEST(KernelFits, EveryFitGivesAFinitePositiveTimeOnEveryGpu) {
  for (const char* name : {"a100-sxm-80gb", "l40s", "h200", "gb300", "rtx-pro-6000-server"}) {
    const GpuTraits gpu = traits(name);
    for (const KernelFit& fit : builtin_fits()) {
      KernelCall call = product(17, 4097, 333);
      if (std::holds_alternative<PrefillParams>(fit.params)) call = attention(3, 777);
      if (std::holds_alternative<DecodeParams>(fit.params)) call = attention(3, 777);
      if (std::holds_alternative<MoeParams>(fit.params)) call = experts(33);
      if (std::holds_alternative<CollectiveParams>(fit.params))
        call = CollectiveCall{Collective::all_reduce, 123456, 4};
      const double t = kernel_seconds(fit, call, gpu);
      EXPECT_TRUE(std::isfinite(t) && t > 0 && t < 1) << name << " " << fit.kernel;
    }
  }
}

TEST(KernelFits, UnknownParametersAreRefused) {
  KernelFits out;
  const auto read = [&](const char* params) {
    read_fits(
        nlohmann::json::parse(
            std::string(R"({"name":"x","calibration":{"fits":[{"op":"gemm","arch":"hopper",)") +
            R"("dtype":"bfloat16","params":)" + params + "}]}}"),
        "x.json", out);
  };
  EXPECT_NO_THROW(read(R"({"t0": 3e-6})"));
  EXPECT_THROW(read(R"({"t1": 3e-6})"), Error);
  EXPECT_THROW(read(R"({"t0": "fast"})"), Error);
  EXPECT_THROW(read(R"({"compute": 12})"), Error);
}

}  // namespace
}  // namespace ridge
