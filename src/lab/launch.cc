// The same small pieces of work as many parallel regions, as one region with barriers, and as new
// threads: what starting costs.
#include <fmt/format.h>

#include <atomic>
#include <thread>

#include "base/error.h"
#include "base/units.h"
#include "lab/catalogue.h"
#include "lab/cuda/on_cuda.h"
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
  // a barrier and a parallel region cost is known where `ridge measure` has run (the machine's
  // launch figures); for a new thread, which the system's scheduler places, no figure exists.
  const Launch& costs = lab.machine().launch;
  const std::vector<LabLevel> levels = lab_levels(lab.machine(), threads);
  if (levels.empty()) throw Error("no memory level of this CPU has a known size");
  const double body = 8.0 * kPieceFloats * threads / levels.front().bandwidth;
  // Twice the figure belongs to the band, and half of it: a line that moves between two cores takes
  // another time with every pair of cores and with what else they do.
  const auto us_with = [&](const Maybe& start) {
    if (!start) return LabBand{};
    return LabBand{1e6 * (body + 0.5 * *start), 1e6 * (2 * body + *start),
                   1e6 * (2 * body + 2 * *start)};
  };
  LabResult result;
  result.x = {"way to start", false, 0, 0};
  result.y = {"us for each piece", true, 0, 0};
  result.categories = true;
  LabSeries series{"time per piece", {}};
  const auto point = [&](int x, const char* label, const LabBand& band, int count,
                         const std::function<void(int)>& way) {
    lab.step(label);
    LabPoint p = lab.measure(
        x, band, [&] { way(count); }, [&](double seconds) { return 1e6 * seconds / count; });
    p.label = label;
    series.points.push_back(p);
    return p.measured;
  };
  const double barrier = point(1, "barrier", us_with(costs.persistent), regions, by_barrier);
  const double region = point(2, "region", us_with(costs.stream), regions, by_region);
  const double thread = point(3, "new threads", {}, spawns, by_thread);
  result.series = {series};
  result.checks.push_back({"every way computes the same", equal});
  if (threads == 1) {
    result.sentence = "One thread starts nothing: this needs two cores.";
    return result;
  }
  const double ideal = 1e6 * body;
  const bool starts = region > 2 * ideal && thread > 2 * region;
  decide(result, starts, points_of(series));
  result.sentence = fmt::format(
      "{} pieces of {} take {} as parallel regions, {} inside one region with barriers and would "
      "take {} with new threads; the roof allows {}{}.",
      regions, pretty_time(1e-6 * ideal), pretty_time(1e-6 * region * regions),
      pretty_time(1e-6 * barrier * regions), pretty_time(1e-6 * thread * regions),
      pretty_time(1e-6 * ideal * regions),
      starts ? ": the starts, not the work, are the time" : "");
  result.notes.push_back(fmt::format(
      "{} threads, 4 KiB each. {} Nothing predicts what a new thread costs.", threads,
      costs.stream && costs.persistent
          ? fmt::format("`ridge measure` found {} for an empty region and {} for a barrier.",
                        pretty_time(*costs.stream), pretty_time(*costs.persistent))
          : "Barriers and regions are predicted after `ridge measure`, which times empty ones."));
  return result;
}

}  // namespace

const Experiment kLaunchExperiment{
    "launch",
    LabTopic::kernels,
    "What does starting a kernel cost?",
    "A roofline-perfect kernel that is launched 10,000 times with gaps is still slow.",
    "claim 19; CUDA graphs, persistent kernels",
    "ridge predict -m llama-3-8b -M h200 --no-graphs",
    run_launch,
    launch_on_cuda,
    2,
    {8e6, 8e6, 100e6, 100e6}};

}  // namespace ridge
