// GEMMs by AMX tiles (amx_tiles.h): of bf16 weights, and of block formats for many tokens.
//
// A = 16 tokens x 32 columns, B = 32 columns x 16 weight rows with the columns in pairs, C = sums
// [token][row]. A group of 16 rows is packed as B reads it, [step of 32 columns][pair][row], once
// when the matrix is loaded; block formats are unpacked to the same, a panel at a time
// (blocks-inl.h, unpack_bf16_x86.cc).
//   prompts   two tiles of tokens and two of rows share their loads: 4 products for 4 loads
//   decode    every row of A is the same token, and every row of C its sums
// Either way a sum is C + (even + odd columns) for each step of 32 columns, in order: the same bits
// for any number of tokens. Block formats have no decode here.
#pragma once

#include <algorithm>
#include <cstring>

#include "engine/cpu/amx_tiles.h"
#include "engine/cpu/matmul_kernels.h"

namespace ridge::cpu {

template <class Tiles>
struct AmxKernel {
  static constexpr int64_t kStep = 32;    // columns of a product
  static constexpr int64_t kChunk = 512;  // columns of a panel: two groups are 32 KB of the L1
  static constexpr int kStepBytes = kTileRows * kTileBytes;
  // A tile of sums each, beside one of weights and one of x.
  static constexpr int kStreamTokens = 6;
  static_assert(kGroup == kTileRows && kChunk / kStep * kStepBytes <= kPanelBytes);

  static int64_t packed_bytes(int64_t columns) {
    return (columns + kStep - 1) / kStep * kStepBytes;
  }

  // Rows beyond the matrix repeat its last one, whose sums are not used. Columns beyond it are
  // zero.
  static void pack(const Matrix& matrix, int64_t group, std::byte* to) {
    const int64_t first = group * kGroup, last = matrix.rows - 1;
    const std::byte* const from = matrix.row(first);
    const int64_t stride = matrix.row_stride;
    for (int64_t c = 0; c < matrix.columns; c += kStep, to += kStepBytes) {
      if (first + kGroup <= matrix.rows && c + kStep <= matrix.columns) {
        Tiles::transpose(from + c * 2, stride, to);
        continue;
      }
      alignas(64) std::byte edge[kTileRows][kTileBytes] = {};
      const auto bytes = static_cast<size_t>(std::min(kStep, matrix.columns - c) * 2);
      for (int64_t row = 0; row < kGroup; ++row) {
        std::memcpy(edge[row], from + std::min(row, last - first) * stride + c * 2, bytes);
      }
      Tiles::transpose(edge[0], kTileBytes, to);
    }
  }

  // Lines prefetched in each step. Prefetched at once they would hold the L1's fill buffers, which
  // the tiles' loads from the L2 need.
  struct StepAhead {
    Lines& panel;
    Lines& results;
    int64_t panel_each, results_each;
    void prefetch() {
      panel.prefetch(panel_each);
      results.prefetch(results_each);
    }
  };

  // Tiles of sums, 16 x 16 floats: those of the second group are `other` floats further on. The
  // memory of sums that start is not read, so the driver does not clear it.
  struct Sums {
    float* at;
    int64_t other;
    bool start;
  };

