// Loads weights from the bytes of files (mapped, embedded, or from a fuzzer).
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/weights/load_parts.h"
#include "engine/weights/weights.h"

namespace ridge {

struct NamedBytes {
  std::string_view bytes;
  std::string name;  // shown in errors
};

// Loads everything except the tokenizer, the source and the owners of the bytes, which must outlive
// the weights. Throws Error when any check fails. The first piece of a GGUF holds its metadata.
Weights weights_from_gguf(std::span<const NamedBytes> pieces);
Weights weights_from_safetensors(const nlohmann::json& config, const std::string& where,
                                 std::span<const NamedBytes> shards);

// One tensor of a file.
struct StoredTensor {
  std::string format;          // the file's name for the format
  std::vector<int64_t> shape;  // slowest dimension first
  const std::byte* data = nullptr;
  const std::string* file = nullptr;
  bool used = false;
};

// The tensors of all files of a model, by name.
class Tensors {
 public:
  void add(const std::string& name, StoredTensor tensor);  // throws Error for a duplicate name
  bool has(std::string_view name) const { return tensors_.find(name) != tensors_.end(); }

  // Returns the tensor after checking its shape and format; the Error names what is missing or
  // wrong. `stacked` returns matrix `index` of a stack of `count` matrices.
  Matrix matrix(const std::string& name, int64_t rows, int64_t columns, const std::string& where);
  Matrix stacked(const std::string& name, int64_t count, int64_t index, int64_t rows,
                 int64_t columns, const std::string& where);
  Vector vector(const std::string& name, int64_t count, const std::string& where);

  // Throws Error for a layer's tensor that nothing used: ignoring a bias gives wrong results.
  void refuse_unused(std::string_view layer_prefix) const;

 private:
  StoredTensor& find(const std::string& name, const std::string& where);
  std::map<std::string, StoredTensor, std::less<>> tensors_;
};

// Zeroed memory, in huge pages where the kernel provides them. Throws Error on failure.
std::shared_ptr<std::byte> make_memory(size_t bytes);

}  // namespace ridge
