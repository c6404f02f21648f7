#include "engine/weights/load_tensors.h"

#include <fmt/ranges.h>
#include <sys/mman.h>

#include <cmath>

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

Matrix Tensors::stacked(const std::string& name, int64_t count, int64_t index, int64_t rows,
                        int64_t columns, const std::string& where) {
  const StoredTensor& tensor = find(name, where);
  const Storage storage = checked(tensor, name, {count, rows, columns});
  const auto stride = int64_t(storage_bytes(storage, columns));
  return {storage, rows, columns, tensor.data + index * rows * stride, stride};
}

Vector Tensors::vector(const std::string& name, int64_t count, const std::string& where) {
  const StoredTensor& tensor = find(name, where);
  const Storage storage = checked(tensor, name, {count});
  Vector values(size_t(count), 0.0f);
  dequantize(storage, tensor.data, count, values.data());
  for (float value : values) {
    if (!std::isfinite(value)) throw Error("{}: {} holds what is no number", *tensor.file, name);
  }
  return values;
}

void Tensors::refuse_unused(std::string_view layer_prefix) const {
  for (auto at = tensors_.lower_bound(layer_prefix);
       at != tensors_.end() && at->first.starts_with(layer_prefix); ++at) {
    // Old checkpoints store the rotary frequencies, which the config determines.
    const bool harmless =
        at->first.ends_with("rotary_emb.inv_freq") || at->first.ends_with("attn_rot_embd.weight");
    if (!at->second.used && !harmless) {
      throw Error("{}: tensor {} has no place in this architecture", *at->second.file, at->first);
    }
  }
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
