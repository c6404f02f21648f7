#include <fmt/format.h>

#include <filesystem>

#include "model/builtin.h"
#include "plan/whatif.h"

namespace ridge {
namespace {

// What an engine is told to load: a repository, or the folder of a file. MODEL where the atlas
// knows neither.
std::string model_argument(const Model& model) {
  if (model.source != "built in") {
    const std::filesystem::path file = model.source;
    const bool of_folder = file.extension() == ".json" || file.extension() == ".safetensors";
    const std::string path = of_folder ? file.parent_path().string() : file.string();
    return path.find(' ') == std::string::npos ? path : fmt::format("'{}'", path);
  }
  const std::string repository = model_repository(model.name);
  return repository.empty() ? "MODEL" : repository;
}

bool quantized(const Request& r) { return r.plan.weights && r.plan.weights->bits < 16; }

std::string vllm_command(const Request& r, const Replica& replica) {
  std::string text =
      fmt::format("vllm serve {} --tensor-parallel-size {}", model_argument(*r.model), r.plan.tp);
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
                                 model_argument(*r.model), r.plan.tp);
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
  std::string text =
      fmt::format("trtllm-serve {} --tp_size {}", model_argument(*r.model), r.plan.tp);
  if (r.plan.pp > 1) text += fmt::format(" --pp_size {}", r.plan.pp);
  if (r.plan.ep > 1) text += fmt::format(" --ep_size {}", r.plan.ep);
  return text + fmt::format(" --max_batch_size {} --max_num_tokens {}",
                            replica.policy.max_sequences, replica.policy.max_tokens);
}

std::string llama_cpp_command(const Request& r, const Replica& replica) {
  const std::string& source = r.model->source;  // a repository has no name for its GGUF files
  std::string text =
      fmt::format("llama-server --model {}", source.ends_with(".gguf") ? source : "MODEL.gguf");
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
    const bool inside = r.model->name.starts_with("ridge-");  // its weights are in the binary
    return fmt::format("ridge serve {} --device {} --max-sequences {} --chunk {}",
                       inside ? r.model->name : model_argument(*r.model), device,
                       replica.policy.max_sequences, replica.policy.max_tokens);
  }
  return vllm_command(r, replica);
}

}  // namespace ridge
