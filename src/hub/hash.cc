#include "hub/hash.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

namespace ridge {
namespace {

constexpr size_t kBlockBytes = 64;

uint32_t big_endian_word(const unsigned char* bytes) {
  return uint32_t{bytes[0]} << 24 | uint32_t{bytes[1]} << 16 | uint32_t{bytes[2]} << 8 | bytes[3];
}

// FIPS 180-4, section 4.2.2: the fraction of the cube roots of the first 64 primes.
constexpr uint32_t kSha256Constants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

void compress_sha256(std::array<uint32_t, 8>& state, const unsigned char* blocks, size_t count) {
  for (; count > 0; --count, blocks += kBlockBytes) {
    uint32_t w[64];
    for (size_t t = 0; t < 16; ++t) w[t] = big_endian_word(blocks + 4 * t);
    for (size_t t = 16; t < 64; ++t) {
      const uint32_t s0 = std::rotr(w[t - 15], 7) ^ std::rotr(w[t - 15], 18) ^ (w[t - 15] >> 3);
      const uint32_t s1 = std::rotr(w[t - 2], 17) ^ std::rotr(w[t - 2], 19) ^ (w[t - 2] >> 10);
      w[t] = w[t - 16] + s0 + w[t - 7] + s1;
    }
    auto [a, b, c, d, e, f, g, h] = state;
    for (size_t t = 0; t < 64; ++t) {
      const uint32_t sum1 = std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25);
      const uint32_t t1 = h + sum1 + ((e & f) ^ (~e & g)) + kSha256Constants[t] + w[t];
      const uint32_t sum0 = std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22);
      const uint32_t t2 = sum0 + ((a & b) ^ (a & c) ^ (b & c));
      h = g, g = f, f = e, e = d + t1, d = c, c = b, b = a, a = t1 + t2;
    }
    const uint32_t after[8] = {a, b, c, d, e, f, g, h};
    for (size_t i = 0; i < 8; ++i) state[i] += after[i];
  }
}

void compress_sha1(std::array<uint32_t, 5>& state, const unsigned char* blocks, size_t count) {
  for (; count > 0; --count, blocks += kBlockBytes) {
    uint32_t w[80];
    for (size_t t = 0; t < 16; ++t) w[t] = big_endian_word(blocks + 4 * t);
    for (size_t t = 16; t < 80; ++t) {
      w[t] = std::rotl(w[t - 3] ^ w[t - 8] ^ w[t - 14] ^ w[t - 16], 1);
    }
    auto [a, b, c, d, e] = state;
    for (size_t t = 0; t < 80; ++t) {
      const uint32_t mixed = t < 20   ? ((b & c) | (~b & d)) + 0x5a827999
                             : t < 40 ? (b ^ c ^ d) + 0x6ed9eba1
                             : t < 60 ? ((b & c) | (b & d) | (c & d)) + 0x8f1bbcdc
                                      : (b ^ c ^ d) + 0xca62c1d6;
      const uint32_t next = std::rotl(a, 5) + mixed + e + w[t];
      e = d, d = c, c = std::rotl(b, 30), b = a, a = next;
    }
    const uint32_t after[5] = {a, b, c, d, e};
    for (size_t i = 0; i < 5; ++i) state[i] += after[i];
  }
}

}  // namespace

template <size_t Words>
void BlockHash<Words>::update(std::string_view bytes) {
  const size_t held = length_ % kBlockBytes;
  length_ += bytes.size();
  if (held > 0) {
    const size_t added = std::min(kBlockBytes - held, bytes.size());
    std::memcpy(block_.data() + held, bytes.data(), added);
    bytes.remove_prefix(added);
    if (held + added < kBlockBytes) return;
    compress_(state_, block_.data(), 1);
  }
  const size_t whole = bytes.size() / kBlockBytes;
  compress_(state_, reinterpret_cast<const unsigned char*>(bytes.data()), whole);
  bytes.remove_prefix(whole * kBlockBytes);
  std::copy(bytes.begin(), bytes.end(), block_.begin());
}

template <size_t Words>
std::string BlockHash<Words>::hex() {
  const uint64_t bits = 8 * length_;
  // One bit 1, zeros up to 8 bytes before the end of a block, the length in bits.
  std::string padding(1, '\x80');
  padding.resize(1 + (kBlockBytes + 55 - length_ % kBlockBytes) % kBlockBytes, '\0');
  for (int shift = 56; shift >= 0; shift -= 8) padding += static_cast<char>(bits >> shift & 0xFF);
  update(padding);
  std::string text;
  for (const uint32_t word : state_) text += fmt::format("{:08x}", word);
  return text;
}

template class BlockHash<8>;
template class BlockHash<5>;

Sha256::Sha256()
    : BlockHash({0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab,
                 0x5be0cd19},
                compress_sha256) {}

Sha1::Sha1()
    : BlockHash({0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0}, compress_sha1) {}

}  // namespace ridge
