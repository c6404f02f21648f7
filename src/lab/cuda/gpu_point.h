// Points that the device's clock measures.
#pragma once

#include <functional>

#include "lab/cuda/lab_gpu.h"
#include "lab/lab.h"

namespace ridge {

// As Lab::measure(), for a launch that only queues kernels (at most 20). A sample lasts about a
// millisecond.
LabPoint measure_on_gpu(Lab& lab, LabGpu& gpu, double x, const LabBand& band,
                        const std::function<void()>& launch,
                        const std::function<double(double seconds)>& value);

// Seconds as milliseconds: what most axes show.
inline double to_ms(double seconds) { return 1e3 * seconds; }
inline LabBand to_ms(const LabBand& band) {
  return {1e3 * band.low, 1e3 * band.expected, 1e3 * band.high};
}

// Time of an elementwise pass of the lab's own kernels that moves `bytes`, as overlapped() has it:
// from the L2 where they fit it.
LabBand gpu_pass_seconds(Lab& lab, double bytes, double flops);

// Bytes/s of the device's memory as the machine's file has them. Throws Error where it does not.
double gpu_bandwidth(const Lab& lab);
double gpu_peak(const Lab& lab, DType math);

}  // namespace ridge
