// The page: the files of web/dist, compiled in.
#pragma once

#include <string>
#include <string_view>

namespace ridge {

struct PageFile {
  std::string_view path;  // "app.js"
  std::string_view type;  // the Content-Type
  std::string_view gzip;  // the contents, gzipped
};

const PageFile* find_page_file(std::string_view path);  // nullptr: no such file

std::string unzip(std::string_view gzip);

}  // namespace ridge
