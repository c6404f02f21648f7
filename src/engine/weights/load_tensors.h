// Weights from the bytes of files (mapped, embedded, or a fuzzer's).
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
  std::string name;  // in errors
};

// Everything but tokenizer, source and owners of the bytes, which must outlive the weights. Throws
// Error where anything does not hold. A GGUF's first piece has its metadata.
Weights weights_from_gguf(std::span<const NamedBytes> pieces);
Weights weights_from_safetensors(const nlohmann::json& config, const std::string& where,
                                 std::span<const NamedBytes> shards);

// One tensor of a file.
struct StoredTensor {
  std::string format;          // as the file names it
  std::vector<int64_t> shape;  // slowest dimension first
  const std::byte* data = nullptr;
  const std::string* file = nullptr;
  bool used = false;
};

// The tensors of all files of a model, by name.
class Tensors {
 public:
  void add(const std::string& name, StoredTensor tensor);  // throws Error where it is there already
  bool has(std::string_view name) const { return tensors_.find(name) != tensors_.end(); }

  // The tensor as it must be; throws Error naming what is missing or not as it should be. Of a
  // stack of `count` matrices, the one at `index`.
  Matrix matrix(const std::string& name, int64_t rows, int64_t columns, const std::string& where);
  Matrix stacked(const std::string& name, int64_t count, int64_t index, int64_t rows,
                 int64_t columns, const std::string& where);
  Vector vector(const std::string& name, int64_t count, const std::string& where);

  // Throws Error for a tensor of a layer that nothing used: ignoring a bias gives wrong answers.
  void refuse_unused(std::string_view layer_prefix) const;

 private:
  StoredTensor& find(const std::string& name, const std::string& where);
  std::map<std::string, StoredTensor, std::less<>> tensors_;
};

// Zeroed memory in huge pages where the kernel agrees. Throws Error where there is none.
std::shared_ptr<std::byte> make_memory(size_t bytes);

}  // namespace ridge
