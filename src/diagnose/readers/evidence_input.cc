#include "diagnose/readers/evidence_input.h"

#include <zlib.h>

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/file.h"
#include "base/units.h"

namespace ridge {
namespace {

constexpr size_t kMostAtOnce = 1u << 22;  // zlib counts in 32 bits

bool is_gzipped(std::string_view bytes) { return bytes.starts_with("\x1f\x8b"); }

}  // namespace

// gzread passes files through that are not gzipped.
struct UnpackedReader::FromFile {
  explicit FromFile(const std::string& path)
      : file(gzdopen(open_for_reading(path), "rb"), gzclose) {
    if (!file) throw Error("zlib failed");
    gzbuffer(file.get(), 256u << 10);
  }
  // -1: damaged.
  int read(char* into, size_t size) { return gzread(file.get(), into, unsigned(size)); }

  const std::unique_ptr<gzFile_s, int (*)(gzFile)> file;
};

struct UnpackedReader::FromMemory {
  explicit FromMemory(std::string_view bytes) : rest(bytes), packed(is_gzipped(bytes)) {
    if (packed && inflateInit2(&stream, 16 + MAX_WBITS) != Z_OK) throw Error("zlib failed");
  }
  ~FromMemory() {
    if (packed) inflateEnd(&stream);
  }
  FromMemory(const FromMemory&) = delete;
  FromMemory& operator=(const FromMemory&) = delete;

  // -1: damaged.
  int read(char* into, size_t size) {
    if (packed) return unpack(into, size);
    const size_t count = std::min(size, rest.size());
    std::memcpy(into, rest.data(), count);
    rest.remove_prefix(count);
    return int(count);
  }

  int unpack(char* into, size_t size) {
    stream.next_out = reinterpret_cast<Bytef*>(into);
    stream.avail_out = uInt(size);
    for (int state = Z_OK; state == Z_OK && stream.avail_out > 0 && !ended;) {
      const size_t given = std::min(rest.size(), kMostAtOnce);
      stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(rest.data()));
      stream.avail_in = uInt(given);
      state = inflate(&stream, Z_NO_FLUSH);
      rest.remove_prefix(given - stream.avail_in);
      if (state != Z_STREAM_END) continue;
      // A file may be several archives in a row. Other bytes behind one are ignored, as by gzip.
      ended = !is_gzipped(rest);
      state = inflateReset(&stream);
    }
    const size_t got = size - stream.avail_out;
    return got > 0 ? int(got) : ended ? 0 : -1;
  }

  std::string_view rest;  // what is not read yet
  const bool packed;
  bool ended = false;  // the last archive is whole
  z_stream stream{};
};

UnpackedReader::UnpackedReader(const EvidenceInput& input, UnpackBudget& budget)
    : name_(input.name), budget_(budget) {
  if (input.sent) {
    memory_ = std::make_unique<FromMemory>(*input.sent);
  } else {
    file_ = std::make_unique<FromFile>(input.name);
  }
}

UnpackedReader::~UnpackedReader() = default;

size_t UnpackedReader::read(char* into, size_t size) {
  const size_t wanted = std::min(size, kMostAtOnce);
  const int got = file_ ? file_->read(into, wanted) : memory_->read(into, wanted);
  damaged_ = damaged_ || got < 0;
  const auto count = size_t(std::max(got, 0));
  position_ += count;
  budget_.used += count;
  if (budget_.used > budget_.limit) {
    throw Error("{}: the files unpack to more than {}", name_,
                pretty_binary(double(budget_.limit)));
  }
  return count;
}

}  // namespace ridge
