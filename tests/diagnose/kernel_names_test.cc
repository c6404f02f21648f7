#include "diagnose/kernel_names.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace ridge {
namespace {

TEST(KernelNames, FamiliesOfTheEngines) {
  const std::vector<std::pair<const char*, KernelFamily>> cases = {
      {"ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
       KernelFamily::collective},
      {"void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>(vllm::RankData*)",
       KernelFamily::collective},
      // A fused all-reduce and norm waits for the other devices.
      {"void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<"
       "RMSNorm>()",
       KernelFamily::collective},
      {"void deep_ep::internode_ll::dispatch<true, 3, 7168>(void*)", KernelFamily::collective},
      {"fused_moe_kernel", KernelFamily::experts},
      {"void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<"
       "cutlass::gemm::GroupProblemShape<cute::tuple<int, int, int> > > >(Params)",
       KernelFamily::experts},
      {"bmm_E4m3_E4m3E4m3_Fp32_t128x8x128u2_s6_et64x8_m64x8x32_cga1x1x1_16dp256b_TN",
       KernelFamily::experts},
      {"void vllm::moe::topkGatingSoftmax<4, 128, 4, 16>(float const*)", KernelFamily::routing},
      {"void vllm::moe::moe_align_block_size_kernel<int>(int*)", KernelFamily::routing},
      {"void vllm::reshape_and_cache_flash_kernel<__nv_bfloat16>()", KernelFamily::kv_write},
      {"fmha_cutlassF_bf16_aligned_64x64_rf_sm80(AttentionKernel)", KernelFamily::attention},
      {"void flashinfer::BatchDecodeWithPagedKVCacheKernel<(PosEncodingMode)0>()",
       KernelFamily::attention},
      {"kernel_unified_attention_2d", KernelFamily::attention},
      {"void sm90::flash_fwd_splitkv_mla_kernel<T>()", KernelFamily::attention},
      {"void selective_scan_fwd_kernel<Selective_Scan_fwd_kernel_traits<32> >()",
       KernelFamily::attention},
      {"fused_recurrent_gated_delta_rule_fwd_kernel", KernelFamily::attention},
      {"void mul_mat_vec_q<(ggml_type)12, 1, false>(void const*)", KernelFamily::gemm},
      {"nvjet_tst_64x8_64x16_4x1_v_bz_TNT", KernelFamily::gemm},
      {"Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT128x256x32", KernelFamily::gemm},
      {"void cublasLt::splitKreduce_kernel<32, 16, int>()", KernelFamily::gemm},
      {"void deep_gemm::sm90_fp8_gemm_1d2d_impl<>()", KernelFamily::gemm},
      // flashinfer is a library, not only attention.
      {"void flashinfer::norm::FusedAddRMSNormKernel<8u, __nv_bfloat16>()", KernelFamily::norm},
      {"void flashinfer::activation::act_and_mul_kernel<__nv_bfloat16, silu>()",
       KernelFamily::activation},
      {"void flashinfer::sampling::TopKTopPSamplingFromProbKernel<1024u>()",
       KernelFamily::sampling},
      {"triton_red_fused__to_copy_add_mean_mul_pow_rsqrt_2", KernelFamily::norm},
      {"triton_poi_fused_mul_silu_slice_1", KernelFamily::activation},
      {"void vllm::rotary_embedding_kernel<c10::BFloat16, true>()", KernelFamily::rope},
      {"void rope_neox<true, false, float, float>(float const*)", KernelFamily::rope},
      {"void vllm::dynamic_per_token_scaled_fp8_quant_kernel<>()", KernelFamily::quantize},
      {"void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, "
       "at::native::ArgMaxOps<float>, unsigned int, long, 4, 4> >()",
       KernelFamily::sampling},
      {"void at::native::(anonymous namespace)::indexSelectLargeIndex<c10::BFloat16>()",
       KernelFamily::embedding},
      // PyTorch's unfused activation is one more pass over memory.
      {"void at::native::vectorized_elementwise_kernel<4, at::native::(anonymous "
       "namespace)::silu_kernel(at::TensorIteratorBase&)::{lambda()#1}>()",
       KernelFamily::elementwise},
      {"void at::native::(anonymous namespace)::CatArrayBatchedCopy<OpaqueType<2u> >()",
       KernelFamily::elementwise},
      {"triton_poi_fused_add_0", KernelFamily::elementwise},
      {"[CUDA memcpy Host-to-Device]", KernelFamily::copy},
      {"__amd_rocclr_copyBuffer", KernelFamily::copy},
      {"compute_position_kernel", KernelFamily::other},
      {"", KernelFamily::other},
  };
  for (const auto& [name, family] : cases)
    EXPECT_EQ(kernel_family_name(kernel_family(name)), std::string(kernel_family_name(family)))
        << name;
}

TEST(KernelNames, CaseDoesNotMatter) {
  EXPECT_EQ(kernel_family("NCCLDEVKERNEL"), KernelFamily::collective);
  EXPECT_EQ(kernel_family("cIjK_x"), KernelFamily::gemm);
}

TEST(KernelNames, ShortNamesSayWhatRuns) {
  const std::vector<std::pair<const char*, const char*>> cases = {
      {"void cutlass::gemm::Gemm<int, (bool)1>(int, T1::Params)", "cutlass::gemm::Gemm"},
      {"void cutlass::Kernel2<cutlass_80_simt_sgemm_128x32_8x5_nn_align1>(T1::Params)",
       "cutlass_80_simt_sgemm_128x32_8x5_nn_align1"},
      {"enable_if<!T7, void>::type kernel<int, int, __nv_bfloat16, float, 0, "
       "cublasGemvParamsEx<int, float>>(T13)",
       "cublasGemvParamsEx"},
      {"std::enable_if<!T7, void>::type internal::gemvx::kernel<int, float>(T13)",
       "internal::gemvx::kernel"},
      {"void at::native::(anonymous namespace)::CatArrayBatchedCopy<Opaque<2u>, 4>(int)",
       "at::native::CatArrayBatchedCopy"},
      {"void <unnamed>::softmax_warp_forward<float, (bool)0>(T2 *)", "softmax_warp_forward"},
      {"_ZN5aiter24add_rmsnorm_quant_kernelIDF16bDF16bLi64ELi8EEEvPT0_",
       "aiter::add_rmsnorm_quant_kernel"},
      {"_ZN7ck_tile6kentryILi2ENS_11FmhaForwardINS_3QRKEEEEEvPv", "FmhaForward"},
      {"_Z12store_kernelPf", "store_kernel"},
      {"_ZN12_GLOBAL__N_15scaleEPf", "scale"},
      {"fused_moe_kernel", "fused_moe_kernel"},
      {"[CUDA memcpy Host-to-Device]", "[CUDA memcpy Host-to-Device]"},
      {"Memset (Device)", "Memset (Device)"},
      // Damaged names stay readable.
      {"void f<int", "f"},
      {"<<<", "<<<"},
      {"_ZN99999999999999999999x", "_ZN99999999999999999999x"},
      {"", ""},
  };
  for (const auto& [full, brief] : cases) EXPECT_EQ(short_kernel_name(full), brief) << full;
}

TEST(KernelNames, LongNamesAreCutBetweenCharacters) {
  std::string cut(77, 'x');
  cut.append("...");
  EXPECT_EQ(short_kernel_name(std::string(500, 'x')), cut);
  std::string umlauts;
  for (int i = 0; i < 60; ++i) umlauts += "\xC3\xBC";
  const std::string brief = short_kernel_name("x" + umlauts);
  EXPECT_LE(brief.size(), 80u);
  EXPECT_EQ((brief.size() - 1 - 3) % 2, 0u);
}

TEST(KernelNames, BracketsWithoutEndTakeNoTime) {
  EXPECT_EQ(short_kernel_name("f" + std::string(1'000'000, '<')), "f");
  EXPECT_EQ(kernel_family(std::string(1'000'000, '<')), KernelFamily::other);
}

}  // namespace
}  // namespace ridge
