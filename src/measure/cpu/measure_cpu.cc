#include "measure/cpu/measure_cpu.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <system_error>

#include "base/affinity.h"
#include "base/error.h"
#include "base/memory_limit.h"
#include "base/units.h"
#include "machine/detect.h"
#include "measure/cpu/bandwidth.h"
#include "measure/cpu/disk.h"
#include "measure/cpu/latency.h"
#include "measure/cpu/noise.h"
#include "measure/cpu/peaks.h"

namespace ridge {
namespace {

constexpr double kLeastMemory = 64e6;  // below it a cache could hold the whole working set
constexpr double kClockDrift = 0.03;   // beyond it readings of one run are not comparable
constexpr double kNoisySpread = 0.10;  // p10 to p90; quiet machines show 1 to 3 %

constexpr double kSharedPipes = 0.7;  // all-core peak over processors x that of one

struct Settings {
  Sampling sampling;   // for single numbers
  Sampling curve;      // for a point of a curve
  double curve_step;   // ratio of working sets
  double memory;       // working set for DRAM, least
  double chase_limit;  // longest ring
  double disk;
};

constexpr Settings kQuick = {{7, 0.012, 0.25}, {3, 0.005, 0.10}, 2.0, 512e6, 512e6, 256e6};
constexpr Settings kFull = {{15, 0.04, 1.5}, {7, 0.015, 0.5}, 1.4142135623730951, 1e9, 1e9, 1e9};

class CpuRun {
 public:
  CpuRun(const CpuOptions& options, const StepProgress& progress)
      : options_(options),
        settings_(options.effort == Effort::quick ? kQuick : kFull),
        progress_(progress),
        all_(one_per_core(usable_processors())) {
    report_.base = detect_this();
    core_ = {all_.front()};
    use_only_own_cores();
  }

  Report run() {
    const Disturbance before = disturbance_now();
    {
      ThreadTeam team = ThreadTeam::pinned_to(all_);
      if (!team.pinned()) report_.conditions.push_back("threads could not be pinned");
      clock(team);
      peaks(team);
      costs(team);
      bandwidths(team);
    }
    {
      ThreadTeam one = ThreadTeam::pinned_to(core_);
      core_peaks(one);
      latencies(one);
    }
    disk();
    {
      ThreadTeam team = ThreadTeam::pinned_to(all_);
      const double after = chain_clock(team);
      const double drift = after / clock_ - 1;
      report_.conditions.push_back(
          fmt::format("clock {:.2f} GHz before, {:.2f} GHz after{}", clock_ / 1e9, after / 1e9,
                      std::abs(drift) > kClockDrift ? ": it drifted" : ""));
    }
    for (std::string& line :
         disturbances_between(before, disturbance_now(), static_cast<int>(all_.size()))) {
      report_.conditions.push_back(std::move(line));
    }
    return std::move(report_);
  }

 private:
  const Level* level(const char* name) const { return report_.base.level(name); }

  void add(Reading reading, const std::string& doubt = "") {
    if (!doubt.empty()) reading.doubt = doubt;
    if (reading.doubt.empty() && reading.spread() > kNoisySpread) {
      reading.doubt = fmt::format("noisy: repeats differ by {:.0f} %", reading.spread() * 100);
    }
    report_.readings.push_back(std::move(reading));
  }

  // Peaks are held against the cores this process may use, not those the machine has.
  void use_only_own_cores() {
    const double own = static_cast<double>(all_.size());
    if (!report_.base.units || *report_.base.units <= own) return;
    report_.conditions.push_back(
        fmt::format("{:g} of {:g} cores may be used", own, *report_.base.units));
    for (Maybe& peak : report_.base.peak) {
      if (peak) *peak *= own / *report_.base.units;
    }
    report_.base.units = own;
  }

