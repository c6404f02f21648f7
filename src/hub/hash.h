// SHA-256 and SHA-1, which name the contents of Hugging Face's files. They are Ridge's own because
// no linked library has them: OpenSSL would be one more shared library that a machine with only the
// binary may lack, for 100 lines. Files are hashed while they arrive, on one thread per file.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace ridge {

// Collects bytes into blocks of 64 and pads the last one (FIPS 180-4, section 5). `Words` is the
// number of 32-bit words of the state.
template <size_t Words>
class BlockHash {
 public:
  void update(std::string_view bytes);
  std::string hex();  // ends the hash; call once

 protected:
  using State = std::array<uint32_t, Words>;
  using Compress = void (*)(State& state, const unsigned char* blocks, size_t count);
  BlockHash(const State& start, Compress compress) : state_(start), compress_(compress) {}

 private:
  State state_;
  Compress compress_;
  std::array<unsigned char, 64> block_{};
  uint64_t length_ = 0;  // bytes so far
};

class Sha256 : public BlockHash<8> {
 public:
  Sha256();
};

class Sha1 : public BlockHash<5> {
 public:
  Sha1();
};

extern template class BlockHash<8>;
extern template class BlockHash<5>;

}  // namespace ridge
