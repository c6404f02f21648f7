// Arguments that an engine was started with, from its log or from what it tells a client, as the
// setup of a run.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "diagnose/evidence.h"

namespace ridge {

// By name with underscores: "tensor_parallel_size" -> "2". Names of vLLM and of SGLang.
using EngineArguments = std::map<std::string, std::string, std::less<>>;

// Fills what `setup` does not have yet; limits (max_num_seqs, the largest CUDA graph, the tokens of
// the KV cache) go to `add`.
void apply_engine_arguments(const EngineArguments& arguments, RunSetup& setup,
                            const std::function<void(Quantity, double, std::string_view)>& add);

// The arguments in "model='a/b', tensor_parallel_size=2, .." or "{'model': 'a/b', ..}", whichever
// line they stand in: quotes are removed, and values in brackets keep their commas.
EngineArguments parse_arguments(std::string_view text);

// "fp8_e4m3", "awq_marlin", "torch.bfloat16" -> a name that format_from_name() knows; empty where
// the name does not tell the format ("compressed-tensors").
std::string weight_format(std::string_view name);

}  // namespace ridge
