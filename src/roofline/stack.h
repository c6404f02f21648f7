// How well a software stack reaches the roof: a few numbers per operator kind, stored as JSON in
// atlas/stacks. `ideal` is the roof itself.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cost/work.h"
#include "roofline/kernels/cpu.h"

namespace ridge {

struct Efficiency {
  double compute = 1;  // share of the matrix or vector peak
  double memory = 1;   // share of a memory level's bandwidth
  double ramp = 0;     // seconds per kernel to fill and drain the machine
};

using Efficiencies = std::array<Efficiency, kOpKindCount>;

// Engines have other kernels for small steps.
struct StepEfficiencies {
  double tokens = 0;  // of a step, at most
  Efficiencies kinds;
  std::vector<std::pair<std::string, Efficiencies>> weights;  // by the format of the weights

  // `weights`: "int4-g64" is an "int4".
  const Efficiencies& of(std::string_view format) const;
};

// Where a stack's numbers were taken. What is empty, false or 0 does not matter.
struct StackHome {
  std::string name;  // "one Hopper GPU"
  bool cpu = false;
  std::string vendor, architecture;
  int devices = 0;
};

// What an engine's share of the device memory is filled with.
enum class MemoryShare : uint8_t {
  everything,      // all the engine holds (vLLM's gpu_memory_utilization)
  weights_and_kv,  // activations, graphs and the context lie outside (SGLang's mem_fraction_static)
  kv,  // a share of what is free once the rest is loaded (TensorRT-LLM's free_gpu_memory_fraction)
};

// How an engine divides the device memory, by its defaults.
struct EngineMemory {
  double share = 1;
  MemoryShare of = MemoryShare::everything;
  // Bytes that are neither weights, KV cache nor activations: context, graphs, workspaces.
  double overhead = 2e9;
};

// Models whose steps cost a host differently: dense ones, mixtures of experts, and mixtures with
// latent attention (MLA).
enum class HostKind : uint8_t { dense, experts, latent, kCount };
inline constexpr int kHostKinds = static_cast<int>(HostKind::kCount);

// What steps cost beyond their kernels, and how the kernels of whole steps differ from the fitted
// ones. Seconds and factors.
struct HostCosts {
  double step = 0;            // per step: scheduling, sampling, synchronization
  double layer = 0;           // per layer and doubling of the tensor ranks: around all-reduces
  double sequence = 0;        // per sequence that draws a token
  double experts = 1;         // on the experts' kernels in steps without prompts
  double prompt = 1;          // on the kernels of prompts
  double prompt_experts = 1;  // on their experts, beside `prompt`
  double prompt_floor = 0;    // per layer, of a prompt's own step: it runs without graphs
  double first = 0;           // before and after a request's first step
  double first_layer = 0;     // the same, per layer
};

// Other kernels of the same software for another kind of machine.
struct StackBackend {
  StackHome home;
  Efficiencies kinds;
  double graph_launch = 0;
};

// What software runs in a CPU's tiles (AMX); the rest runs in its vector units.
enum class CpuTiles : uint8_t { none, bf16_gemms, all };

struct Stack {
  std::string name = "ideal";
  std::string title;
  std::string basis;        // where the numbers come from; printed beside what depends on them
  bool calibrated = false;  // has fits of measured kernels
  StackHome home;
  Efficiencies kinds;
  std::vector<StepEfficiencies> steps;  // from small to large; `kinds` is for larger ones
  std::vector<StackBackend> backends;   // the first whose home the machine is replaces `kinds`
  std::vector<CpuKernels> cpu;          // by instruction set; `kinds` is for all others
  double link = 1;                      // share of a link's bandwidth
  double link_latency = 0;              // seconds a message costs beyond the link's own latency
  bool counts_launches = false;         // launch costs add to the expected time
  double graph_launch = 0;  // seconds per kernel where the machine's own figure is unknown
  double stream_launch = 0;
  double cpu_launch = 0;  // a parallel region on a CPU
  CpuTiles cpu_tiles = CpuTiles::all;
  double cpu_tile_compute = 1;  // share of the tiles' peak, with CpuTiles::bf16_gemms
  std::array<HostCosts, kHostKinds> hosts;
  bool fused_quantization = false;  // activations are quantized by the kernel before a GEMM
  bool quantizes_head = false;      // the head is kept in the format of the layers' matrices
  // On Blackwell: of fp8 experts that are not spread over ranks, and of fp4 experts of few tokens.
  std::string whole_experts_kernel, few_tokens_experts_kernel;
  double chunk = 8192;  // prompt tokens a step takes at most
  EngineMemory memory;
  double low = 1, high = 1;  // the band, as multiples of the expected time

  const Efficiency& of(OpKind kind) const { return kinds[static_cast<int>(kind)]; }
  const HostCosts& host(HostKind kind) const { return hosts[static_cast<int>(kind)]; }
};

// Throws Error naming the nearest stacks.
Stack find_stack(std::string_view name);
std::vector<std::string> stack_names();
// A file of atlas/stacks; `where` names it in errors.
Stack stack_from_text(std::string_view text, const std::string& where);

}  // namespace ridge
