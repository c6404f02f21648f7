// Pseudo-random numbers that are the same on every machine, on the host and on the device.
//
// SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014) is a
// counter: its n-th word is mix64(start + n * kWeyl). A word can therefore be computed from its
// index alone, in any order, by any thread.
#pragma once

#include <cstdint>

#ifdef __CUDACC__
#define RIDGE_HOST_DEVICE __host__ __device__
#else
#define RIDGE_HOST_DEVICE
#endif

namespace ridge {

// 2^64 divided by the golden ratio: multiples of it are spread evenly over the 64-bit words.
constexpr uint64_t kWeyl = 0x9e3779b97f4a7c15u;

// A bijection of the 64-bit words that changes about half of the bits for each bit of its input.
RIDGE_HOST_DEVICE constexpr uint64_t mix64(uint64_t z) {
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  return z ^ z >> 31;
}

// The first word of the SplitMix64 sequence that starts at `start`.
RIDGE_HOST_DEVICE constexpr uint64_t splitmix64(uint64_t start) { return mix64(start + kWeyl); }

// A hash of three words. For a fixed seed and a, it is the b-th word of a SplitMix64 sequence;
// the starts of these sequences are the words of the sequence of the seed. Used as a counter-based
// generator: the number at (seed, position, token) does not depend on what was drawn before.
RIDGE_HOST_DEVICE constexpr uint64_t hash64(uint64_t seed, uint64_t a, uint64_t b) {
  const uint64_t sequences = splitmix64(seed);
  const uint64_t start = splitmix64(sequences + a * kWeyl);
  return splitmix64(start + b * kWeyl);
}

// The high 53 bits as a double in [0, 1): every value a multiple of 2^-53.
RIDGE_HOST_DEVICE constexpr double unit_interval(uint64_t word) {
  return static_cast<double>(word >> 11) * 0x1p-53;
}

// The sequence, word after word.
class SplitMix64 {
 public:
  RIDGE_HOST_DEVICE constexpr explicit SplitMix64(uint64_t start) : state_(start) {}
  RIDGE_HOST_DEVICE constexpr uint64_t next() { return mix64(state_ += kWeyl); }

 private:
  uint64_t state_;
};

}  // namespace ridge
