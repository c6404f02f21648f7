// Samples of device counters, whichever tool took them, as means over time and devices.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "diagnose/evidence.h"

namespace ridge {

class DeviceSamples {
 public:
  // More than any file is of: then `device` is read wrongly, and add() throws Error.
  static constexpr size_t kMostDevices = 65'536;
  // `device` tells devices apart. Values that cannot be are dropped.
  void add(Quantity quantity, std::string_view device, double value, std::string_view origin);
  // NVML's bit mask of the reasons for lowered clocks.
  void add_clock_reasons(std::string_view device, double mask, std::string_view origin);

  bool empty() const;
  size_t devices() const;  // the most that one quantity has
  size_t dropped() const { return dropped_; }
  // Writes the mean over the devices of each device's mean, notes where devices differ strongly,
  // and where many samples are idle while others are busy.
  void write(EvidenceFile& file, Trust trust, double window_s) const;

 private:
  struct Sum {
    double total = 0;
    size_t samples = 0, zeros = 0;
    double mean() const { return total / double(samples); }
  };
  struct Counter {
    std::string origin;
    std::map<std::string, Sum, std::less<>> devices;
  };
  void note_difference(Quantity quantity, const Counter& counter, EvidenceFile& file) const;
  void note_idle(EvidenceFile& file) const;

  std::array<Counter, kQuantities> counters_;
  size_t dropped_ = 0;
};

// DCGM's and NVML's numbers for "no value": blank, not found, not supported, no permission.
bool is_missing_value(double value);

}  // namespace ridge
