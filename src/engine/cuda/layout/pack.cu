#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp4.h>
#include <cuda_fp8.h>

#include "base/random.h"
#include "engine/cuda/layout/dequantize.cuh"
#include "engine/cuda/layout/pack.cuh"

namespace ridge::cuda {
namespace {

// The bf16 matrix to pack; with `second`, rows of both alternate by 8 (pack.cuh).
struct SourceMatrix {
  const uint16_t* first;
  const uint16_t* second;
  int rows, columns;

  __device__ float at(int block, int row, int column) const {
    const uint16_t* from = first;
    int r = block * kBlockRows + row;
    if (second) {
      r = block * 8 + row % 8;
      if (row >= 8) from = second;
    }
    if (r >= rows || column >= columns) return 0;
    return __uint_as_float(uint32_t{from[size_t(r) * columns + column]} << 16);
  }
};

// Row and column in a chunk of element e of register r of step k (16 columns).
__device__ int fragment_row(int lane, int r) { return lane / 4 + r % 2 * 8; }
__device__ int fragment_column(int lane, int k, int r, int e) {
  return k * 16 + lane % 4 * 2 + r / 2 * 8 + e;
}

constexpr float kLargestE4m3 = 448, kLargestInt8 = 127;

// The scale that maps a row's largest magnitude to `largest`.
__global__ void row_scales(SourceMatrix source, float largest, float* to) {
  const int block = blockIdx.x / kBlockRows, row = blockIdx.x % kBlockRows;
  float most = 0;
  for (int c = threadIdx.x; c < source.columns; c += 32) {
    most = fmaxf(most, fabsf(source.at(block, row, c)));
  }
  for (int across = 16; across; across /= 2) {
    most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, across));
  }
  if (threadIdx.x == 0) to[blockIdx.x] = most > 0 ? most / largest : 1;
}

// Position of an 8-bit weight in the 16 bytes of its lane. fp8: pairs that one conversion takes.
// int8: the bytes of mma_s8's registers, with the two of a pair 16 bits apart for dequantize_chunk.
struct BytePlace {
  int word, byte;
};
__device__ BytePlace byte_place(WeightFormat format, int k, int r, int e) {
  if (format == WeightFormat::fp8) return {k * 2 + r / 2, r % 2 * 2 + e};
  return {k * 2 + r % 2, e * 2 + r / 2};
}

// Bit of a 4-bit weight in word k of its lane. int4: a byte has rows g and g + 8 of one column.
// nf4: 16 bits have four columns of one row, so that a byte permutation looks up four levels at a
// time.
__device__ int nibble_bit(WeightFormat format, int r, int e) {
  return format == WeightFormat::int4 ? e * 16 + r * 4 : r % 2 * 16 + r / 2 * 8 + e * 4;
}

__device__ float nf4_level(int i) {
  constexpr Nf4 kLevels = kNf4;
  return __half2float(__ushort_as_half(kLevels.f16[i]));
}
__device__ uint32_t nearest_nf4(float v) {
  uint32_t name = 0;
  while (name < 15 && v > (nf4_level(name) + nf4_level(name + 1)) / 2) ++name;
  return name;
}

// The exponent of an MXFP4 group: the least with which its largest magnitude is at most 6. So a
// group that was MXFP4 before keeps its numbers.
__device__ int mxfp4_exponent(float most) {
  int exponent = 0;
  frexpf(most / 6, &exponent);  // 2^(exponent - 1) <= most / 6 < 2^exponent
  if (ldexpf(6, exponent - 1) >= most) --exponent;
  return most > 0 ? min(max(exponent, kLeastMxfp4Scale), kMostMxfp4Scale) : kLeastMxfp4Scale;
}

