// KV pages of any format as bf16 pages: prefill attention's wgmma reads bf16 only.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "base/weight_format.h"

namespace ridge::cuda {

struct DequantizePagesArgs {
  const uint8_t* kv;  // this layer's pages
  const int* pages;   // numbers of the pages to convert
  int count, kv_heads, head_dim;
  uint16_t* to;  // [page number][kv head][page_elements], laid out as bf16 pages are
};
// `format` is not bf16. Queues a dependent launch (device.cuh).
void dequantize_pages(cudaStream_t stream, KvFormat format, const DequantizePagesArgs& args);

}  // namespace ridge::cuda
