#include "lab/lab.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "base/error.h"
#include "base/units.h"
#include "engine/account/roof_system.h"
#include "lab/levels.h"
#include "machine/atlas.h"
#include "measure/cpu/noise.h"
#include "roofline/roofline.h"

namespace ridge {
namespace {

constexpr int kLeastRepeats = 5, kMostRepeats = 200;
// The band of what kernel costs or a stack's figures predict: they were taken with some shapes, and
// a step has others, and operators that are only known roughly.
constexpr double kLeastOfCosts = 0.85, kMostOfCosts = 1.2;
constexpr double kWideSpread = 0.25;  // a median of such samples is doubtful

double elapsed_s(const std::chrono::steady_clock::time_point& start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Of all threads of this process.
long involuntary_switches() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_nivcsw;
}

double at_share(const std::vector<double>& sorted, double share) {
  return sorted[static_cast<size_t>(std::lround(share * double(sorted.size() - 1)))];
}

// Median and spread of samples. `preempted` ones count where too few others are left.
LabTime summary_of(std::vector<double> seconds, const std::vector<double>& preempted) {
  const bool disturbed = seconds.size() < 3;  // too few to judge by
  if (disturbed) seconds.insert(seconds.end(), preempted.begin(), preempted.end());
  std::sort(seconds.begin(), seconds.end());
  LabTime time;
  time.seconds = at_share(seconds, 0.5);
  time.spread = (at_share(seconds, 0.9) - at_share(seconds, 0.1)) / time.seconds;
  if (time.spread > kWideSpread) {
    // Other processes only ever add time: the faster repeats are the undisturbed ones.
    time.seconds = at_share(seconds, 0.25);
    time.doubt = "the repeats differ widely";
  } else if (disturbed) {
    time.doubt = "the repeats were preempted";
  }
  return time;
}

struct TimedCall {
  double seconds = 0;
  bool preempted = false;
};

TimedCall timed_call(const std::function<void()>& work) {
  const long switches = involuntary_switches();
  const auto began = std::chrono::steady_clock::now();
  work();
  return {elapsed_s(began), involuntary_switches() != switches};
}

}  // namespace

struct Lab::Watch {
  Disturbance before = disturbance_now();
};

Lab::Lab(const LabOptions& options) : options_(options), watch_(std::make_unique<Watch>()) {
  check_interrupt();
  // On CUDA the host only queues steps.
  team_ = std::make_shared<ThreadTeam>(on_cuda() ? 1 : options.threads);
  if (on_cuda()) {
    system_ = cuda_system();
    return;
  }
  if (!options.ceilings) return;
  system_ = with_share_of_peak(find_system("this"), team_->size());
  read_rates();
}

const LabRates& Lab::read_rates() {
  const int readings = quick() ? 1 : 3;
  for (int reading = 0; reading < readings; ++reading) {
    step("reading the rates of memory and cores");
    const Disturbance before = disturbance_now();
    rates_ = ridge::read_rates(system_.device, *team_, quick(), [this] { check_interrupt(); });
    ceilings_doubt_ = doubt_between(before, disturbance_now());
    if (ceilings_doubt_.empty()) break;
  }
  system_ = with_rates(std::move(system_), rates_);
  rates_at_ = std::chrono::steady_clock::now();
  return rates_;
}

std::shared_ptr<const CpuKernels> Lab::kernel_costs(Storage storage) {
  if (!gemm_costs_) {
    const std::vector<CpuKernels> known = engine_stack(system_).cpu;
    const auto same = std::find_if(known.begin(), known.end(), [&](const CpuKernels& kernels) {
      return kernels.isa == machine().isa;
    });
    gemm_costs_ = std::make_unique<LabGemmCosts>(same != known.end() ? *same
                                                 : known.empty()     ? CpuKernels()
                                                                     : known.front());
  }
  return gemm_costs_->with(*team_, storage, machine().peak_of(DType::fp32).value_or(0),
                           rates_.region);
}

double Lab::rates_age() const { return elapsed_s(rates_at_); }

Lab::~Lab() = default;

LabTime Lab::time(const std::function<void()>& work, double budget_s) {
  if (quick()) budget_s /= 3;
  work();  // warms caches and page tables
  std::vector<double> seconds, preempted;
  const auto start = std::chrono::steady_clock::now();
  while (seconds.size() < kLeastRepeats ||
         (elapsed_s(start) < budget_s && seconds.size() < kMostRepeats)) {
    check_interrupt();
    const TimedCall call = timed_call(work);
    (call.preempted ? preempted : seconds).push_back(call.seconds);
    const double limit = seconds.empty() ? 10 * budget_s + 1 : 5 * budget_s;
    if (elapsed_s(start) > limit && seconds.size() + preempted.size() >= 3) break;
  }
  return summary_of(std::move(seconds), preempted);
}

LabPair Lab::alternate(const std::function<void()>& first, const std::function<void()>& second,
                       double budget_s) {
  if (quick()) budget_s /= 3;
  first(), second();  // warms caches and page tables
  std::vector<double> firsts, seconds, ratios;
  const Disturbance before = disturbance_now();
  const auto start = std::chrono::steady_clock::now();
  while (ratios.size() < kLeastRepeats ||
         (elapsed_s(start) < budget_s && ratios.size() < kMostRepeats)) {
    check_interrupt();
    const TimedCall a = timed_call(first), b = timed_call(second);
    const bool late = elapsed_s(start) > 5 * budget_s;
    if ((a.preempted || b.preempted) && !late) continue;  // both again: a pair is of one moment
    firsts.push_back(a.seconds);
    seconds.push_back(b.seconds);
    ratios.push_back(a.seconds / b.seconds);
    if (late && ratios.size() >= 3) break;
  }
  const LabTime ratio = summary_of(ratios, {});
  LabPair pair{summary_of(firsts, {}), summary_of(seconds, {}), 0, ratio.doubt};
  std::sort(ratios.begin(), ratios.end());
  pair.ratio = at_share(ratios, 0.5);
  const std::string disturbed = doubt_between(before, disturbance_now());
  if (!disturbed.empty()) pair.first.doubt = pair.second.doubt = pair.doubt = disturbed;
  return pair;
}

void Lab::say(const std::string& what) {
  const auto& tell = options_.announce ? options_.announce : options_.progress;
  if (tell) tell(what);
}

void Lab::announce(const LabBand& band, const std::string& what) {
  if (band.expected <= 0) return;
  say(fmt::format("{}{}, predicted {} ({} - {})", step_, what.empty() ? "" : ", " + what,
                  pretty_number(band.expected), pretty_number(band.low), pretty_number(band.high)));
}

LabPoint Lab::measure(double x, const LabBand& band, const std::function<void()>& work,
                      const std::function<double(double)>& value) {
  announce(band);
  LabTime took;
  for (int attempt = 0; attempt < (quick() ? 1 : 2); ++attempt) {
    const Disturbance before = disturbance_now();
    took = time(work);
    const std::string disturbed = doubt_between(before, disturbance_now());
    if (!disturbed.empty()) took.doubt = disturbed;
    if (took.doubt.empty()) break;
  }
  LabPoint point;
  point.x = x;
  point.band = band;
  point.measured = value(took.seconds);
  point.spread = took.spread;
  point.doubt = took.doubt;
  return point;
}

void Lab::check_interrupt() const {
  if (options_.interrupted && *options_.interrupted) throw LabInterrupted();
}

void Lab::step(const std::string& what) {
  check_interrupt();
  step_ = what;
  if (options_.progress) options_.progress(what);
}

std::vector<std::string> Lab::conditions() const {
  return disturbances_between(watch_->before, disturbance_now(), team_->size());
}

void set_kernel_costs(Ceilings& ceilings, Lab& lab, Storage storage) {
  if (!lab.on_cuda()) ceilings.cpu = lab.kernel_costs(storage);
  ceilings.low = kLeastOfCosts;
  ceilings.high = kMostOfCosts;
}

LabBand expected_seconds(Lab& lab, const Op& op, double working_set) {
  Ceilings ceilings = make_ceilings(lab.system(), Plan(), engine_stack(lab.system()));
  set_kernel_costs(ceilings, lab, Storage::f32);
  place_working_set(ceilings, lab.machine(), working_set);
  const Estimate e = estimate(op, ceilings);
  // A GPU's shares are those of whole steps: one kernel alone lies between them and the roof.
  const double low = lab.on_cuda() ? e.roof_s : e.low_s;
  return {low, e.expected_s, std::max(e.high_s, 1.15 * e.expected_s)};
}

LabBand overlapped(double memory, double compute) {
  const double most = std::max(memory, compute), sum = memory + compute;
  const LabBand rate = rate_under(1);
  return {most / rate.high, (most + sum) / 2 / rate.expected, sum / rate.low};
}

LabBand loop_seconds(const Lab& lab, LoopStores stores, double bytes, double flops,
                     double compute_s) {
  const Machine& machine = lab.machine();
  const StoreRates& rates = lab.stores();
  const double read = machine.memory().read_bandwidth.value_or(0);
  const double by_stores[] = {read, rates.update, rates.copy, rates.triad};
  const double known = by_stores[static_cast<int>(stores)];
  const double cached = cached_share(machine, bytes);
  const double byte_s = (1 - cached) / (known > 0 ? known : read) +
                        (cached > 0 ? cached / *machine.cache()->read_bandwidth : 0);
  const double peak = machine.peak_of(DType::fp32).value_or(0);
  return overlapped(bytes * byte_s, std::max(compute_s, peak > 0 ? flops / peak : 0));
}

LabBand rate_under(double roof) { return {0.6 * roof, 0.85 * roof, 1.1 * roof}; }

LabBand operator+(const LabBand& a, const LabBand& b) {
  return {a.low + b.low, a.expected + b.expected, a.high + b.high};
}

}  // namespace ridge
