#include "engine/weights/embedded_model.h"

#include <cstddef>

// CMake sets RIDGE_MODELS, the folder of the models, and makes this file depend on its contents.
#define RIDGE_EMBED(symbol, file)                       \
  asm(".section .rodata\n"                              \
      ".balign 64\n"                                    \
      ".global " #symbol                                \
      "_begin\n"                                        \
      ".global " #symbol "_end\n" #symbol               \
      "_begin:\n"                                       \
      ".incbin \"" RIDGE_MODELS "/" file "\"\n" #symbol \
      "_end:\n"                                         \
      ".previous\n")

RIDGE_EMBED(ridge_model_7m, "ridge-7m.gguf");
RIDGE_EMBED(ridge_model_1m, "ridge-1m.gguf");

extern "C" {
extern const char ridge_model_7m_begin[], ridge_model_7m_end[];
extern const char ridge_model_1m_begin[], ridge_model_1m_end[];
}

namespace ridge {

std::string_view embedded_model(std::string_view name) {
  if (name.empty() || name == "ridge-7m") {
    return {ridge_model_7m_begin, size_t(ridge_model_7m_end - ridge_model_7m_begin)};
  }
  if (name == "ridge-1m") {
    return {ridge_model_1m_begin, size_t(ridge_model_1m_end - ridge_model_1m_begin)};
  }
  return {};
}

}  // namespace ridge
