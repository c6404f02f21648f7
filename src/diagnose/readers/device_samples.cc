#include "diagnose/readers/device_samples.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace ridge {
namespace {

// NVML's nvmlClocksEventReasons.
constexpr uint64_t kPowerReasons = 0x04 | 0x80;    // software power cap, power brake
constexpr uint64_t kThermalReasons = 0x20 | 0x40;  // software, hardware
constexpr uint64_t kSlowdownReason = 0x08;         // by the hardware: heat, where no brake is named

constexpr double kStrongDifference = 0.3;  // of shares; of power relative to the highest
constexpr double kIdleShare = 0.3;         // of the samples

}  // namespace

bool is_missing_value(double value) {
  constexpr double kInt32Blank = 2147483632, kInt64Blank = 9223372036854775792.;
  constexpr double kDoubleBlank = 140737488355328;
  return !std::isfinite(value) || value >= kInt64Blank ||
         (value >= kInt32Blank && value <= kInt32Blank + 15) ||
         (value >= kDoubleBlank && value <= kDoubleBlank + 15);
}

void DeviceSamples::add(Quantity quantity, std::string_view device, double value,
                        std::string_view origin) {
  const bool share = quantity_info(quantity).unit == QuantityUnit::share;
  if (!std::isfinite(value) || value < 0 || (share && value > 1.005)) {
    ++dropped_;
    return;
  }
  Counter& counter = counters_[size_t(quantity)];
  if (counter.origin.empty()) counter.origin = origin;
  auto found = counter.devices.find(device);
  if (found == counter.devices.end()) {
    if (counter.devices.size() == kMostDevices) {
      throw Error("{}: more than {} devices in one file", origin, kMostDevices);
    }
    found = counter.devices.emplace(std::string(device), Sum{}).first;
  }
  Sum& sum = found->second;
  sum.total += share ? std::min(value, 1.) : value;
  ++sum.samples;
  if (value == 0) ++sum.zeros;
}

void DeviceSamples::add_clock_reasons(std::string_view device, double mask,
                                      std::string_view origin) {
  if (is_missing_value(mask) || mask < 0 || mask > 1e15) {
    ++dropped_;
    return;
  }
  const uint64_t reasons = uint64_t(mask);
  const bool power = (reasons & kPowerReasons) != 0;
  const bool heat =
      (reasons & kThermalReasons) != 0 || ((reasons & kSlowdownReason) != 0 && !power);
  add(Quantity::power_throttled, device, power ? 1 : 0, origin);
  add(Quantity::thermal_throttled, device, heat ? 1 : 0, origin);
}

bool DeviceSamples::empty() const { return devices() == 0; }

size_t DeviceSamples::devices() const {
  size_t most = 0;
  for (const Counter& counter : counters_) most = std::max(most, counter.devices.size());
  return most;
}

void DeviceSamples::note_difference(Quantity quantity, const Counter& counter,
                                    EvidenceFile& file) const {
  const bool share = quantity_info(quantity).unit == QuantityUnit::share;
  if ((!share && quantity != Quantity::power) || counter.devices.size() < 2) return;
  double least = counter.devices.begin()->second.mean();
  double most = least;
  for (const auto& [device, sum] : counter.devices) {
    least = std::min(least, sum.mean());
    most = std::max(most, sum.mean());
  }
  if (most - least <= kStrongDifference * (share ? 1 : most)) return;
  file.notes.push_back(fmt::format(
      "{} differs between the {} devices: {} to {}; the mean is used", counter.origin,
      counter.devices.size(), pretty_quantity(quantity, least), pretty_quantity(quantity, most)));
}

void DeviceSamples::note_idle(EvidenceFile& file) const {
  const Counter& busy = counters_[size_t(Quantity::gpu_util)];
  size_t samples = 0;
  size_t zeros = 0;
  for (const auto& [device, sum] : busy.devices) {
    if (sum.zeros == sum.samples) continue;  // a device that is never used
    samples += sum.samples;
    zeros += sum.zeros;
  }
  if (double(zeros) <= kIdleShare * double(samples)) return;
  file.notes.push_back(fmt::format(
      "{} of {} samples have no utilisation: the load began later or ended earlier than "
      "the record, and the means are too low",
      zeros, samples));
}

void DeviceSamples::write(EvidenceFile& file, Trust trust, double window_s) const {
  for (size_t q = 0; q < kQuantities; ++q) {
    const Counter& counter = counters_[q];
    if (counter.devices.empty()) continue;
    double mean = 0;
    for (const auto& [device, sum] : counter.devices) {
      mean += sum.mean() / double(counter.devices.size());
    }
    file.add(Quantity(q), mean, trust, counter.origin, window_s);
    note_difference(Quantity(q), counter, file);
  }
  note_idle(file);
  if (dropped_ > 0) {
    file.notes.push_back(fmt::format("{} values cannot be and were left out", dropped_));
  }
}

}  // namespace ridge
