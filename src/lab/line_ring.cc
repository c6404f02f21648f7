#include "lab/line_ring.h"

#include <algorithm>
#include <chrono>

#include "measure/cpu/timing.h"

namespace ridge {
namespace {

template <size_t N>
void chase(void** at, long steps) {
  void* p[N];
  for (size_t j = 0; j < N; ++j) p[j] = at[j];
  for (long i = 0; i < steps; ++i) {
    for (size_t j = 0; j < N; ++j) p[j] = *static_cast<void**>(p[j]);
  }
  // The last address is used, or the compiler would see that nobody needs the loads.
  for (size_t j = 0; j < N; ++j) asm volatile("" ::"r"(p[j]));
  for (size_t j = 0; j < N; ++j) at[j] = p[j];
}

}  // namespace

void chase_chains(size_t chains, void** at, long steps) {
  switch (chains) {
    case 1:
      return chase<1>(at, steps);
    case 2:
      return chase<2>(at, steps);
    case 4:
      return chase<4>(at, steps);
    case 8:
      return chase<8>(at, steps);
    case 16:
      return chase<16>(at, steps);
    case 24:
      return chase<24>(at, steps);
    default:
      return chase<32>(at, steps);
  }
}

double load_latency(const LineRing& ring) {
  constexpr int kPasses = 8;
  constexpr long kLoads = 8000;  // about 1 ms
  void* at = ring.start(0, 1);
  std::vector<double> seconds;
  for (int pass = 0; pass < kPasses; ++pass) {
    const auto began = std::chrono::steady_clock::now();
    chase_chains(1, &at, kLoads);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
    seconds.push_back(took.count() / kLoads);
  }
  std::sort(seconds.begin(), seconds.end());
  return seconds[kPasses / 4];
}

MissRates miss_rates(ThreadTeam& team, std::byte* memory, size_t part) {
  constexpr size_t kChains = 24;
  constexpr long kSteps = 20000;  // about 2 ms
  const auto threads = size_t(team.size());
  MissRates found;
  std::vector<std::vector<void*>> at(threads, std::vector<void*>(kChains));
  for (size_t t = 0; t < threads; ++t) {
    const LineRing ring(memory + t * part, part, 31 + t);
    for (size_t j = 0; j < kChains; ++j) at[t][j] = ring.start(j, kChains);
    if (t == 0) found.latency = load_latency(ring);
  }
  std::vector<double> rates;
  for (int pass = 0; pass < 8; ++pass) {
    const Pass took =
        timed_pass(team, [&](int t) { chase_chains(kChains, at[size_t(t)].data(), kSteps); });
    if (pass > 0) rates.push_back(double(kChains * threads) * double(kSteps) / took.seconds);
  }
  std::sort(rates.begin(), rates.end());
  found.lines = rates[rates.size() / 2];
  return found;
}

}  // namespace ridge
