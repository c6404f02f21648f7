#include <fmt/format.h>

#include "lab/cuda/lab_gpu.h"
#include "measure/cuda/run.cuh"

namespace ridge {
namespace {

const StepProgress kNoProgress = [](const std::string&) {};

}  // namespace

LabGpu::LabGpu() : run_(std::make_unique<CudaRun>(0, Effort::quick, kNoProgress)) {}

LabGpu::~LabGpu() = default;

int LabGpu::sms() const { return run_->sms(); }

double LabGpu::l2_bytes() const { return run_->properties.l2CacheSize; }

std::vector<double> LabGpu::time(int samples, int repeats, const std::function<void()>& launch) {
  return run_->time(samples, repeats, launch);
}

void LabGpu::wait() {
  check(cudaGetLastError(), "launching");
  check(cudaStreamSynchronize(run_->stream), "running");
}

LabGpu::Use LabGpu::use() const {
  const Telemetry now = telemetry(run_->bus_id);
  return {now.utilisation, now.memory_use, now.power};
}

std::string LabGpu::conditions() const {
  const Telemetry now = telemetry(run_->bus_id);
  if (!now.clock && !now.power) return "NVML tells neither clock nor power.";
  return fmt::format("Afterwards: SM clock {:.0f} MHz, {:.0f} W, {:.0f} C{}.",
                     now.clock.value_or(0) / 1e6, now.power.value_or(0),
                     now.temperature.value_or(0),
                     now.limits.empty() ? "" : ", held down by " + now.limits);
}

}  // namespace ridge
