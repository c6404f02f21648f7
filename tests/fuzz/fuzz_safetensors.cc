// Any bytes as a safetensors file: an Error or tensors that fit the file.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/error.h"
#include "model/safetensors.h"
#include "replay.h"
#include "sample_files.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view bytes(reinterpret_cast<const char*>(data), size);
  try {
    uint64_t total = 0;
    for (const ridge::SafeTensor& tensor : ridge::parse_safetensors(bytes, "fuzz")) {
      total += tensor.bytes;
    }
    if (total > size) std::abort();
  } catch (const ridge::Error&) {
  }
  return 0;
}

std::vector<std::string> fuzz_seeds() {
  return {ridge::sample::tiny_safetensors(), ridge::sample::safetensors("{}", 0),
          ridge::sample::safetensors(
              R"({"packed":{"dtype":"F4","shape":[3,5],"data_offsets":[0,8]},
                  "empty":{"dtype":"I64","shape":[0,7],"data_offsets":[8,8]}})",
              8)};
}
