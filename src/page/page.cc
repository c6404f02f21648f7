#include "page/page.h"

#include <zlib.h>

#include <cassert>
#include <cstddef>

// page_files.inc, from CMake: RIDGE_PAGE_FILE(index, "app.js", "/.../web/dist/app.js.gz") for each
// file of the page.
#define RIDGE_PAGE_FILE(index, name, file) \
  asm(".section .rodata\n"                 \
      ".global ridge_page_" #index         \
      "_begin\n"                           \
      ".global ridge_page_" #index         \
      "_end\n"                             \
      "ridge_page_" #index                 \
      "_begin:\n"                          \
      ".incbin \"" file                    \
      "\"\n"                               \
      "ridge_page_" #index                 \
      "_end:\n"                            \
      ".previous\n");                      \
  extern "C" const char ridge_page_##index##_begin[], ridge_page_##index##_end[];
#include "page_files.inc"
#undef RIDGE_PAGE_FILE

namespace ridge {
namespace {

std::string_view type_of(std::string_view path) {
  if (path.ends_with(".css")) return "text/css; charset=utf-8";
  if (path.ends_with(".html")) return "text/html; charset=utf-8";
  if (path.ends_with(".js")) return "text/javascript; charset=utf-8";
  if (path.ends_with(".json")) return "application/json";
  return "image/svg+xml";
}

PageFile page_file(std::string_view path, const char* begin, const char* end) {
  return {path, type_of(path), {begin, size_t(end - begin)}};
}

const PageFile kFiles[] = {
#define RIDGE_PAGE_FILE(index, name, file) \
  page_file(name, ridge_page_##index##_begin, ridge_page_##index##_end),
#include "page_files.inc"
#undef RIDGE_PAGE_FILE
};

}  // namespace

const PageFile* find_page_file(std::string_view path) {
  for (const PageFile& file : kFiles) {
    if (path == file.path) return &file;
  }
  return nullptr;
}

std::string unzip(std::string_view gzip) {
  std::string text;
  z_stream stream{};
  inflateInit2(&stream, 16 + MAX_WBITS);  // 16: a gzip header
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(gzip.data()));
  stream.avail_in = static_cast<uInt>(gzip.size());
  int state = Z_OK;
  while (state == Z_OK) {
    char piece[16384];
    stream.next_out = reinterpret_cast<Bytef*>(piece);
    stream.avail_out = sizeof piece;
    state = inflate(&stream, Z_NO_FLUSH);
    text.append(piece, sizeof piece - stream.avail_out);
  }
  inflateEnd(&stream);
  assert(state == Z_STREAM_END);  // the bytes are our own
  return text;
}

}  // namespace ridge
