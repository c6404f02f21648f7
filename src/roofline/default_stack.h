// The software that a machine is expected to run where nobody names a stack.
#pragma once

#include <string>

#include "machine/machine.h"

namespace ridge {

// llama.cpp on CPUs, Apple silicon and GeForce cards; vllm on the other NVIDIA GPUs whose
// architecture its kernels were fitted on; typical elsewhere.
std::string default_stack(const Machine& machine);

}  // namespace ridge
