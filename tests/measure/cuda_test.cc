// What needs a GPU reports itself skipped without one (ctest label gpu).
#include <gtest/gtest.h>

#include "base/error.h"
#include "measure/band.h"
#include "measure/cuda/measure_cuda.h"

namespace ridge {
namespace {

TEST(CudaDevices, AreListedOrTheReasonGiven) {
  const CudaDevices devices = cuda_devices();
  EXPECT_NE(devices.names.empty(), devices.why_none.empty());
  if (devices.names.empty()) {
    EXPECT_THROW(measure_cuda(0, Effort::quick, [](const std::string&) {}), Error);
  }
}

TEST(GpuMeasure, EveryReadingIsPlausibleAndUndoubted) {
  const CudaDevices devices = cuda_devices();
  if (devices.names.empty()) GTEST_SKIP() << "no GPU: " << devices.why_none;
  const Report report = measure_cuda(0, Effort::quick, [](const std::string&) {});
  EXPECT_TRUE(report.missing.empty()) << report.missing.front();
  EXPECT_TRUE(contradictions(report).empty());
  for (const char* id :
       {"HBM.read", "HBM.copy", "L2.read", "L1.read", "shared.read", "L1.latency", "L2.latency",
        "HBM.latency", "launch.graph", "launch.grid_barrier", "peak.fp32.fma", "host.to_device"}) {
    EXPECT_NE(report.find(id), nullptr) << id;
  }
  for (const Reading& reading : report.readings) {
    const Judgement judgement = judge(reading, report.base);
    EXPECT_NE(judgement.verdict, ReadingVerdict::implausible)
        << reading.id << ": " << judgement.reason;
    EXPECT_EQ(reading.doubt.find("wrong"), std::string::npos)
        << reading.id << ": " << reading.doubt;
  }
}

}  // namespace
}  // namespace ridge
