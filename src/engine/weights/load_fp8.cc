// fp8 matrices as they are released: E4M3 in one tensor, scales of blocks, rows or the whole matrix
// in another.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <memory>

#include "base/error.h"
#include "base/memory_limit.h"
#include "base/units.h"
#include "engine/weights/load_tensors.h"
#include "engine/weights/storage_blocks.h"

namespace ridge {

namespace {

constexpr int64_t kBlock = 128;  // columns of a BlockFp8

// False where a code is no number.
bool copy_row(const ReleasedFp8& from, int64_t row, std::byte* to) {
  const int64_t columns = from.columns, file_row = from.first_row + row;
  const float* scales = &from.scales[size_t(file_row / from.scale_rows * from.scale_columns())];
  bool numbers = true;
  for (int64_t column = 0; column < columns; column += kBlock, to += sizeof(BlockFp8)) {
    BlockFp8 block;
    block.d = scales[column / from.block_columns];
    std::memcpy(block.q, from.data + file_row * columns + column, sizeof block.q);
    for (const uint8_t code : block.q) numbers &= (code & 0x7f) != 0x7f;
    std::memcpy(to, &block, sizeof block);
  }
  return numbers;
}

}  // namespace

bool Tensors::is_fp8(const std::string& name) const {
  const auto found = tensors_.find(name);
  return found != tensors_.end() && found->second.format == "F8_E4M3";
}

ReleasedFp8 Tensors::fp8(const std::string& name, int64_t rows, int64_t columns,
                         const std::string& where) {
  const StoredTensor& tensor = find(name, where);
  if (tensor.shape != std::vector<int64_t>{rows, columns}) {
    throw Error("{}: {} is not {} x {}, as the model needs it", *tensor.file, name, rows, columns);
  }
  if (columns % kBlock != 0) {
    throw Error("{}: {}: rows of {} do not fill blocks of {} fp8 numbers", *tensor.file, name,
                columns, kBlock);
  }
  ReleasedFp8 released;
  released.data = tensor.data;
  released.columns = columns;
  // weight_scale_inv is what codes are multiplied by, despite its name.
  std::string scale = name + "_scale_inv";
  if (!has(scale)) scale = name + "_scale";
  const std::vector<int64_t> shape = find(scale, where).shape;
  int64_t count = 1;
  for (const int64_t extent : shape) count *= extent;
  const auto blocks_of = [](int64_t all, int64_t each) { return (all + each - 1) / each; };
  if (count == 1) {
    released.scale_rows = rows;
    released.block_columns = columns;
  } else if (shape == std::vector{rows} || shape == std::vector{rows, int64_t{1}}) {
    released.scale_rows = 1;
    released.block_columns = columns;
  } else if (shape == std::vector{blocks_of(rows, kBlock), blocks_of(columns, kBlock)}) {
    released.scale_rows = kBlock;
    released.block_columns = kBlock;
  } else {
    throw Error(
        "{}: {} has {} scales for {} x {} weights: one, one per row or one per {} x {} are "
        "executed",
        *tensor.file, scale, count, rows, columns, kBlock, kBlock);
  }
  released.scales = flat_vector(scale, count, where);
  return released;
}

void copy_fp8(Weights& weights, const std::vector<ReleasedFp8>& released, const std::string& where,
              LateCopies* late) {
  std::vector<Matrix*> matrices;
  double bytes = 0;
  for (const ReleasedFp8& from : released) {
    matrices.push_back(from.matrix);
    bytes += from.matrix->bytes();
  }
  if (late != nullptr) bytes /= late->hosts();
  if (bytes > 0.95 * free_bytes()) {
    throw Error("{}: a copy of its fp8 weights needs {}, {} of memory are free", where,
                pretty_bytes(bytes), pretty_bytes(free_bytes()));
  }
  const auto numbers = std::make_shared<std::atomic<bool>>(true);
  const std::string message = where + ": a matrix in fp8 holds what is no number";
  const bool throws = late != nullptr;  // other copies run on threads that must not
  const auto copy = [released, numbers, message, throws, shapes = values_of(matrices)](
                        size_t i, int64_t first, int64_t rows, std::byte* to) {
    for (int64_t row = 0; row < rows; ++row) {
      if (copy_row(released[i], first + row, to + row * shapes[i].row_stride)) continue;
      *numbers = false;
      if (throws) throw Error("{}", message);
    }
  };
  copy_matrices(weights, matrices, copy, late);
  if (!*numbers) throw Error("{}", message);
}

}  // namespace ridge