// The lane's words of an MXFP4 chunk. Of its scales, lane 4 g writes those of rows g and g + 8.
// value(k, r, e): element e of register r of step k.
template <typename Value>
__device__ void pack_mxfp4(const Value& value, int lane, uint32_t (&words)[4], uint8_t* scales) {
  for (int group = 0; group < 2; ++group) {
    for (int half = 0; half < 2; ++half) {
      float most = 0;
      for (int k = 2 * group; k < 2 * group + 2; ++k) {
        for (int r = half; r < 4; r += 2) {
          for (int e = 0; e < 2; ++e) most = fmaxf(most, fabsf(value(k, r, e)));
        }
      }
      for (int across = 1; across <= 2; across *= 2) {
        most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, across));
      }
      const int exponent = mxfp4_exponent(most);
      if (lane % 4 == 0) scales[lane + 2 * group + half] = mxfp4_scale_byte(exponent);
      for (int k = 2 * group; k < 2 * group + 2; ++k) {
        for (int r = half; r < 4; r += 2) {
          for (int e = 0; e < 2; ++e) {
            const uint32_t code = __nv_cvt_float_to_fp4(ldexpf(value(k, r, e), -exponent),
                                                        __NV_E2M1, cudaRoundNearest);
            for (int i = 0; i < 4; ++i) words[k] |= (code >> i & 1) << mxfp4_bit(r, e, i);
          }
        }
      }
    }
  }
}

// One warp per chunk.
template <WeightFormat kFormat>
__global__ void pack_chunks(SourceMatrix source, uint8_t* to, const float* row_scale, int chunks) {
  constexpr FormatInfo kInfo = format_info(kFormat);
  const int lane = threadIdx.x % 32, chunk = blockIdx.x * 4 + threadIdx.x / 32;
  const int block = blockIdx.y;
  if (chunk >= chunks) return;
  uint8_t* at = to + (size_t(block) * chunks + chunk) * kInfo.chunk_bytes;
  const auto value = [&](int k, int r, int e) {
    return source.at(block, fragment_row(lane, r),
                     chunk * kInfo.columns + fragment_column(lane, k, r, e));
  };
  uint32_t words[4] = {};
  if constexpr (kFormat == WeightFormat::bf16) {
    for (int r = 0; r < 4; ++r) {
      const __nv_bfloat162 pair = __floats2bfloat162_rn(value(0, r, 0), value(0, r, 1));
      words[r] = *reinterpret_cast<const uint32_t*>(&pair);
    }
  } else if constexpr (has_row_scale(kFormat)) {
    for (int k = 0; k < 2; ++k) {
      for (int r = 0; r < 4; ++r) {
        const float scale = row_scale[block * kBlockRows + fragment_row(lane, r)];
        for (int e = 0; e < 2; ++e) {
          const float v = value(k, r, e) / scale;
          uint32_t byte;
          if constexpr (kFormat == WeightFormat::fp8) {
            byte = __nv_cvt_float_to_fp8(v, __NV_SATFINITE, __NV_E4M3);
          } else {
            byte = static_cast<uint32_t>(max(-127, min(127, __float2int_rn(v)))) & 0xff;
          }
          const BytePlace place = byte_place(kFormat, k, r, e);
          words[place.word] |= byte << place.byte * 8;
        }
      }
    }
  } else if constexpr (kFormat == WeightFormat::mxfp4) {
    pack_mxfp4(value, lane, words, at + 512);
  } else {
    // A row's group is in the four lanes of a quad. The scale of int4 maps the number of largest
    // magnitude to -8 exactly; that of nf4 is the largest magnitude.
    float scales[2];
    for (int half = 0; half < 2; ++half) {
      float most = 0;
      for (int k = 0; k < 4; ++k) {
        for (int r = half; r < 4; r += 2) {
          for (int e = 0; e < 2; ++e) {
            const float v = value(k, r, e);
            if (fabsf(v) > fabsf(most)) most = v;
          }
        }
      }
      for (int across = 1; across <= 2; across *= 2) {
        const float other = __shfl_xor_sync(0xffffffffu, most, across);
        // Of equal magnitudes the positive one, so that all lanes agree.
        if (fabsf(other) > fabsf(most) || (fabsf(other) == fabsf(most) && other > most)) {
          most = other;
        }
      }
      const float scale = kFormat == WeightFormat::int4 ? most / -8 : fabsf(most);
      scales[half] = __half2float(__float2half_rn(scale));
    }
    for (int k = 0; k < 4; ++k) {
      for (int r = 0; r < 4; ++r) {
        const float scale = scales[r % 2];
        for (int e = 0; e < 2; ++e) {
          const float v = scale == 0 ? 0 : value(k, r, e) / scale;
          uint32_t name;
          if constexpr (kFormat == WeightFormat::int4) {
            name = min(15, max(0, __float2int_rn(v) + 8));
          } else {
            name = nearest_nf4(v);
          }
          words[k] |= name << nibble_bit(kFormat, r, e);
        }
      }
    }
    if (lane % 4 == 0) {
      *reinterpret_cast<__half2*>(at + 512 + lane) = __floats2half2_rn(scales[0], scales[1]);
    }
  }
  reinterpret_cast<uint4*>(at)[lane] = uint4{words[0], words[1], words[2], words[3]};
}

