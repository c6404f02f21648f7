// What the kernels of Ridge's CPU engine cost on one instruction set: GEMMs by weight format, and
// attention. The figures are in atlas/stacks/ridge.json under "cpu"; tools/fit/cpu.py fits them.
//
// Arithmetic is counted in operations of the fp32 peak: a token costs at least 2 for each weight
// where the product is one FMA. Unpacking and multiplying hold the loads of a core back, so that
// arithmetic and reads barely overlap: their times add up.
#pragma once

#include <array>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "cost/op.h"

namespace ridge {

// Of one weight. Up to `stream_tokens` tokens weights are unpacked again for every tile of tokens;
// beyond, once for a block of tokens, into a panel.
struct CpuGemm {
  double bits = 0;  // as the kernels read it: 5 and 6 bits are kept in bytes; 0: no such kernel
  double tile = 0, token = 0;
  double panel = 0, panel_token = 0;
};

struct CpuAttention {
  double element = 0;  // a key's or value's element of the cache, unpacked
  double product = 2;  // the same times a query's
  double score = 0;    // softmax, of whole tiles of 64 keys
  double row = 0;      // an element of a query and of its output
};

struct CpuKernels {
  std::string isa;  // as Machine::isa has it
  // Shares of the rate of plain reads: weights, and keys and values.
  double memory = 1, attention_memory = 1;
  double tile_tokens = 1, stream_tokens = 8, token_block = 132;
  double gemm_start = 0, attention_start = 0, other_start = 0;  // s, beyond the team's own barrier
  std::array<CpuGemm, kCpuFormatCount> gemms;
  std::array<CpuAttention, 3> caches;  // of 4, 2 and 1 bytes an element
  double low = 1, high = 1;            // 80 % of steps lie between these multiples of the expected
};

// Throws Error.
std::vector<CpuKernels> read_cpu_kernels(const nlohmann::json& json, const std::string& where);

// The machine: seconds of an fp32 operation on all cores, and of a byte from where the working set
// lies.
struct CpuKernelRates {
  double flop_s = 0, memory_s = 0, cores = 1;
};

struct CpuTime {
  double compute = 0, memory = 0, start = 0;
};
// nullopt where no figure covers the operator: experts, scans, collectives.
std::optional<CpuTime> cpu_time(const Op& op, const CpuKernels& kernels,
                                const CpuKernelRates& rates);

}  // namespace ridge