  void clock(ThreadTeam& team) {
    progress_("clock");
    std::vector<double> hertz;
    for (int i = 0; i < 5; ++i) hertz.push_back(chain_clock(team));
    clock_ = *std::max_element(hertz.begin(), hertz.end());
    // Derived peaks follow the clock that was measured now, not the one detection saw.
    if (report_.base.clock) {
      for (Maybe& peak : report_.base.peak) {
        if (peak) *peak *= clock_ / *report_.base.clock;
      }
    }
    report_.base.clock = clock_;
    add(summarize("clock", "clock", Dimension::clock, hertz,
                  fmt::format("chain of dependent additions on {} cores at once", team.size())));
  }

  void peaks(ThreadTeam& team) {
    for (Reading& reading :
         measure_peaks(team, settings_.sampling, clock_, progress_, report_.missing)) {
      add(std::move(reading));
    }
  }

  void core_peaks(ThreadTeam& one) {
    const KernelSet& set = kernel_sets().front();
    progress_("peaks of one core");
    Reading core = measure_core_peak(one, settings_.sampling, clock_);
    const Reading* all = report_.find("peak.fp32." + set.isa);
    const double processors = static_cast<double>(all_.size());
    if (all && all_.size() > 1 && all->value < kSharedPipes * processors * core.value) {
      report_.conditions.push_back(fmt::format(
          "{:g} processors together reach {:.1f} times the fp32 peak of one: they seem to be SMT "
          "threads that share cores, although the topology reports cores",
          processors, all->value / core.value));
    }
    add(std::move(core));
  }

  void costs(ThreadTeam& team) {
    progress_("barrier and fork-join");
    if (team.size() < 2) {
      report_.missing.push_back("barrier and fork-join: only one processor may be used");
      return;
    }
    const Samples barriers = sample(team, settings_.sampling, [&](int, long repeats) {
      for (long i = 0; i < repeats; ++i) team.barrier();
    });
    add(summarize("launch.barrier", "launch.persistent", Dimension::time, barriers.seconds,
                  fmt::format("spinning barrier of {} pinned threads", team.size())),
        barriers.doubt);
    constexpr int kRuns = 2000;
    std::vector<double> joins;
    for (int i = 0; i < settings_.sampling.samples; ++i) {
      const auto start = std::chrono::steady_clock::now();
      for (int run = 0; run < kRuns; ++run) team.run([](int) {});
      const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start;
      joins.push_back(spent.count() / kRuns);
    }
    add(summarize("launch.fork_join", "launch.stream", Dimension::time, joins,
                  "an empty function run on all threads, from the call to the last return"));
  }

  // Bytes of each thread's part for a level: half of the level's capacity, so that other data of
  // the program fits too; 0 when that much would fit into the level inside.
  double part_for(const Level& at, const Level* inside, int threads) const {
    if (!at.capacity) return 0;
    const double sharers = at.scope == Scope::unit
                               ? 1
                               : std::max(1.0, std::min<double>(threads, threads / at.instances));
    const double bytes = *at.capacity / 2 / sharers;
    return inside && inside->capacity && bytes < 1.5 * *inside->capacity ? 0 : bytes;
  }

  double memory_bytes() {
    const Level* last = level("L3") ? level("L3") : level("L2");
    const double cache = last ? last->total_capacity().value_or(0) : 0;
    const double wanted = std::max(settings_.memory, 4 * cache);
    const double allowed = free_bytes() * kShareOfFree;
    if (allowed < wanted) {
      report_.conditions.push_back(fmt::format("only {} of memory free: working sets end at {}",
                                               pretty_bytes(free_bytes()), pretty_bytes(allowed)));
    }
    return std::min(wanted, allowed);
  }

  void bandwidths(ThreadTeam& team) {
    const double bytes = memory_bytes();
    if (bytes < kLeastMemory) {
      report_.missing.push_back(
          fmt::format("memory bandwidth: only {} may be used", pretty_bytes(bytes)));
      return;
    }
    progress_("touching memory");
    const WorkingSet set(team, bytes);
    if (!set) {
      report_.missing.push_back("bandwidth: the system refused " + pretty_bytes(bytes));
      return;
    }
    const double huge = set.huge_share();
    report_.conditions.push_back(
        fmt::format("{:.0f} % of the working set in huge pages", 100 * huge));
    level_bandwidths(team, set, "");
    curve(team, set, "read.all", fmt::format("read, {} cores", team.size()));
    if (team.size() > 1) one_core_bandwidths(set);
  }