// Straightforward code on purpose: checks compare dequantize_chunk with it.
__global__ void unpack_elements(WeightFormat format, const uint8_t* from, const float* row_scale,
                                int chunks, float* to) {
  const FormatInfo info = format_info(format);
  const int column = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y % kBlockRows;
  const int block = blockIdx.y / kBlockRows, columns = chunks * info.columns;
  if (column >= columns) return;
  const uint8_t* chunk = from + (size_t(block) * chunks + column / info.columns) * info.chunk_bytes;
  const int c = column % info.columns, k = c / 16;
  const int lane = row % 8 * 4 + c % 8 / 2, r = row / 8 + c % 16 / 8 * 2, e = c % 2;
  const uint32_t* words = reinterpret_cast<const uint32_t*>(chunk) + lane * 4;
  float value;
  if (format == WeightFormat::bf16) {
    value = __uint_as_float((words[r] >> (e * 16)) << 16);
  } else if (has_row_scale(format)) {
    const BytePlace place = byte_place(format, k, r, e);
    const uint32_t byte = words[place.word] >> place.byte * 8 & 0xff;
    value = format == WeightFormat::fp8
                ? __half2float(__half(__nv_cvt_fp8_to_halfraw(byte, __NV_E4M3)))
                : static_cast<float>(static_cast<int8_t>(byte));
    value *= row_scale[block * kBlockRows + row];
  } else if (format == WeightFormat::mxfp4) {
    uint32_t code = 0;
    for (int i = 0; i < 4; ++i) code |= (words[k] >> mxfp4_bit(r, e, i) & 1) << i;
    const int scale = chunk[512 + row % 8 * 4 + k / 2 * 2 + row / 8];
    value = ldexpf(__half2float(__half(__nv_cvt_fp4_to_halfraw(code, __NV_E2M1))),
                   scale - mxfp4_scale_byte(0));
  } else {
    const __half scale = reinterpret_cast<const __half*>(chunk + 512)[row % 8 * 2 + row / 8];
    const int name = words[k] >> nibble_bit(format, r, e) & 15;
    value = (format == WeightFormat::int4 ? static_cast<float>(name - 8) : nf4_level(name)) *
            __half2float(scale);
  }
  to[size_t(blockIdx.y) * columns + column] = value;
}

__device__ float normal(uint64_t seed, size_t i) {
  const uint64_t word = splitmix64(seed * 0x100000001b3u + i);
  const float u = (static_cast<float>(word >> 40) + 0.5f) * 0x1p-24f;
  const float v = static_cast<float>(word & 0xffffff) * 0x1p-24f;
  return sqrtf(-2 * __logf(u)) * cospif(2 * v);
}
template <typename T>
__global__ void normals(T* to, size_t count, uint64_t seed, float deviation, float mean) {
  for (size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x; i < count;
       i += size_t{gridDim.x} * blockDim.x) {
    const float value = mean + deviation * normal(seed, i);
    if constexpr (sizeof(T) == 2) {
      to[i] = __bfloat16_as_ushort(__float2bfloat16_rn(value));
    } else {
      to[i] = value;
    }
  }
}

