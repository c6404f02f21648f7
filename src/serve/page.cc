#include "serve/page.h"

#include <zlib.h>

#include <cassert>

namespace ridge {

const PageFile* find_page_file(std::string_view path) {
  for (const PageFile& file : page_files()) {
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
