#include "serve/page.h"

#include <zlib.h>

#include <cassert>
#include <cstddef>

// RIDGE_PAGE is the folder web/dist, from CMake, which also makes this file depend on its contents.
#define RIDGE_EMBED(symbol, file)                                   \
  asm(".section .rodata\n"                                          \
      ".global ridge_page_" #symbol                                 \
      "_begin\n"                                                    \
      ".global ridge_page_" #symbol "_end\nridge_page_" #symbol     \
      "_begin:\n"                                                   \
      ".incbin \"" RIDGE_PAGE "/" file ".gz\"\nridge_page_" #symbol \
      "_end:\n"                                                     \
      ".previous\n");                                               \
  extern "C" const char ridge_page_##symbol##_begin[], ridge_page_##symbol##_end[]

RIDGE_EMBED(css, "app.css");
RIDGE_EMBED(js, "app.js");
RIDGE_EMBED(icon, "icon.svg");
RIDGE_EMBED(index, "index.html");
RIDGE_EMBED(views, "views.json");

namespace ridge {
namespace {

std::string_view between(const char* begin, const char* end) {
  return {begin, size_t(end - begin)};
}

#define RIDGE_BYTES(symbol) between(ridge_page_##symbol##_begin, ridge_page_##symbol##_end)

// The same files as in web/build.mjs.
const PageFile kFiles[] = {
    {"app.css", "text/css; charset=utf-8", RIDGE_BYTES(css)},
    {"app.js", "text/javascript; charset=utf-8", RIDGE_BYTES(js)},
    {"icon.svg", "image/svg+xml", RIDGE_BYTES(icon)},
    {"index.html", "text/html; charset=utf-8", RIDGE_BYTES(index)},
    {"views.json", "application/json", RIDGE_BYTES(views)},
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