// Whatever the layout, an element is as good as another. The largest of a head is taken to be 3.
__global__ void random_pages(KvFormat format, int head_dim, uint8_t* to, size_t pages,
                             uint64_t seed) {
  const int elements = page_elements(head_dim);
  for (size_t page = blockIdx.x; page < pages; page += gridDim.x) {
    uint8_t* at = to + page * page_bytes(format, head_dim);
    for (int i = threadIdx.x; i < elements; i += blockDim.x) {
      const float value = normal(seed, page * elements + i);
      const float most = fminf(fmaxf(value, -3.0f), 3.0f);
      switch (format) {
        case KvFormat::bf16:
          reinterpret_cast<uint16_t*>(at)[i] = bf16_bits(value);
          break;
        case KvFormat::f16:
          reinterpret_cast<__half*>(at)[i] = __float2half_rn(value);
          break;
        case KvFormat::fp8:
          at[i] = __nv_cvt_float_to_fp8(most * (kLargestE4m3 / 3), __NV_SATFINITE, __NV_E4M3);
          break;
        case KvFormat::int8:
          at[i] = static_cast<uint8_t>(__float2int_rn(most * (kLargestInt8 / 3)));
          break;
      }
    }
    if (!kv_bytes(format)) continue;
    for (int i = threadIdx.x; i < 2 * kPageTokens; i += blockDim.x) {
      reinterpret_cast<float*>(at + elements)[i] =
          3 / (format == KvFormat::fp8 ? kLargestE4m3 : kLargestInt8);
    }
  }
}

}  // namespace

void pack(cudaStream_t stream, WeightFormat format, const uint16_t* first, const uint16_t* second,
          int rows, int columns, uint8_t* to, float* row_scale, int chunks) {
  const SourceMatrix source{first, second, rows, columns};
  const int per_block = second ? 8 : kBlockRows, blocks = (rows + per_block - 1) / per_block;
  const dim3 grid((chunks + 3) / 4, blocks);
  switch (format) {
    case WeightFormat::bf16:
      pack_chunks<WeightFormat::bf16><<<grid, 128, 0, stream>>>(source, to, nullptr, chunks);
      break;
    case WeightFormat::fp8:
      row_scales<<<blocks * kBlockRows, 32, 0, stream>>>(source, kLargestE4m3, row_scale);
      pack_chunks<WeightFormat::fp8><<<grid, 128, 0, stream>>>(source, to, row_scale, chunks);
      break;
    case WeightFormat::int8:
      row_scales<<<blocks * kBlockRows, 32, 0, stream>>>(source, kLargestInt8, row_scale);
      pack_chunks<WeightFormat::int8><<<grid, 128, 0, stream>>>(source, to, row_scale, chunks);
      break;
    case WeightFormat::int4:
      pack_chunks<WeightFormat::int4><<<grid, 128, 0, stream>>>(source, to, nullptr, chunks);
      break;
    case WeightFormat::nf4:
      pack_chunks<WeightFormat::nf4><<<grid, 128, 0, stream>>>(source, to, nullptr, chunks);
      break;
    case WeightFormat::mxfp4:
      pack_chunks<WeightFormat::mxfp4><<<grid, 128, 0, stream>>>(source, to, nullptr, chunks);
      break;
  }
}

void unpack(cudaStream_t stream, WeightFormat format, const uint8_t* from, const float* row_scale,
            int blocks, int chunks, float* to) {
  const int columns = chunks * format_info(format).columns;
  unpack_elements<<<dim3((columns + 127) / 128, blocks * kBlockRows), 128, 0, stream>>>(
      format, from, row_scale, chunks, to);
}

void fill_normal(cudaStream_t stream, uint16_t* to, size_t count, uint64_t seed, float deviation) {
  normals<<<1056, 256, 0, stream>>>(to, count, seed, deviation, 0.0f);
}
void fill_normal(cudaStream_t stream, float* to, size_t count, uint64_t seed, float deviation,
                 float mean) {
  normals<<<1056, 256, 0, stream>>>(to, count, seed, deviation, mean);
}
void fill_pages(cudaStream_t stream, KvFormat format, int head_dim, uint8_t* to, size_t pages,
                uint64_t seed) {
  random_pages<<<1056, 256, 0, stream>>>(format, head_dim, to, pages, seed);
}

}  // namespace ridge::cuda
