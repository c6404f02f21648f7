#include "engine/cuda/gemm/prefill_gemm_layout.cuh"
#include "engine/cuda/gemm/tensor_map.cuh"

namespace ridge::cuda {

namespace {

PrefillGemmArgs prefill_args(WeightFormat format, const LinearArgs& gemm, int stage_columns) {
  PrefillGemmArgs args = {};
  args.gemm = gemm;
  const int columns = gemm.tiles.chunks * format_info(format).columns;
  args.gemm.row_tiles = (gemm.tiles.blocks + prefill::kBlocks - 1) / prefill::kBlocks;
  args.gemm.k_steps = (columns + stage_columns - 1) / stage_columns;
  args.weights =
      weight_map(format, gemm.tiles, gemm.matrix, gemm.matrices, prefill::kBlocks, stage_columns);
  args.tokens = token_map(gemm.x, gemm.padded, args.gemm.k_steps, prefill::kTokenGroups);
  if (gemm.epilogue != Epilogue::gate) {
    args.rows = row_map(gemm.rows, gemm.row_count, gemm.stride, gemm.tokens, prefill::kPieceTokens);
  }
  return args;
}

}  // namespace

bool has_prefill_gemm(const LinearArgs& args, int tile_tokens) {
  return tile_tokens == prefill::kTokens && !args.stream_k && args.softcap == 0 &&
         args.k_steps >= prefill::kMinSteps &&
         (args.epilogue == Epilogue::gate || args.stride % 4 == 0);
}

void prefill_gemm(cudaStream_t stream, WeightFormat format, int sms, const LinearArgs& gemm) {
  const PrefillGemmArgs args = prefill_args(format, gemm, 64);
  switch (format) {
    case WeightFormat::bf16:
      return prefill::launch<WeightFormat::bf16, false>(stream, sms, args);
    case WeightFormat::fp8:
      return prefill::launch<WeightFormat::fp8, false>(stream, sms, args);
    case WeightFormat::int8:
      return prefill::launch<WeightFormat::int8, false>(stream, sms, args);
    case WeightFormat::int4:
      return prefill::launch<WeightFormat::int4, false>(stream, sms, args);
    case WeightFormat::nf4:
      return prefill::launch<WeightFormat::nf4, false>(stream, sms, args);
    case WeightFormat::mxfp4:
      return prefill::launch<WeightFormat::mxfp4, false>(stream, sms, args);
  }
}

void prefill_gemm_fp8(cudaStream_t stream, int sms, const LinearArgs& gemm,
                      const float* token_scale) {
  PrefillGemmArgs args = prefill_args(WeightFormat::fp8, gemm, 128);
  args.token_scale = token_scale;
  prefill::launch<WeightFormat::fp8, true>(stream, sms, args);
}

}  // namespace ridge::cuda
