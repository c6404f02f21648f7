// Any bytes as a GGUF file: an Error or a Model.
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/error.h"
#include "model/architecture.h"
#include "model/gguf.h"
#include "replay.h"
#include "sample_files.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view bytes(reinterpret_cast<const char*>(data), size);
  try {
    ridge::GgufHeader header = ridge::parse_gguf(bytes, "fuzz");
    if (header.tensor_bytes > size) std::abort();
    ridge::Model model = ridge::model_from_gguf_header(header, "fuzz");
    if (!(std::isfinite(weight_bytes(model)) && weight_bytes(model) > 0)) std::abort();
    if ((model.execution != nullptr) != model.not_executed.empty()) std::abort();
    if (model.execution && architecture_of(model).layer_count() != model.layers()) std::abort();
  } catch (const ridge::Error&) {
  }
  return 0;
}

std::vector<std::string> fuzz_seeds() {
  using ridge::sample::Gguf;
  Gguf experts;
  experts.text("general.architecture", "deepseek2")
      .number("deepseek2.block_count", 2)
      .number("deepseek2.embedding_length", 64)
      .number("deepseek2.feed_forward_length", 96)
      .number("deepseek2.attention.head_count", 4)
      .number("deepseek2.attention.kv_lora_rank", 16)
      .number("deepseek2.attention.key_length", 24)
      .number("deepseek2.attention.value_length", 16)
      .number("deepseek2.rope.dimension_count", 8)
      .number("deepseek2.expert_count", 4)
      .number("deepseek2.expert_used_count", 2)
      .number("deepseek2.expert_feed_forward_length", 32)
      .number("deepseek2.leading_dense_block_count", 1)
      .number("deepseek2.vocab_size", 100);
  Gguf windows;
  windows.text("general.architecture", "gpt-oss")
      .number("gpt-oss.block_count", 4)
      .number("gpt-oss.embedding_length", 64)
      .number("gpt-oss.feed_forward_length", 64)
      .number("gpt-oss.attention.head_count", 4)
      .number("gpt-oss.attention.head_count_kv", 2)
      .number("gpt-oss.attention.sliding_window", 16)
      .number("gpt-oss.context_length", 64)
      .number("gpt-oss.expert_count", 4)
      .number("gpt-oss.expert_used_count", 2)
      .number("gpt-oss.vocab_size", 100);
  Gguf reals;
  reals.text("general.architecture", "llama")
      .real("llama.block_count", 2)
      .real("llama.embedding_length", 64)
      .real("llama.attention.head_count", 4)
      .real("llama.rope.scaling.factor", 4)
      .number("llama.vocab_size", 100);
  return {ridge::sample::tiny_llama_gguf().bytes(), experts.bytes(), windows.bytes(), reals.bytes(),
          Gguf(2).text("general.architecture", "qwen2").bytes()};
}
