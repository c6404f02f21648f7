// Where experiments run: the machine with its measured ceilings, timing, progress, limits.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/thread_team.h"
#include "cost/op.h"
#include "lab/experiment.h"
#include "lab/lab_gemm_costs.h"
#include "lab/levels.h"
#include "machine/machine.h"
#include "roofline/ceilings.h"

namespace ridge {

enum class LabDevice : uint8_t { cpu, cuda };

struct LabOptions {
  LabDevice device = LabDevice::cpu;
  bool quick = false;  // fewer points and repeats
  int threads = 0;     // CPU; 0: one per core
  // false: no experiment predicts anything, so the machine is neither detected nor probed (CPU).
  bool ceilings = true;
  std::function<void(const std::string& step)> progress;
  // A prediction, before its point is measured. Empty: it goes to `progress`.
  std::function<void(const std::string& prediction)> announce;
  const std::atomic<bool>* interrupted = nullptr;
};

struct LabTime {
  double seconds = 0;  // median of the repeats
  double spread = 0;
  std::string doubt;
};

// Two ways to do the same, timed in turns, so that drift of the machine hits both.
struct LabPair {
  LabTime first, second;
  double ratio = 0;   // median of first / second over the pairs
  std::string doubt;  // of the ratio
};

class Lab {
 public:
  // Finds the machine (sizes, and what `ridge measure` stored) and reads its rates.
  // Throws Error where there is no such device.
  explicit Lab(const LabOptions& options);
  ~Lab();

  const LabOptions& options() const { return options_; }
  bool quick() const { return options_.quick; }
  bool on_cuda() const { return options_.device == LabDevice::cuda; }
  // `quick_size` in a quick lab, else the device's size.
  template <typename T>
  T sized(T quick_size, T cpu_size, T cuda_size) const {
    return quick() ? quick_size : on_cuda() ? cuda_size : cpu_size;
  }
  const System& system() const { return system_; }
  const Machine& machine() const { return system_.device; }
  const StoreRates& stores() const { return rates_.stores; }
  ThreadTeam& team() { return *team_; }
  std::shared_ptr<ThreadTeam> shared_team() { return team_; }

  // Seconds of one call of `work` (which uses the team itself, or one thread): the median of
  // repeats over about `budget_s`. Preempted repeats are taken again. Throws LabInterrupted.
  LabTime time(const std::function<void()>& work, double budget_s = 0.15);

  // Times both in turns over about `budget_s`. Throws LabInterrupted.
  LabPair alternate(const std::function<void()>& first, const std::function<void()>& second,
                    double budget_s = 0.5);

  // A line that is known before the measurement: a prediction, the memory that is needed.
  void say(const std::string& what);
  // Says what is predicted for the step that runs now, before it is measured. `what` names the
  // value where a step has several.
  void announce(const LabBand& band, const std::string& what = "");

  // A point whose band was fixed before `work` ran. `value` turns seconds into what the axis shows.
  // A doubtful measurement is taken once more.
  LabPoint measure(double x, const LabBand& band, const std::function<void()>& work,
                   const std::function<double(double seconds)>& value);

  // Reads the rates of memory and cores again: predictions made from now on rest on them. CPU only.
  // A disturbed reading is taken up to twice more.
  const LabRates& read_rates();
  const LabRates& rates() const { return rates_; }
  // Seconds since they were read.
  double rates_age() const;

  // What the engine's kernels cost, with GEMMs of this format; the first call for a format reads
  // them. CPU only.
  std::shared_ptr<const CpuKernels> kernel_costs(Storage storage);

  // Why the ceilings may be wrong, and with them every prediction; empty: no reason seen.
  const std::string& ceilings_doubt() const { return ceilings_doubt_; }

  // Tells what runs now, and throws LabInterrupted where the user asked to stop.
  void step(const std::string& what);
  void check_interrupt() const;  // throws LabInterrupted

  // Lines about this run: clocks, load, steal. Valid after the experiment.
  std::vector<std::string> conditions() const;

 private:
  struct Watch;
  LabOptions options_;
  System system_;
  LabRates rates_;
  std::chrono::steady_clock::time_point rates_at_;
  std::unique_ptr<LabGemmCosts> gemm_costs_;
  std::string ceilings_doubt_, step_;
  std::shared_ptr<ThreadTeam> team_;
  std::unique_ptr<Watch> watch_;
};

struct LabInterrupted {};

// The ceilings with what the engine's kernels cost for weights in that format, and the band of
// steps that are predicted so.
void set_kernel_costs(Ceilings& ceilings, Lab& lab, Storage storage);

// Time of an operator of the engine that reads and writes `working_set` bytes in all: where they
// fit the last cache, they stream from it. The band is that of steps; on a GPU its lower edge is
// the roof, because the stack's shares are those of whole steps and one operator is timed here.
LabBand expected_seconds(Lab& lab, const Op& op, double working_set);

// What a loop of the lab itself does with its arrays.
enum class LoopStores : uint8_t { none, in_place, one_input, two_inputs };
// Time of such a loop over arrays in memory, with as many bytes as STREAM counts: under the roof of
// its bytes and FLOPs as overlapped() has it. `compute_s` stands for the FLOPs where it is known
// otherwise. Arrays that fit the last cache stream from it.
LabBand loop_seconds(const Lab& lab, LoopStores stores, double bytes, double flops,
                     double compute_s = 0);

// A rate under its roof. The ceilings are the best passes of `ridge measure`; the median pass of a
// plain vector loop reaches 60 to 100 % of such a ceiling, and 10 % above it is measuring error.
LabBand rate_under(double roof);
// Seconds of a loop that needs `memory` for its bytes and `compute` for its arithmetic: at best
// they overlap, at worst they add up. The band is that of rate_under() around both.
LabBand overlapped(double memory, double compute);
// Parts that run one after the other.
LabBand operator+(const LabBand& a, const LabBand& b);

}  // namespace ridge
