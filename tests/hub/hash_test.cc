#include "hub/hash.h"

#include <gtest/gtest.h>

namespace ridge {
namespace {

template <typename Hash>
std::string hash_of(std::string_view bytes, size_t piece) {
  Hash hash;
  for (size_t at = 0; at < bytes.size(); at += piece) hash.update(bytes.substr(at, piece));
  return hash.hex();
}

// FIPS 180-2, appendices A and B.
TEST(Hash, StandardsExamples) {
  const std::string two_blocks = "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
  const std::string million(1000000, 'a');
  EXPECT_EQ(hash_of<Sha256>("", 1),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(hash_of<Sha256>("abc", 3),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(hash_of<Sha256>(two_blocks, 56),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(hash_of<Sha256>(million, 4096),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  EXPECT_EQ(hash_of<Sha1>("abc", 3), "a9993e364706816aba3e25717850c26c9cd0d89d");
  EXPECT_EQ(hash_of<Sha1>(two_blocks, 56), "84983e441c3bd26ebaae4aa1f95129e5e54670f1");
  EXPECT_EQ(hash_of<Sha1>(million, 4096), "34aa973cd4c4daa4f61eeb2bdbad27316534016f");
}

TEST(Hash, PiecesDoNotMatter) {
  std::string bytes;
  for (int i = 0; i < 300; ++i) bytes += static_cast<char>(i * 37);
  for (size_t length = 0; length <= bytes.size(); ++length) {
    const std::string_view part = std::string_view(bytes).substr(0, length);
    for (const size_t piece : {1, 7, 63, 64, 65, 128}) {
      EXPECT_EQ(hash_of<Sha256>(part, piece), hash_of<Sha256>(part, 300));
      EXPECT_EQ(hash_of<Sha1>(part, piece), hash_of<Sha1>(part, 300));
    }
  }
}

}  // namespace
}  // namespace ridge
