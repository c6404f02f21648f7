#include "measure/cpu/bandwidth.h"

#include <algorithm>
#include <bit>

namespace ridge {
namespace {

// An odd bit pattern. The bits of 1.0 add up to zero over any 512 words, so that a missing read
// would not show.
constexpr float kValue = 1.00000012f;             // 0x3f800001
constexpr size_t kSliceFloats = size_t{4} << 20;  // 16 MB of a thread's part

struct alignas(64) Cursor {  // a cache line for each thread
  size_t slice = 0;
};

// Floats of each of `arrays` equal arrays inside `bytes`, in whole steps.
size_t array_floats(double bytes, size_t arrays) {
  const size_t floats = static_cast<size_t>(bytes) / sizeof(float) / arrays / kStep * kStep;
  return std::max(floats, kStep);
}

size_t arrays_of(Access access) {
  switch (access) {
    case Access::copy:
    case Access::copy_stream:
      return 2;
    case Access::triad:
    case Access::triad_stream:
      return 3;
    default:
      return 1;
  }
}

// One thread's work. Every array holds kValue before and after, whatever runs.
// `apart` is the distance of the arrays in floats.
uint32_t work(const KernelSet& k, Access access, float* a, size_t apart, size_t n, long repeats) {
  switch (access) {
    case Access::read:
      return k.read(a, n, repeats);
    case Access::write:
      k.write(a, n, repeats, kValue);
      break;
    case Access::write_stream:
      k.write_stream(a, n, repeats, kValue);
      break;
    case Access::copy:
      k.copy(a, a + apart, n, repeats);
      break;
    case Access::copy_stream:
      k.copy_stream(a, a + apart, n, repeats);
      break;
    case Access::update:
      k.update(a, n, repeats, 1.0f);
      break;
    case Access::triad:
      k.triad(a, a + apart, a + 2 * apart, n, repeats, 0.0f);
      break;
    case Access::triad_stream:
      k.triad_stream(a, a + apart, a + 2 * apart, n, repeats, 0.0f);
      break;
  }
  return 0;
}

}  // namespace

std::string access_name(Access access) {
  constexpr const char* kNames[] = {"read",        "write",  "write.stream", "copy",
                                    "copy.stream", "update", "triad",        "triad.stream"};
  return kNames[static_cast<size_t>(access)];
}

bool is_streamed(Access access) {
  return access == Access::write_stream || access == Access::copy_stream ||
         access == Access::triad_stream;
}

double counted_share(Access access) { return access == Access::update ? 2 : 1; }

std::string counting(Access access) {
  switch (access) {
    case Access::read:
      return "each byte once";
    case Access::write:
      return "each byte once; the cache reads the line first, so the memory moves 2x";
    case Access::copy:
      return "read + written; with the line read before it is written the memory moves 1.5x";
    case Access::update:
      return "read + written; the memory moves as much";
    case Access::triad:
      return "2 read + 1 written; with the line read before it is written the memory moves 1.33x";
    default:
      return "non-temporal stores: the bytes counted are the bytes moved";
  }
}

WorkingSet::WorkingSet(ThreadTeam& team, double bytes, Pages pages)
    : part_floats_(array_floats(bytes / team.size(), 1)),
      buffer_(part_floats_ * sizeof(float) * static_cast<size_t>(team.size()), pages) {
  if (!buffer_) return;
  team.run([this](int index) { std::fill_n(part(index), part_floats_, kValue); });
}

float* WorkingSet::part(int index) const {
  return buffer_.as<float>() + static_cast<size_t>(index) * part_floats_;
}

Rates measure_bandwidth(ThreadTeam& team, const WorkingSet& set, double bytes, Access access,
                        const KernelSet& kernels, const Sampling& sampling) {
  const size_t arrays = arrays_of(access);
  const size_t whole = array_floats(std::min(bytes, set.part_bytes()), arrays);
  // A large set is read in slices, one per repeat. No line is read again before the whole set has
  // been, and a pass can be short enough to fall between two preemptions.
  const size_t slices = std::max<size_t>(1, whole * arrays / kSliceFloats);
  const size_t n = whole / slices / kStep * kStep;
  std::vector<Cursor> cursors(static_cast<size_t>(team.size()));
  std::atomic<bool> wrong = false;
  const Samples samples = sample(team, sampling, [&](int index, long repeats) {
    size_t& slice = cursors[static_cast<size_t>(index)].slice;
    const long inside = slices == 1 ? repeats : 1;  // of one call
    for (long done = 0; done < repeats; done += inside) {
      float* const start = set.part(index) + slice * n;
      const uint32_t sum = work(kernels, access, start, whole, n, inside);
      const uint32_t expected = static_cast<uint32_t>(n) * std::bit_cast<uint32_t>(kValue) *
                                static_cast<uint32_t>(inside);
      if (access == Access::read && sum != expected) wrong = true;
      slice = (slice + 1) % slices;
    }
  });
  const double moved =
      static_cast<double>(n * arrays * sizeof(float)) * counted_share(access) * team.size();
  Rates rates;
  for (const double seconds : samples.seconds) rates.bytes_per_s.push_back(moved / seconds);
  rates.doubt = wrong ? "checksum wrong: not everything was read" : samples.doubt;
  return rates;
}

}  // namespace ridge
