// The bytes of one file of evidence: on disk, or in memory where the page has sent them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace ridge {

struct EvidenceInput {
  // NOLINTNEXTLINE(google-explicit-constructor): a path is the usual input
  EvidenceInput(std::string path) : name(std::move(path)) {}
  EvidenceInput(std::string sent_name, std::string_view bytes, double modified)
      : name(std::move(sent_name)), sent(bytes), sent_modified_s(modified) {}

  std::string name;                      // the path; of a sent file, its name alone
  std::optional<std::string_view> sent;  // nothing: read the file at `name`
  double sent_modified_s = 0;            // Unix time; 0: not known
};

// Unpacked bytes that may still be read of all files of a case together.
struct UnpackBudget {
  uint64_t limit = UINT64_MAX;
  uint64_t used = 0;
};

// Reads a file from its beginning, unpacked where it is gzipped.
class UnpackedReader {
 public:
  // Both must outlive the reader. Throws Error where the file cannot be opened.
  UnpackedReader(const EvidenceInput& input, UnpackBudget& budget);
  ~UnpackedReader();
  UnpackedReader(const UnpackedReader&) = delete;
  UnpackedReader& operator=(const UnpackedReader&) = delete;

  // Fills up to `size` bytes and returns how many; 0: the end, or damaged(). Throws Error when the
  // budget is exceeded.
  size_t read(char* into, size_t size);
  bool damaged() const { return damaged_; }
  uint64_t position() const { return position_; }  // in the unpacked bytes

 private:
  struct FromFile;
  struct FromMemory;

  const std::string& name_;
  UnpackBudget& budget_;
  std::unique_ptr<FromFile> file_;  // one of these two
  std::unique_ptr<FromMemory> memory_;
  bool damaged_ = false;
  uint64_t position_ = 0;
};

}  // namespace ridge
