// Files compiled into the binary (the atlas). Paths are relative to atlas/.
#pragma once

namespace ridge {

struct EmbeddedFile {
  const char* path;
  const char* text;
};

// Sorted by path; ends with {nullptr, nullptr}.
extern const EmbeddedFile kEmbeddedFiles[];

}  // namespace ridge
