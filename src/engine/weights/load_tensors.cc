#include "engine/weights/load_tensors.h"

#include <fmt/ranges.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "base/error.h"
#include "base/units.h"

namespace ridge {

namespace {

// Names of the storages in safetensors and GGUF headers.
std::optional<Storage> storage_of(std::string_view format) {
  if (format == "F32") return Storage::f32;
  if (format == "F16") return Storage::f16;
  if (format == "BF16") return Storage::bf16;
  for (int i = 0; i < kStorageCount; ++i) {
    if (storage_info(Storage(i)).name == format) return Storage(i);
  }
  return std::nullopt;
}

std::string shape_text(const std::vector<int64_t>& shape) {
  return shape.empty() ? "a number" : fmt::format("{}", fmt::join(shape, " x "));
}

Storage checked(const StoredTensor& tensor, const std::string& name,
                const std::vector<int64_t>& shape) {
  if (tensor.shape != shape) {
    throw Error("{}: {} is {}, the model needs {}", *tensor.file, name, shape_text(tensor.shape),
                shape_text(shape));
  }
  auto storage = storage_of(tensor.format);
  if (!storage) {
    throw Error("{}: {} is stored as {}, which is not executed", *tensor.file, name, tensor.format);
  }
  if (shape.back() % storage_info(*storage).block != 0) {
    throw Error("{}: {}: rows of {} do not fill blocks of {}", *tensor.file, name, shape.back(),
                tensor.format);
  }
  return *storage;
}

Vector numbers(const StoredTensor& tensor, const std::string& name, Storage storage, int64_t first,
               int64_t count) {
  Vector values(size_t(count), 0.0f);
  dequantize(storage, tensor.data + storage_bytes(storage, first), count, values.data());
  for (float value : values) {
    if (!std::isfinite(value)) throw Error("{}: {} holds what is no number", *tensor.file, name);
  }
  return values;
}

// Old checkpoints store the rotary frequencies, which the config determines. Those in fp8 may store
// scales of activations and of the KV cache, which are for engines that multiply or cache in fp8.
constexpr std::string_view kHarmless[] = {"rotary_emb.inv_freq",
                                          "attn_rot_embd.weight",
                                          ".input_scale",
                                          ".input_scale_ub",
                                          ".activation_scale",
                                          ".output_scale",
                                          ".k_scale",
                                          ".v_scale",
                                          ".kv_scale",
                                          ".q_scale",
                                          ".prob_scale"};

}  // namespace

void Tensors::add(const std::string& name, StoredTensor tensor) {
  const std::string& file = *tensor.file;
  if (!tensors_.emplace(name, std::move(tensor)).second) {
    throw Error("{}: tensor {} is in another file too", file, name);
  }
}

StoredTensor& Tensors::find(const std::string& name, const std::string& where) {
  auto found = tensors_.find(name);
  if (found == tensors_.end()) throw Error("{}: tensor {} is missing", where, name);
  found->second.used = true;
  return found->second;
}

Matrix Tensors::matrix(const std::string& name, int64_t rows, int64_t columns,
                       const std::string& where) {
  const StoredTensor& tensor = find(name, where);
  const Storage storage = checked(tensor, name, {rows, columns});
  return {storage, rows, columns, tensor.data, int64_t(storage_bytes(storage, columns))};
}

Matrix Tensors::fused(const std::string& name, int64_t all, int64_t first, int64_t rows,
                      int64_t columns, const std::string& where) {
  Matrix part = matrix(name, all, columns, where);
  part.data = part.row(first);
  part.rows = rows;
  return part;
}

Matrix Tensors::stacked(const std::string& name, int64_t count, int64_t index, int64_t rows,
                        int64_t columns, const std::string& where) {
  const StoredTensor& tensor = find(name, where);
  const Storage storage = checked(tensor, name, {count, rows, columns});
  const auto stride = int64_t(storage_bytes(storage, columns));
  return {storage, rows, columns, tensor.data + index * rows * stride, stride};
}

Vector Tensors::vector(const std::string& name, int64_t count, const std::string& where) {
  const StoredTensor& tensor = find(name, where);
  return numbers(tensor, name, checked(tensor, name, {count}), 0, count);
}

Vector Tensors::stacked_vector(const std::string& name, int64_t count, int64_t index, int64_t size,
                               const std::string& where) {
  const StoredTensor& tensor = find(name, where);
  return numbers(tensor, name, checked(tensor, name, {count, size}), index * size, size);
}

Vector Tensors::flat_vector(const std::string& name, int64_t count, const std::string& where) {
  StoredTensor flat = find(name, where);
  flat.shape = {count};
  return numbers(flat, name, checked(flat, name, {count}), 0, count);
}

const std::byte* Tensors::bytes(const std::string& name, const std::vector<int64_t>& shape,
                                const std::string& where) {
  const StoredTensor& tensor = find(name, where);
  if (tensor.shape != shape || tensor.format != "U8") {
    throw Error("{}: {} is {} of {}, the model needs {} of U8", *tensor.file, name,
                shape_text(tensor.shape), tensor.format, shape_text(shape));
  }
  return tensor.data;
}

void Tensors::refuse_unused(std::string_view layer_prefix, int layers) const {
  for (auto at = tensors_.lower_bound(layer_prefix);
       at != tensors_.end() && at->first.starts_with(layer_prefix); ++at) {
    const bool harmless = std::any_of(
        std::begin(kHarmless), std::end(kHarmless),
        [&name = at->first](std::string_view ending) { return name.ends_with(ending); });
    const bool beyond = std::atoi(at->first.c_str() + layer_prefix.size()) >= layers;
    if (!at->second.used && !harmless && !beyond) {
      throw Error("{}: tensor {} has no place in this architecture", *at->second.file, at->first);
    }
  }
}

void restore_rows(Weights& weights, FileKind kind, std::span<const Slot> slots, LateCopies* late) {
  std::vector<TensorRole> roles;
  std::vector<Matrix*> moved;
  for (const Slot& slot : slots) {
    if (!interleaves_rows(kind, weights.architecture, slot.role)) continue;
    if (slot.vector) {
      const Vector given = *slot.vector;
      for (size_t row = 0; row < given.size(); ++row) {
        (*slot.vector)[row] =
            given[size_t(file_row(int64_t(row), weights.architecture, slot.role))];
      }
      continue;
    }
    roles.push_back(slot.role);
    moved.push_back(slot.matrix);
  }
  const auto copy = [roles, late, from = values_of(moved), architecture = weights.architecture](
                        size_t i, int64_t first, int64_t rows, std::byte* to) {
    Matrix row = from[i];
    row.rows = 1;
    for (int64_t r = 0; r < rows; ++r) {
      row.data = from[i].row(file_row(first + r, architecture, roles[i]));
      if (late != nullptr) late->fill(row);  // it may be a late copy itself: fp8
      std::memcpy(to + r * row.row_stride, row.data, size_t(row.row_stride));
    }
  };
  copy_matrices(weights, moved, copy, late);
}

std::vector<Matrix> values_of(const std::vector<Matrix*>& matrices) {
  std::vector<Matrix> values;
  for (const Matrix* matrix : matrices) values.push_back(*matrix);
  return values;
}

void copy_matrices(Weights& weights, const std::vector<Matrix*>& matrices,
                   const CopyMatrixRows& copy, LateCopies* late) {
  if (matrices.empty()) return;
  size_t bytes = 0;
  std::vector<size_t> offsets;
  for (const Matrix* matrix : matrices) {
    offsets.push_back(bytes);
    bytes += (size_t(matrix->bytes()) + 63) / 64 * 64;
  }
  const std::shared_ptr<std::byte> memory = make_memory(bytes);
  weights.owners.push_back(memory);
  weights.copied_bytes += double(bytes);
  if (late != nullptr) {
    const auto shared = std::make_shared<const CopyMatrixRows>(copy);
    for (size_t i = 0; i < matrices.size(); ++i) {
      matrices[i]->data = memory.get() + offsets[i];
      late->add(*matrices[i], [shared, i](int64_t first, int64_t rows, std::byte* to) {
        (*shared)(i, first, rows, to);
      });
    }
    return;
  }
  std::atomic<size_t> next{0};
  const auto work = [&] {
    for (size_t i = next++; i < matrices.size(); i = next++) {
      copy(i, 0, matrices[i]->rows, memory.get() + offsets[i]);
      matrices[i]->data = memory.get() + offsets[i];
    }
  };
  std::vector<std::jthread> workers;
  const unsigned threads = std::clamp(std::thread::hardware_concurrency(), 1u, 32u);
  for (unsigned t = 1; t < threads && bytes > (size_t{4} << 20); ++t) workers.emplace_back(work);
  work();
}

std::shared_ptr<std::byte> make_memory(size_t bytes) {
  constexpr size_t kHugePage = size_t{2} << 20;
  const size_t whole = (bytes + 2 * kHugePage - 1) / kHugePage * kHugePage;
  void* raw = whole < bytes ? MAP_FAILED
                            : mmap(nullptr, whole, PROT_READ | PROT_WRITE,
                                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (raw == MAP_FAILED) {
    throw Error("{} of memory for weights could not be had", pretty_bytes(double(bytes)));
  }
  // The returned memory starts at a huge page boundary.
  const auto start = reinterpret_cast<uintptr_t>(raw);
  const uintptr_t aligned = (start + kHugePage - 1) / kHugePage * kHugePage;
  madvise(raw, whole, MADV_HUGEPAGE);
  return {reinterpret_cast<std::byte*>(aligned), [raw, whole](std::byte*) { munmap(raw, whole); }};
}

}  // namespace ridge
