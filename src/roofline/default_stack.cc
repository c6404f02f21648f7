#include "roofline/default_stack.h"

#include "roofline/kernel_times.h"

namespace ridge {

std::string default_stack(const Machine& machine) {
  const bool geforce = machine.title.find("GeForce") != std::string::npos;
  if (machine.kind == MachineKind::cpu || machine.vendor == "Apple" || geforce) return "llama.cpp";
  static const Stack vllm = find_stack("vllm");
  const std::optional<MatchedKernels> kernels = match_kernels(machine, vllm);
  const bool fitted = machine.vendor == "NVIDIA" && kernels && kernels->gpu.arch != Arch::other;
  return fitted ? "vllm" : "typical";
}

}  // namespace ridge
