// The page, built from web/ and compiled in. Empty where the build had no Node.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace ridge {

struct PageFile {
  const char* path;       // "app.js"
  const char* type;       // of its content
  std::string_view gzip;  // its bytes, gzipped
};

std::span<const PageFile> page_files();
const PageFile* find_page_file(std::string_view path);  // nullptr: none

std::string unzip(std::string_view gzip);

}  // namespace ridge
