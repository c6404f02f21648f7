#include "measure/cpu/latency.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>

#include "base/units.h"

namespace ridge {
namespace {

constexpr size_t kLine = 64;
constexpr size_t kPointers = kLine / sizeof(void*);  // a node fills its line

constexpr int kLoadsPerStep = 16;

}  // namespace

Ring::Ring(const MappedBuffer& buffer, double bytes, uint64_t seed)
    : nodes_(std::max<size_t>(2, static_cast<size_t>(bytes) / kLine)), start_(buffer.as<void*>()) {
  nodes_ = std::min(nodes_, buffer.size() / kLine);
  const auto node = [this](size_t i) { return start_ + i * kPointers; };
  for (size_t i = 0; i < nodes_; ++i) *node(i) = node(i);
  std::mt19937_64 random(seed);
  for (size_t i = nodes_ - 1; i > 0; --i) std::swap(*node(i), *node(random() % i));
  at_ = start_;
}

void Ring::chase(long steps) {
  void** p = at_;
  for (long i = 0; i < steps; ++i) {
    for (int unroll = 0; unroll < kLoadsPerStep; ++unroll) {
      p = static_cast<void**>(*p);
      asm volatile("" : "+r"(p));  // each load stays a load
    }
  }
  at_ = p;
}

bool Ring::is_whole() const {
  size_t met = 0;
  void** p = start_;
  do {
    p = static_cast<void**>(*p);
    ++met;
  } while (p != start_ && met <= nodes_);
  return met == nodes_;
}

Reading measure_latency(ThreadTeam& one, const MappedBuffer& buffer, double bytes,
                        const Sampling& sampling) {
  static uint64_t seed = 1;  // another order each time
  Ring ring(buffer, bytes, ++seed);
  const Samples samples = sample(one, sampling, [&](int, long steps) { ring.chase(steps); });
  std::vector<double> times;
  for (const double seconds : samples.seconds) times.push_back(seconds / kLoadsPerStep);
  Reading reading =
      summarize("latency", "", Dimension::time, times,
                fmt::format("random ring of 64-byte nodes over {}, one load at a time",
                            pretty_binary(static_cast<double>(ring.nodes() * kLine))));
  reading.doubt = samples.doubt;
  return reading;
}

}  // namespace ridge
