#include <fmt/format.h>

#include "plan/whatif.h"

namespace ridge {
namespace {

bool quantized(const Request& r) { return r.plan.weights && r.plan.weights->bits < 16; }

std::string vllm_command(const Request& r, const Replica& replica) {
  std::string text =
      fmt::format("vllm serve {} --tensor-parallel-size {}", r.model->name, r.plan.tp);
  if (r.plan.pp > 1) text += fmt::format(" --pipeline-parallel-size {}", r.plan.pp);
  if (r.plan.ep > 1) text += " --enable-expert-parallel";
  if (quantized(r)) text += fmt::format(" --quantization {}", r.plan.weights->name);
  if (r.plan.kv) {
    text += fmt::format(" --kv-cache-dtype {}", r.plan.kv->bits < 16 ? r.plan.kv->name : "auto");
  }
  text += fmt::format(" --max-num-seqs {} --max-num-batched-tokens {}",
                      replica.policy.max_sequences, replica.policy.max_tokens);
  return text + (replica.policy.prefix_cache ? "" : " --no-enable-prefix-caching");
}

std::string sglang_command(const Request& r, const Replica& replica) {
  std::string text = fmt::format("python -m sglang.launch_server --model-path {} --tp {}",
                                 r.model->name, r.plan.tp);
  if (r.plan.pp > 1) text += fmt::format(" --pp-size {}", r.plan.pp);
  if (r.plan.ep > 1) text += fmt::format(" --ep-size {}", r.plan.ep);
  if (quantized(r)) text += fmt::format(" --quantization {}", r.plan.weights->name);
  if (r.plan.kv) {
    text += fmt::format(" --kv-cache-dtype {}", r.plan.kv->name == "fp8" ? "fp8_e4m3" : "auto");
  }
  text += fmt::format(" --max-running-requests {} --chunked-prefill-size {}",
                      replica.policy.max_sequences, replica.policy.max_tokens);
  return text + (replica.policy.prefix_cache ? "" : " --disable-radix-cache");
}

std::string trtllm_command(const Request& r, const Replica& replica) {
  std::string text = fmt::format("trtllm-serve {} --tp_size {}", r.model->name, r.plan.tp);
  if (r.plan.pp > 1) text += fmt::format(" --pp_size {}", r.plan.pp);
  if (r.plan.ep > 1) text += fmt::format(" --ep_size {}", r.plan.ep);
  return text + fmt::format(" --max_batch_size {} --max_num_tokens {}",
                            replica.policy.max_sequences, replica.policy.max_tokens);
}

std::string llama_cpp_command(const Request& r, const Replica& replica) {
  std::string text = fmt::format("llama-server --model {}.gguf", r.model->name);
  if (r.system.device.kind == MachineKind::gpu) text += " --n-gpu-layers 999";
  // The context is what all sequences hold together.
  return text + fmt::format(" --parallel {} --batch-size {} --ctx-size {:.0f}",
                            replica.policy.max_sequences, replica.policy.max_tokens,
                            replica.kv_tokens());
}

}  // namespace

std::string launch_command(const Request& r, const Replica& replica) {
  const std::string& stack = r.stack.name;
  if (stack == "sglang") return sglang_command(r, replica);
  if (stack == "trtllm") return trtllm_command(r, replica);
  if (stack == "llama.cpp") return llama_cpp_command(r, replica);
  if (stack.starts_with("ridge")) {
    const char* device = r.system.device.kind == MachineKind::gpu ? "cuda" : "cpu";
    return fmt::format("ridge serve {} --device {} --max-sequences {} --chunk {}", r.model->name,
                       device, replica.policy.max_sequences, replica.policy.max_tokens);
  }
  return vllm_command(r, replica);
}

}  // namespace ridge
