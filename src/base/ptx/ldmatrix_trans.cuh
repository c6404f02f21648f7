// ldmatrix with a transposition, for B operands whose k are the rows in shared memory (mma.cuh).
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace ridge::ptx {

// Four 8 x 8 matrices of 16-bit elements from shared memory, each transposed. Lane l passes the
// shared address of row l % 8 (16 bytes) of matrix l / 8.
__device__ inline uint4 ldmatrix_x4_trans(uint32_t row_address) {
  uint4 b;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(b.x), "=r"(b.y), "=r"(b.z), "=r"(b.w)
               : "r"(row_address)
               : "memory");
  return b;
}

}  // namespace ridge::ptx
