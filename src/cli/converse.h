// `ridge run -i`: a conversation at the terminal, through the engine that `ridge serve` runs.
#pragma once

#include <memory>
#include <string>

#include "cli/engine_options.h"
#include "engine/generate/generation.h"

namespace ridge {

// Reads lines from standard input until its end. `system` is the conversation's first message;
// empty: none. What the turns before have in common with the next prompt is found in the prefix
// cache.
void converse(std::unique_ptr<Runner> runner, const EngineOptions& engine,
              const GenerateOptions& generate, const std::string& system);

}  // namespace ridge
