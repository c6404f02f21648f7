// What a fuzz target offers beside LLVMFuzzerTestOneInput, so that builds without libFuzzer can
// replay mutations of valid inputs.
#pragma once

#include <string>
#include <vector>

std::vector<std::string> fuzz_seeds();