  void one_core_bandwidths(const WorkingSet& set) {
    // One core uses the first thread's part, which it touched first.
    ThreadTeam one = ThreadTeam::pinned_to(core_);
    level_bandwidths(one, set, ".core");
    curve(one, set, "read.core", "read, one core");
  }

  void level_bandwidths(ThreadTeam& team, const WorkingSet& set, const std::string& suffix) {
    const Level* inside = nullptr;
    for (const char* name : {"L1", "L2", "L3", "DRAM"}) {
      const Level* at = level(name);
      if (!at) continue;
      const bool memory = at->name == "DRAM";
      const double bytes = memory ? set.part_bytes() : part_for(*at, inside, team.size());
      inside = at;
      if (bytes <= 0) {
        report_.missing.push_back(
            fmt::format("{} bandwidth: size unknown or not above the level "
                        "inside it",
                        name));
        continue;
      }
      for (const Access access : kEveryAccess) {
        if (is_streamed(access) && !memory) continue;
        if (!suffix.empty() && access != Access::read && access != Access::copy) continue;
        progress_(fmt::format("{} {}{}", name, access_name(access), suffix));
        add_bandwidth(team, set, bytes, name, access, suffix);
      }
    }
  }

  void add_bandwidth(ThreadTeam& team, const WorkingSet& set, double bytes, const std::string& name,
                     Access access, const std::string& suffix) {
    const Rates rates =
        measure_bandwidth(team, set, bytes, access, kernel_sets().front(), settings_.sampling);
    const std::string path = access == Access::read && suffix.empty()
                                 ? fmt::format("levels.{}.read_bandwidth", name)
                                 : "";
    add(summarize(fmt::format("{}.{}{}", name, access_name(access), suffix), path,
                  Dimension::bandwidth, rates.bytes_per_s,
                  fmt::format("{} x {}, {}; counted {}", team.size(), pretty_binary(bytes),
                              kernel_sets().front().isa, counting(access))),
        rates.doubt);
  }

  void curve(ThreadTeam& team, const WorkingSet& set, const std::string& id,
             const std::string& label) {
    Curve line{id, label, Dimension::bandwidth, {}, {}};
    for (double part = 4096; part <= set.part_bytes(); part *= settings_.curve_step) {
      progress_(fmt::format("{} {}", label, pretty_binary(part)));
      const Rates rates =
          measure_bandwidth(team, set, part, Access::read, kernel_sets().front(), settings_.curve);
      line.x.push_back(part * team.size());
      line.y.push_back(median(rates.bytes_per_s));
    }
    report_.curves.push_back(std::move(line));
  }

  void latencies(ThreadTeam& one) {
    const Level* last = level("L3") ? level("L3") : level("L2");
    const double cache = last ? last->total_capacity().value_or(32e6) : 32e6;
    const double limit =
        std::min({std::max(settings_.chase_limit, 8 * cache), 4e9, free_bytes() * kShareOfFree});
    for (const Pages pages : {Pages::huge, Pages::small}) {
      const bool huge = pages == Pages::huge;
      const MappedBuffer buffer(static_cast<size_t>(limit), pages);
      if (!buffer || limit < 1e6) {
        report_.missing.push_back("latency: the system refused memory");
        return;
      }
      const Curve& line = latency_curve(one, buffer, limit, huge);
      if (huge) {
        const double share = buffer.huge_share();
        const std::string doubt =
            share < 0.5 ? fmt::format("only {:.0f} % of it lay in huge pages", share * 100) : "";
        level_latencies(one, buffer, line.x.back(), doubt);
        knees(report_.curves.back());
      } else {
        Reading far = measure_latency(one, buffer, line.x.back(), settings_.sampling);
        far.id = "DRAM.latency.4k";
        far.how += ", 4 KB pages: TLB misses included";
        add(std::move(far));
      }
    }
  }

