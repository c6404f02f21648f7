// Loads weights from the bytes of files (mapped, embedded, or from a fuzzer).
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/weights/lazy_weights.h"
#include "engine/weights/load_parts.h"
#include "engine/weights/weights.h"

namespace ridge {

struct NamedBytes {
  std::string_view bytes;
  std::string name;  // shown in errors
};

// Loads everything except the tokenizer, the source and the owners of the bytes, which must outlive
// the weights. Throws Error when any check fails. The first piece of a GGUF holds its metadata.
// What must be copied is copied now, or where `late` is given when it is filled.
Weights weights_from_gguf(std::span<const NamedBytes> pieces, LateCopies* late = nullptr);
Weights weights_from_safetensors(const nlohmann::json& config, const std::string& where,
                                 std::span<const NamedBytes> shards, LateCopies* late = nullptr);

// One tensor of a file.
struct StoredTensor {
  std::string format;          // the file's name for the format
  std::vector<int64_t> shape;  // slowest dimension first
  const std::byte* data = nullptr;
  const std::string* file = nullptr;
  bool used = false;
};

// A matrix of E4M3 and its scales: one for every scale_rows x block_columns. Row r of `matrix`,
// which has its shape and no data yet, is row first_row + r of the file's.
struct ReleasedFp8 {
  Matrix* matrix = nullptr;
  const std::byte* data = nullptr;
  int64_t columns = 0, first_row = 0;
  int64_t scale_rows = 1, block_columns = 1;
  Vector scales;  // by rows
  int64_t scale_columns() const { return (columns + block_columns - 1) / block_columns; }
};
// Copies them into blocks of Storage::fp8. Throws Error where a code is no number.
void copy_fp8(Weights& weights, const std::vector<ReleasedFp8>& released, const std::string& where,
              LateCopies* late);

// The tensors of all files of a model, by name.
class Tensors {
 public:
  void add(const std::string& name, StoredTensor tensor);  // throws Error for a duplicate name
  bool has(std::string_view name) const { return tensors_.find(name) != tensors_.end(); }

  // Returns the tensor after checking its shape and format; the Error names what is missing or
  // wrong. `stacked` returns matrix `index` of a stack of `count` matrices.
  Matrix matrix(const std::string& name, int64_t rows, int64_t columns, const std::string& where);
  // `fused` returns rows [first, first + rows) of a tensor of `all` rows.
  Matrix fused(const std::string& name, int64_t all, int64_t first, int64_t rows, int64_t columns,
               const std::string& where);
  Matrix stacked(const std::string& name, int64_t count, int64_t index, int64_t rows,
                 int64_t columns, const std::string& where);
  Vector vector(const std::string& name, int64_t count, const std::string& where);
  // Row `index` of a stack of `count` vectors.
  Vector stacked_vector(const std::string& name, int64_t count, int64_t index, int64_t size,
                        const std::string& where);
  // The numbers of a tensor of any shape with so many elements.
  Vector flat_vector(const std::string& name, int64_t count, const std::string& where);
  bool is_fp8(const std::string& name) const;
  // The whole matrix, with its scales.
  ReleasedFp8 fp8(const std::string& name, int64_t rows, int64_t columns, const std::string& where);
  // The bytes of a tensor that is not made of numbers.
  const std::byte* bytes(const std::string& name, const std::vector<int64_t>& shape,
                         const std::string& where);

  // Throws Error for a layer's tensor that nothing used: ignoring a bias gives wrong results.
  // Layers from `layers` on may be unused: DeepSeek-V3's heads that predict further tokens.
  void refuse_unused(std::string_view layer_prefix, int layers = 1 << 30) const;

 private:
  StoredTensor& find(const std::string& name, const std::string& where);
  std::map<std::string, StoredTensor, std::less<>> tensors_;
};

// Copies the rows of q and k that the file interleaves into the order of Weights. Whole rows move,
// so nothing is requantized; the copy is about a tenth of a small model and a thirtieth of a large
// one.
void restore_rows(Weights& weights, FileKind kind, std::span<const Slot> slots, LateCopies* late);

// A matrix in two tensors: row r is row first_row + r row_step of both, of 16 bytes and of one byte
// for every 32 columns. `matrix` has its shape, and no data yet.
struct ReleasedMxfp4 {
  Matrix* matrix;
  const std::byte* blocks;
  const std::byte* scales;
  int64_t first_row, row_step;
};
// Copies them into blocks of Storage::mxfp4.
void reorder_mxfp4(Weights& weights, const std::vector<ReleasedMxfp4>& released, LateCopies* late);

// A matrix whose rows are columns of the file's: element (r, c) is element (c, first + r) of rows
// of `stride` elements. `matrix` has its storage (f32, f16 or bf16) and shape, and no data yet.
struct TransposedMatrix {
  Matrix* matrix;
  const std::byte* data;
  int64_t stride, first;
};
// Copies them into rows.
void transpose_matrices(Weights& weights, const std::vector<TransposedMatrix>& transposed,
                        LateCopies* late);

// Gives every matrix memory of its own, which its data then is. copy(i, first, rows, to) writes
// `rows` rows of matrices[i] from row `first` on, one after the other: now, or when `late` is
// filled. It must hold all that it reads by value, but for the bytes of files. Calls come from
// several threads. The bytes count as copied.
using CopyMatrixRows = std::function<void(size_t i, int64_t first, int64_t rows, std::byte* to)>;
void copy_matrices(Weights& weights, const std::vector<Matrix*>& matrices,
                   const CopyMatrixRows& copy, LateCopies* late);
// The matrices as they are now, to be read when they have other memory.
std::vector<Matrix> values_of(const std::vector<Matrix*>& matrices);

// Zeroed memory, in huge pages where the kernel provides them. Throws Error on failure.
std::shared_ptr<std::byte> make_memory(size_t bytes);

}  // namespace ridge
