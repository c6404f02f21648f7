// The same small pieces of work as many parallel regions, as one region with barriers, and as new
// threads: what starting costs.
#include <fmt/format.h>

#include <atomic>
#include <thread>

#include "base/error.h"
#include "base/units.h"
#include "engine/account/roof_system.h"
#include "lab/catalogue.h"
#include "lab/lab.h"
#include "lab/lab_kernels.h"
#include "lab/levels.h"

namespace ridge {
namespace {

constexpr int kPieceFloats = 1024;  // 4 KiB a thread: in the L1, about 0.1 us

// Each thread has its own lines.
class Pieces {
 public:
  explicit Pieces(int threads) : memory_(size_t(threads + 1) * kPieceFloats) {
    const auto address = reinterpret_cast<uintptr_t>(memory_.data());
    first_ = memory_.data() + (64 - address % 64) % 64 / sizeof(float);
  }
  // A function of the piece alone: x/2 + 1, so that k steps from 0 leave 2 - 2^(1-k).
  void work(int index) {
    float* piece = first_ + size_t(index) * kPieceFloats;
    lab_kernels::apply_chain(piece, piece, kPieceFloats, 1);
  }
  void reset() { std::fill(memory_.begin(), memory_.end(), 0.0f); }
  bool all_equal(int threads, float value) const {
    for (int i = 0; i < threads * kPieceFloats; ++i) {
      if (first_[i] != value) return false;
    }
    return true;
  }

 private:
  std::vector<float> memory_;
  float* first_;
};

void in_threads(int threads, const std::function<void(int)>& work) {
  std::vector<std::jthread> started;
  for (int i = 1; i < threads; ++i) started.emplace_back([&work, i] { work(i); });
  work(0);
}

LabResult run_launch(Lab& lab) {
  ThreadTeam& team = lab.team();
  const int threads = team.size();
  const int regions = lab.quick() ? 1000 : 10000, spawns = lab.quick() ? 20 : 200;
  Pieces pieces(threads);
  const auto by_region = [&](int count) {
    for (int i = 0; i < count; ++i) team.run([&](int index) { pieces.work(index); });
  };
  const auto by_barrier = [&](int count) {
    team.run([&](int index) {
      for (int i = 0; i < count; ++i) {
        pieces.work(index);
        team.barrier();
      }
    });
  };
  const auto by_thread = [&](int count) {
    for (int i = 0; i < count; ++i) in_threads(threads, [&](int index) { pieces.work(index); });
  };
  constexpr int kSteps = 24;  // then every float is 2 - 2^-23, exactly
  bool equal = true;
  for (const std::function<void(int)>& way :
       {std::function<void(int)>(by_region), std::function<void(int)>(by_barrier),
        std::function<void(int)>(by_thread)}) {
    pieces.reset();
    way(kSteps);
    equal = equal && pieces.all_equal(threads, 2 - 0x1p-23f);
  }
  // The work alone: 8 bytes a float through the L1, at half its read bandwidth in plain code. What
  // a start costs is the stack's figure for this engine's regions.
  const double start = engine_stack(lab.system()).cpu_launch;
  const std::vector<LabLevel> levels = lab_levels(lab.machine(), threads);
  if (levels.empty()) throw Error("no memory level of this CPU has a known size");
  const double body = 8.0 * kPieceFloats * threads / levels.front().bandwidth;
  const auto us = [&](double low, double expected, double high) {
    return Band{1e6 * (0.9 * body + low), 1e6 * (2 * body + expected), 1e6 * (2 * body + high)};
  };
  LabResult result;
  result.x = {"way to start", false, 0, 0};
  result.y = {"us for each piece", true, 0, 0};
  LabSeries series{"time per piece", {}};
  const auto point = [&](int x, const char* label, const Band& band, int count,
                         const std::function<void(int)>& way) {
    lab.step(label);
    LabPoint p = lab.measure(
        x, band, [&] { way(count); }, [&](double seconds) { return 1e6 * seconds / count; });
    p.label = label;
    series.points.push_back(p);
    return p.measured;
  };
  const double barrier = point(1, "barrier", us(0, start / 3, start), regions, by_barrier);
  const double region = point(2, "region", us(0, start, 3 * start), regions, by_region);
  // A thread takes about 20 us to create, schedule and join on Linux; 5 to 100 us by machine.
  const double thread = point(3, "new threads", us(5e-6, 20e-6, 100e-6), spawns, by_thread);
  result.series = {series};
  result.checks.push_back({"every way computes the same", equal});
  if (threads == 1) {
    result.sentence = "One thread starts nothing: this needs two cores.";
    return result;
  }
  const double ideal = 1e6 * body;
  const bool starts = region > 2 * ideal && thread > 2 * region;
  result.holds = starts;
  result.sentence = fmt::format(
      "{} pieces of {} take {} as parallel regions, {} inside one region with barriers and would "
      "take {} with new threads; the roof allows {}{}.",
      regions, pretty_time(1e-6 * ideal), pretty_time(1e-6 * region * regions),
      pretty_time(1e-6 * barrier * regions), pretty_time(1e-6 * thread * regions),
      pretty_time(1e-6 * ideal * regions),
      starts ? ": the starts, not the work, are the time" : "");
  result.notes.push_back(fmt::format(
      "{} threads, 4 KiB each; a region is expected to cost {} (the stack's figure), a barrier a "
      "third of it (one of its three hand-overs between cores).",
      threads, pretty_time(start)));
  return result;
}

}  // namespace

const Experiment kLaunchExperiment{
    "launch",
    LabTopic::kernels,
    "What does starting a kernel cost?",
    "A roofline-perfect kernel that is launched 10,000 times with gaps is still slow.",
    "claim 19; CUDA graphs, persistent kernels",
    "ridge tiles, and ridge lab launch --threads with fewer or more threads",
    true,
    false,
    2,
    run_launch};

}  // namespace ridge