  const Curve& latency_curve(ThreadTeam& one, const MappedBuffer& buffer, double limit, bool huge) {
    Curve line{huge ? "latency.huge" : "latency.4k",
               huge ? "random chase, huge pages" : "random chase, 4 KB pages",
               Dimension::time,
               {},
               {}};
    for (double bytes = 8192; bytes <= limit; bytes *= settings_.curve_step) {
      progress_(fmt::format("latency, {} pages, {}", huge ? "huge" : "4 KB", pretty_binary(bytes)));
      const Reading at = measure_latency(one, buffer, bytes, settings_.curve);
      line.x.push_back(bytes);
      line.y.push_back(at.low);  // a neighbour only ever adds
    }
    report_.curves.push_back(std::move(line));
    return report_.curves.back();
  }

  void level_latencies(ThreadTeam& one, const MappedBuffer& buffer, double largest,
                       const std::string& doubt) {
    double inside = 0;
    for (const char* name : {"L1", "L2", "L3", "DRAM"}) {
      const Level* at = level(name);
      if (!at) continue;
      // Between the level inside and this one: far enough from both edges.
      double bytes = largest;
      if (at->name != "DRAM") {
        if (!at->capacity) continue;
        bytes = inside > 0 ? std::sqrt(inside * *at->capacity) : *at->capacity / 2;
        inside = *at->capacity;
      }
      progress_(fmt::format("{} latency", name));
      Reading reading = measure_latency(one, buffer, bytes, settings_.sampling);
      reading.id = fmt::format("{}.latency", name);
      reading.path = fmt::format("levels.{}.latency", name);
      reading.how += fmt::format(", huge pages: {:.1f} clocks", reading.value * clock_);
      add(std::move(reading), doubt);
    }
  }

  // Where the staircase climbs halfway (in ratio) to the next level: what the level holds for one
  // core, whatever the topology says.
  void knees(const Curve& line) {
    const char* names[] = {"L1", "L2", "L3", "DRAM"};
    for (int i = 0; i < 3; ++i) {
      const Reading* here = report_.find(fmt::format("{}.latency", names[i]));
      const Reading* next = report_.find(fmt::format("{}.latency", names[i + 1]));
      const Level* at = level(names[i]);
      if (!here || !next || !at || !at->capacity) continue;
      const double step = std::sqrt(here->value * next->value);
      const auto crossed = std::find_if(line.y.begin(), line.y.end(),
                                        [&](double seconds) { return seconds > step; });
      if (crossed == line.y.end() || crossed == line.y.begin()) continue;
      const size_t after = static_cast<size_t>(crossed - line.y.begin());
      const double share =
          std::log(step / line.y[after - 1]) / std::log(*crossed / line.y[after - 1]);
      const double bytes = line.x[after - 1] * std::pow(line.x[after] / line.x[after - 1], share);
      Reading knee = summarize(fmt::format("{}.knee", names[i]), "", Dimension::size, {bytes},
                               fmt::format("where the latency climbs to {}; the topology says {}",
                                           names[i + 1], pretty_binary(*at->capacity)));
      if (bytes > 2.5 * *at->capacity || bytes < *at->capacity / 2.5) {
        report_.conditions.push_back(
            fmt::format("{}: the topology says {}, the latency climbs at {}", names[i],
                        pretty_binary(*at->capacity), pretty_binary(bytes)));
      }
      report_.readings.push_back(std::move(knee));
    }
  }

  void disk() {
    if (options_.disk_folder.empty()) return;
    progress_("disk");
    try {
      add(measure_disk(options_.disk_folder, settings_.disk, 3));
    } catch (const Error& error) {
      report_.missing.push_back(fmt::format("disk: {}", error.what()));
    }
  }

  const CpuOptions& options_;
  const Settings settings_;
  const StepProgress& progress_;
  const std::vector<int> all_;
  std::vector<int> core_;
  double clock_ = 0;
  Report report_;
};

}  // namespace

Report measure_cpu(const CpuOptions& options, const StepProgress& progress) {
  try {
    return CpuRun(options, progress).run();
  } catch (const std::system_error& error) {
    throw Error("the system allows no threads for measuring ({})", error.what());
  }
}

}  // namespace ridge
