// Packed layout of block formats: 16 rows side by side, one per lane.
//
// A group of 16 rows holds, for every 64 columns (two blocks of 32): the scales of the first block
// and of the second, 16 f16 each (q6: one per 16 columns, so twice as many); the same for the mins
// where the format has them; then the integers of the first block and of the second. A block's
// integers are 8 chunks of 16 rows x 4 columns, one byte each. With 4 bits there are 4 chunks,
// whose low nibbles are columns 4j..4j+3 and whose high nibbles are columns 16+4j..: ggml's own
// bytes. Integers are unsigned; subtracting `offset` makes them signed again. Everything starts on
// a cache line.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/thread_team.h"
#include "engine/weights/weights.h"

namespace ridge::cpu {

inline constexpr int kGroup = 16;  // rows
inline constexpr int kBlock = 32;  // columns

enum class Layout : uint8_t { plain, q4, q4_min, q5, q5_min, q6, q8, fp4 };
inline constexpr int kLayoutCount = 8;

// fp4: what a nibble stands for, twice the number of e2m1 plus the layout's offset of 16.
inline constexpr uint8_t kFp4Levels[16] = {16, 17, 18, 19, 20, 22, 24, 28,
                                           16, 15, 14, 13, 12, 10, 8,  4};

struct LayoutInfo {
  int value_bits;         // bits of the integers' range
  int stored_bits;        // 4 or 8
  int columns_per_scale;  // 16 or 32
  bool min;               // w = scale q + min; else w = scale (q - offset)
  int offset;
  constexpr int scale_bytes() const { return kBlock / columns_per_scale * kGroup * 2; }
  constexpr int min_bytes() const { return min ? kGroup * 2 : 0; }
  constexpr int data_bytes() const { return kGroup * kBlock * stored_bits / 8; }
  constexpr int pair_bytes() const { return 2 * (scale_bytes() + min_bytes() + data_bytes()); }
};

inline constexpr LayoutInfo layout_info(Layout layout) {
  switch (layout) {
    case Layout::q4:
      return {4, 4, 32, false, 8};
    case Layout::q4_min:
      return {4, 4, 32, true, 0};
    case Layout::q5:
      return {5, 8, 32, false, 16};
    case Layout::q5_min:
      return {5, 8, 32, true, 0};
    case Layout::q6:
      return {6, 8, 16, false, 32};
    case Layout::fp4:
      return {5, 4, 32, false, 16};
    default:
      return {8, 8, 32, false, 128};
  }
}

Layout layout_of(Storage storage);
inline int64_t group_count(int64_t rows) { return (rows + kGroup - 1) / kGroup; }
// Bytes of one group of 16 rows.
inline int64_t group_bytes(Layout layout, int64_t columns) {
  return (columns / kBlock + 1) / 2 * layout_info(layout).pair_bytes();
}

// Packs rows [16 group, 16 group + 16) of `matrix` into `to`; rows beyond the last are zero.
void pack_group(const Matrix& matrix, int64_t group, std::byte* to);

}  // namespace ridge::cpu
