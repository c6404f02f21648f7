// Any bytes as nvidia-smi's output: not recognised, an Error, or observations that can be.
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/error.h"
#include "diagnose/readers/reader.h"
#include "replay.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto require = [](bool holds) {
    if (!holds) std::abort();
  };
  try {
    const auto file = ridge::read_nvidia_smi({reinterpret_cast<const char*>(data), size}, "fuzz");
    if (!file) return 0;
    require(!file->observed.empty() && file->setup.devices.value_or(0) >= 1);
    for (const ridge::Observed& o : file->observed) {
      require(std::isfinite(o.value) && o.value >= 0 && std::isfinite(o.window_s));
      const bool share = ridge::quantity_info(o.quantity).unit == ridge::QuantityUnit::share;
      require(!share || o.value <= 1);
    }
  } catch (const ridge::Error&) {
  }
  return 0;
}

std::vector<std::string> fuzz_seeds() {
  return {
      "timestamp, name, utilization.gpu [%], power.draw [W], clocks_event_reasons.active, index\n"
      "2024/10/30 18:42:33.189, NVIDIA A10G, 80 %, 22.89 W, 0x0000000000000004, 0\n"
      "2024/10/30 18:42:34.189, NVIDIA A10G, [N/A], 23 W, 0x0000000000000000, 1\n",
      "# gpu    pwr  gtemp     sm    mem   pclk  pviol  tviol  rxpci  txpci\n"
      "# Idx      W      C      %      %    MHz      %   bool   MB/s   MB/s\n"
      "    0    300     60     80     50   1500     20      0    100    200\n"
      "    1      -     60     80     50   1500     20      1      -    200\n",
      "| NVIDIA-SMI 535.129.03             Driver Version: 535.129.03   CUDA Version: 12.2     |\n"
      "|   0  NVIDIA A100-SXM4-80GB          On  | 00000000:07:00.0 Off |                    0 |\n"
      "| N/A   35C    P0             370W / 400W |  12345MiB / 81920MiB |     97%      Default |\n",
  };
}
