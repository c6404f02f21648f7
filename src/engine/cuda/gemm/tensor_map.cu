#include <cudaTypedefs.h>

#include "engine/cuda/device/device.cuh"
#include "engine/cuda/gemm/tensor_map.cuh"

namespace ridge::cuda {
namespace {

// Looked up at run time: a program linked with the driver would not start where there is none.
PFN_cuTensorMapEncodeTiled_v12000 tensor_map_encoder() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found;
  check(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000,
                                         cudaEnableDefault, &found),
        "looking up cuTensorMapEncodeTiled");
  if (found != cudaDriverEntryPointSuccess) throw Error("the driver has no tensor maps");
  return reinterpret_cast<PFN_cuTensorMapEncodeTiled_v12000>(function);
}

template <int kRank>
CUtensorMap encode(CUtensorMapDataType type, void* data, const cuuint64_t (&sizes)[kRank],
                   const cuuint64_t (&strides)[kRank - 1], const cuuint32_t (&box)[kRank],
                   CUtensorMapSwizzle swizzle) {
  static const PFN_cuTensorMapEncodeTiled_v12000 encoder = tensor_map_encoder();
  cuuint32_t steps[kRank];
  for (cuuint32_t& step : steps) step = 1;
  CUtensorMap map;
  const CUresult result =
      encoder(&map, type, kRank, data, sizes, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
              swizzle, CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) throw Error("the driver refused a tensor map ({})", int(result));
  return map;
}

}  // namespace

CUtensorMap weight_map(WeightFormat format, const Tiles& tiles, int matrix, int matrices,
                       int box_blocks, int box_columns) {
  const FormatInfo info = format_info(format);
  const uint64_t row = uint64_t(tiles.chunks) * info.chunk_bytes;
  const int box_bytes = box_columns / info.columns * info.chunk_bytes;
  return encode<3>(
      CU_TENSOR_MAP_DATA_TYPE_FLOAT64, const_cast<uint8_t*>(tiles.data + tiles.stride * matrix),
      {row / 8, cuuint64_t(tiles.blocks), cuuint64_t(matrices)}, {row, tiles.stride},
      {cuuint32_t(box_bytes / 8), cuuint32_t(box_blocks), 1}, CU_TENSOR_MAP_SWIZZLE_NONE);
}

CUtensorMap token_map(const void* x, int padded, int stages, int box_groups) {
  const cuuint64_t groups = cuuint64_t(padded) / 8;
  return encode<3>(CU_TENSOR_MAP_DATA_TYPE_FLOAT64, const_cast<void*>(x),
                   {128, groups, cuuint64_t(stages)}, {1024, groups * 1024},
                   {128, cuuint32_t(box_groups), 1}, CU_TENSOR_MAP_SWIZZLE_NONE);
}

CUtensorMap row_map(float* rows, int columns, int stride, int tokens, int box_tokens) {
  return encode<2>(CU_TENSOR_MAP_DATA_TYPE_FLOAT32, rows, {cuuint64_t(columns), cuuint64_t(tokens)},
                   {cuuint64_t(stride) * 4}, {32, cuuint32_t(box_tokens)},
                   CU_TENSOR_MAP_SWIZZLE_128B);
}

}  // namespace ridge::cuda
