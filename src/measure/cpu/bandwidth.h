// Bandwidth of one working set: what moves, and how it is counted.
#pragma once

#include "base/mapped_buffer.h"
#include "measure/cpu/kernels.h"
#include "measure/cpu/timing.h"
#include "measure/reading.h"

namespace ridge {

enum class Access : uint8_t {
  read,
  write,
  write_stream,
  copy,
  copy_stream,
  update,
  triad,
  triad_stream,
};
inline constexpr Access kEveryAccess[] = {Access::read,  Access::write,       Access::write_stream,
                                          Access::copy,  Access::copy_stream, Access::update,
                                          Access::triad, Access::triad_stream};

std::string access_name(Access access);  // "copy.stream"
bool is_streamed(Access access);
// Bytes the program moves for each byte of the working set, as STREAM counts, and the words that
// say what the hardware moves besides.
double counted_share(Access access);
std::string counting(Access access);

// Floats, all alike, set by the thread that will use them: each thread has its own part.
class WorkingSet {
 public:
  // Throws nothing; check with operator bool. `bytes` for all threads together.
  WorkingSet(ThreadTeam& team, double bytes, Pages pages = Pages::huge);
  explicit operator bool() const { return static_cast<bool>(buffer_); }
  float* part(int index) const;
  double part_bytes() const { return static_cast<double>(part_floats_ * sizeof(float)); }
  double huge_share() const { return buffer_.huge_share(); }

 private:
  size_t part_floats_;
  MappedBuffer buffer_;
};

// Bytes/s over the first `bytes` of each thread's part, all threads of the team together. A wrong
// checksum becomes a doubt.
struct Rates {
  std::vector<double> bytes_per_s;
  std::string doubt;
};
Rates measure_bandwidth(ThreadTeam& team, const WorkingSet& set, double bytes, Access access,
                        const KernelSet& kernels, const Sampling& sampling);

}  // namespace ridge
