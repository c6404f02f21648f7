// Runners for tests that need a GPU.
#pragma once

#include <memory>
#include <string>

#include "base/error.h"
#include "engine/runner.h"

namespace ridge {

// Null, with the reason, where nothing could run it: a build without CUDA, no device, one before
// Hopper. What else goes wrong is the test's failure.
inline std::unique_ptr<Runner> on_device(Weights weights, const RunnerOptions& options,
                                         std::string& why) {
  try {
    return make_cuda_runner(std::move(weights), options);
  } catch (const Error& error) {
    why = error.what();
    for (const char* absence : {"no CUDA device", "without the CUDA toolkit", "lacks Hopper's"}) {
      if (why.find(absence) != std::string::npos) return nullptr;
    }
    throw;
  }
}

}  // namespace ridge
