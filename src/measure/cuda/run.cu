#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "machine/atlas.h"
#include "machine/nvml.h"
#include "measure/cuda/run.cuh"

namespace ridge {
namespace {

constexpr double kNoisySpread = 0.05;
constexpr unsigned long long kGateLimit = 2'000'000'000;  // ns: a lost host must not hang the GPU

__global__ void wait_at_gate(const volatile int* gate) {
  unsigned long long start, now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
  do {
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  } while (*gate == 0 && now - start < kGateLimit);
}

}  // namespace

void check(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  cudaGetLastError();  // leave no error behind for the next call
  throw Error("{}: {}", what, cudaGetErrorString(status));
}

std::vector<double> rates(double amount, const std::vector<double>& seconds) {
  std::vector<double> values;
  for (const double each : seconds) values.push_back(amount / each);
  return values;
}

CudaRun::CudaRun(int index, Effort how_much, const StepProgress& on_step)
    : effort(how_much), progress(on_step) {
  check(cudaSetDevice(index), "choosing the device");
  check(cudaGetDeviceProperties(&properties, index), "asking for its properties");
  char bus[64] = {};
  if (cudaDeviceGetPCIBusId(bus, sizeof bus, index) == cudaSuccess) bus_id = bus;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "creating a stream");
  check(cudaEventCreate(&start_), "creating an event");
  check(cudaEventCreate(&stop_), "creating an event");
  void* host = nullptr;
  check(cudaHostAlloc(&host, sizeof(int), cudaHostAllocMapped), "allocating the gate");
  gate_ = static_cast<volatile int*>(host);
}

CudaRun::~CudaRun() {
  if (gate_) cudaFreeHost(const_cast<int*>(gate_));
  if (start_) cudaEventDestroy(start_);
  if (stop_) cudaEventDestroy(stop_);
  if (stream) cudaStreamDestroy(stream);
}

std::vector<double> CudaRun::time(int samples, int repeats, const std::function<void()>& launch,
                                  double rest) {
  launch();
  check(cudaGetLastError(), "launching");
  check(cudaStreamSynchronize(stream), "running");
  std::vector<double> seconds;
  for (int sample = 0; sample < samples; ++sample) {
    if (rest > 0) std::this_thread::sleep_for(std::chrono::duration<double>(rest));
    *gate_ = 0;
    wait_at_gate<<<1, 1, 0, stream>>>(gate_);
    check(cudaEventRecord(start_, stream), "recording");
    for (int repeat = 0; repeat < repeats; ++repeat) launch();
    check(cudaEventRecord(stop_, stream), "recording");
    *gate_ = 1;
    check(cudaEventSynchronize(stop_), "running");
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, start_, stop_), "reading the timer");
    seconds.push_back(milliseconds * 1e-3 / repeats);
  }
  return seconds;
}

void CudaRun::add(Reading reading) {
  if (reading.doubt.empty() && reading.spread() > kNoisySpread) {
    reading.doubt = fmt::format("noisy: repeats differ by {:.0f} %", reading.spread() * 100);
  }
  report.readings.push_back(std::move(reading));
}

void CudaRun::add(std::string id, std::string path, Dimension quantity, std::vector<double> values,
                  std::string how) {
  add(summarize(std::move(id), std::move(path), quantity, std::move(values), std::move(how)));
}

void CudaRun::note_conditions(const std::string& when) {
  const Telemetry now = telemetry(bus_id);
  if (!now.clock && !now.power) return;
  report.conditions.push_back(
      fmt::format("{}: SM clock {:.0f} MHz, {:.0f} W, {:.0f} C{}", when,
                  now.clock.value_or(0) / 1e6, now.power.value_or(0), now.temperature.value_or(0),
                  now.limits.empty() ? "" : ", held down by " + now.limits));
}

}  // namespace ridge
