// The models embedded in the program, as GGUF files.
#pragma once

#include <string_view>

namespace ridge {

// "ridge-7m" (also the empty name) or "ridge-1m"; empty for other names.
std::string_view embedded_model(std::string_view name);

}  // namespace ridge