  // sums += panels x tokens, kTokens (16 or 32) x kGroups (1 or 2) tiles.
  template <int kTokens, int kGroups>
  static void tiles(const std::byte* panel, int64_t panel_stride, int64_t steps, const std::byte* x,
                    int64_t x_stride, Sums sums, StepAhead ahead) {
    constexpr bool kTwoA = kTokens == 32, kTwoB = kGroups == 2;
    float *const first = sums.at, *const other = first + sums.other;  // of the second group
    if (sums.start) {
      clear<3>();
    } else {
      Tiles::template load<0>(first, kTileBytes);
      if (kTwoB) Tiles::template load<1>(other, kTileBytes);
      if (kTwoA) Tiles::template load<2>(first + kTileRows * kGroup, kTileBytes);
      if (kTwoA && kTwoB) Tiles::template load<3>(other + kTileRows * kGroup, kTileBytes);
    }
    for (int64_t s = 0; s < steps; ++s, panel += kStepBytes, x += kStep * 2) {
      Tiles::template load<6>(panel, kTileBytes);
      Tiles::template load_once<4>(x, x_stride);
      Tiles::template multiply_bf16<0, 4, 6>();
      if constexpr (kTwoB) {
        Tiles::template load<7>(panel + panel_stride, kTileBytes);
        Tiles::template multiply_bf16<1, 4, 7>();
      }
      if constexpr (kTwoA) {
        Tiles::template load_once<5>(x + kTileRows * x_stride, x_stride);
        Tiles::template multiply_bf16<2, 5, 6>();
      }
      if constexpr (kTwoA && kTwoB) Tiles::template multiply_bf16<3, 5, 7>();
      ahead.prefetch();
    }
    Tiles::template store<0>(first, kTileBytes);
    if (kTwoB) Tiles::template store<1>(other, kTileBytes);
    if (kTwoA) Tiles::template store<2>(first + kTileRows * kGroup, kTileBytes);
    if (kTwoA && kTwoB) Tiles::template store<3>(other + kTileRows * kGroup, kTileBytes);
  }
  template <int kTokens>
  static void tiles(const std::byte* panel, int64_t panel_stride, int groups, int64_t steps,
                    const std::byte* x, int64_t x_stride, Sums sums, StepAhead ahead) {
    if (groups == 2) {
      tiles<kTokens, 2>(panel, panel_stride, steps, x, x_stride, sums, ahead);
    } else {
      tiles<kTokens, 1>(panel, panel_stride, steps, x, x_stride, sums, ahead);
    }
  }

  static void multiply_ahead(const std::byte* panel, int64_t panel_stride, int groups,
                             int64_t column, int64_t columns, const InputView& x, int token,
                             int tokens, float* sums, Ahead& what) {
    const int64_t steps = (std::min(kChunk, columns - column) + kStep - 1) / kStep;
    const int64_t stride = x.bf16_stride * 2, all_steps = steps * ((tokens + 31) / 32);
    const auto* from = reinterpret_cast<const std::byte*>(x.bf16 + token * x.bf16_stride + column);
    // By reference: a copy would read the fields in wider pieces than the driver has just written,
    // and wait until the last sums have left the store buffer.
    const auto each = [&](int64_t lines) {
      return (uint32_t(lines) + uint32_t(all_steps) - 1) / uint32_t(all_steps);
    };
    const StepAhead ahead{what.panel, what.results, each(what.panel_lines),
                          each(what.results.left())};
    Sums to{sums, int64_t{kTokenBlock} * kGroup, column == 0};
    for (; tokens >= 32; tokens -= 32, from += 32 * stride, to.at += 32 * kGroup) {
      tiles<32>(panel, panel_stride, groups, steps, from, stride, to, ahead);
    }
    for (; tokens >= 16; tokens -= 16, from += 16 * stride, to.at += 16 * kGroup) {
      tiles<16>(panel, panel_stride, groups, steps, from, stride, to, ahead);
    }
    if (tokens > 0) {
      last_tokens(panel, panel_stride, groups, steps, from, stride, tokens, to, ahead);
    }
  }
  static void multiply(const std::byte* panel, int64_t panel_stride, int groups, int64_t column,
                       int64_t columns, const InputView& x, int token, int tokens, float* sums) {
    Ahead nothing;
    multiply_ahead(panel, panel_stride, groups, column, columns, x, token, tokens, sums, nothing);
  }

