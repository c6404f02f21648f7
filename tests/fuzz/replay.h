// What a fuzz target offers beside LLVMFuzzerTestOneInput: valid inputs, whose mutations builds
// without libFuzzer replay, and which are libFuzzer's corpus.
#pragma once

#include <string>
#include <vector>

std::vector<std::string> fuzz_seeds();