  // Fewer than 16 tokens: the rest of the tile is zero, and nothing beyond the tokens is touched.
  static void last_tokens(const std::byte* panel, int64_t panel_stride, int groups, int64_t steps,
                          const std::byte* x, int64_t x_stride, int tokens, Sums sums,
                          StepAhead ahead) {
    constexpr int64_t kStride = kChunk * 2 + 64;  // an odd number of lines
    alignas(64) std::byte rows[kTileRows * kStride];
    const auto bytes = static_cast<size_t>(steps * kStep * 2);
    for (int t = 0; t < tokens; ++t) std::memcpy(rows + t * kStride, x + t * x_stride, bytes);
    for (int t = tokens; t < kTileRows; ++t) std::memset(rows + t * kStride, 0, bytes);
    constexpr int kTileFloats = kTileRows * kGroup;
    alignas(64) float kept[2 * kTileFloats] = {};
    for (int g = 0; g < groups && !sums.start; ++g) {
      std::copy_n(sums.at + g * sums.other, tokens * kGroup, kept + g * kTileFloats);
    }
    tiles<16>(panel, panel_stride, groups, steps, rows, kStride, {kept, kTileFloats, sums.start},
              ahead);
    for (int g = 0; g < groups; ++g) {
      std::copy_n(kept + g * kTileFloats, tokens * kGroup, sums.at + g * sums.other);
    }
  }

  // ---- decode

  template <int kTokens>
  static void stream_tokens(const WeightView& w, int64_t group, const InputView& x, int token,
                            float* sums) {
    // Prefetched so far ahead into the L2, running into the next groups (measured by prototypes on
    // an Emerald Rapids).
    constexpr int64_t kAhead = 16 << 10;
    const std::byte* at = w.data + group * w.stride;
    clear<kTokens - 1>();
    for (int64_t s = 0; s < (w.columns + kStep - 1) / kStep; ++s, at += kStepBytes) {
      for (int line = 0; line < kStepBytes; line += 64) {
        __builtin_prefetch(at + kAhead + line, 0, 2);
      }
      Tiles::template load_once<6>(at, kTileBytes);
      add_tokens<0, kTokens>(x, token, s);
    }
    take<0, kTokens>(sums);
  }
  template <int kToken>
  static void clear() {
    Tiles::template zero<kToken>();
    if constexpr (kToken > 0) clear<kToken - 1>();
  }
  // A token's 32 columns are one line, and all rows of the tile.
  template <int kToken, int kTokens>
  static void add_tokens(const InputView& x, int token, int64_t step) {
    Tiles::template load<7>(x.bf16 + (token + kToken) * x.bf16_stride + step * kStep, 0);
    Tiles::template multiply_bf16<kToken, 7, 6>();
    if constexpr (kToken + 1 < kTokens) add_tokens<kToken + 1, kTokens>(x, token, step);
  }
  template <int kToken, int kTokens>
  static void take(float* sums) {
    alignas(64) float tile[kTileRows][kGroup];
    Tiles::template store<kToken>(tile, kTileBytes);
    std::copy_n(tile[0], kGroup, sums + kToken * kGroup);
    if constexpr (kToken + 1 < kTokens) take<kToken + 1, kTokens>(sums);
  }

  static void stream(const WeightView& w, int64_t group, const InputView& x, int token, int tokens,
                     float* sums) {
    switch (tokens) {
      case 1:
        return stream_tokens<1>(w, group, x, token, sums);
      case 2:
        return stream_tokens<2>(w, group, x, token, sums);
      case 3:
        return stream_tokens<3>(w, group, x, token, sums);
      case 4:
        return stream_tokens<4>(w, group, x, token, sums);
      case 5:
        return stream_tokens<5>(w, group, x, token, sums);
      default:
        return stream_tokens<kStreamTokens>(w, group, x, token, sums);
    }
  }

  static MatmulKernel kernel() {
    MatmulKernel kernel;
    kernel.name = "bf16 tiles";
    kernel.input = InputKind::bf16;
    kernel.chunk = static_cast<int>(kChunk);
    kernel.panel_groups = 2;
    kernel.token_block = 256;
    kernel.token_tile = 32;
    kernel.tokens_outer = true;
    kernel.starts_sums = true;
    kernel.stream_tokens = kStreamTokens;
    kernel.begin = Tiles::begin;
    kernel.end = Tiles::end;
    kernel.stream = stream;
    kernel.packed_bytes = packed_bytes;
    kernel.pack = pack;
    kernel.packed_column_bytes = kStepBytes / kStep;
    kernel.multiply = multiply;
    kernel.multiply_ahead = multiply_ahead;
    return kernel;
  }
};

}  // namespace ridge::cpu
