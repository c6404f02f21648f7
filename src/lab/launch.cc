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

// About 40 ns of dependent additions.
constexpr int kSpinSteps = 128;
void spin_registers(int steps) {
  for (int i = 0; i < steps; ++i) asm volatile("" : "+r"(i));
}

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
  // The work alone on one thread, and starts of other pieces, are read before.
  lab.step("starts of other pieces");
  const auto each = [&](int count, const std::function<void()>& ways) {
    return lab.time(ways, 0.06).seconds / count;
  };
  const double body = each(regions, [&] {
    for (int i = 0; i < regions; ++i) pieces.work(0);
  });
  // A start is read around work of another kind, of registers alone: threads that do nothing arrive
  // together, and their barrier's line is still on its way to nobody.
  const auto idle = [&](int) { spin_registers(kSpinSteps); };
  const double spin_s = each(regions, [&] {
    for (int i = 0; i < regions; ++i) idle(0);
  });
  const auto start_of = [&](int count, const std::function<void()>& ways) {
    return std::max(0.0, each(count, ways) - spin_s);
  };
  const double barrier_s = start_of(regions, [&] {
    team.run([&](int index) {
      for (int i = 0; i < regions; ++i) {
        idle(index);
        team.barrier();
      }
    });
  });
  const double region_s = start_of(regions, [&] {
    for (int i = 0; i < regions; ++i) team.run(idle);
  });
  const double thread_s = start_of(spawns, [&] {
    for (int i = 0; i < spawns; ++i) in_threads(threads, idle);
  });
  // A line that moves between two cores takes another time with what else they do: 0.6 to 1.8 times
  // the start that was read.
  const auto us_with = [&](double start) {
    return LabBand{1e6 * (0.9 * body + 0.6 * start), 1e6 * (body + start),
                   1e6 * (1.5 * body + 1.8 * start)};
  };
  LabResult result;
  result.x = {"way to start", false, 0, 0};
  result.y = {"us for each piece", true, 0, 0};
  result.categories = true;
  result.on_memory = false;
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
  const double barrier = point(1, "barrier", us_with(barrier_s), regions, by_barrier);
  const double region = point(2, "region", us_with(region_s), regions, by_region);
  const double thread = point(3, "new threads", us_with(thread_s), spawns, by_thread);
  result.series = {series};
  result.checks.push_back({"every way computes the same", equal});
  if (threads == 1) {
    result.sentence = "One thread starts nothing: this needs two cores.";
    return result;
  }
  const double ideal = 1e6 * body;
  const bool starts = region > 1.5 * ideal && thread > 2 * region;
  decide(result, starts, points_of(series));
  result.sentence = fmt::format(
      "{} pieces of {} take {} as parallel regions, {} inside one region with barriers and would "
      "take {} with new threads; the work alone takes {}{}.",
      regions, pretty_time(1e-6 * ideal), pretty_time(1e-6 * region * regions),
      pretty_time(1e-6 * barrier * regions), pretty_time(1e-6 * thread * regions),
      pretty_time(1e-6 * ideal * regions),
      starts ? ": the starts, not the work, are the time" : "");
  result.notes.push_back(fmt::format(
      "{} threads, 4 KiB each. Read before, around work in registers: {} for a region, {} for a "
      "barrier, {} for new threads.",
      threads, pretty_time(region_s), pretty_time(barrier_s), pretty_time(thread_s)));
  return result;
}

}  // namespace

const Experiment kLaunchExperiment{
    "launch",
    LabTopic::kernels,
    "What does starting a kernel cost?",
    "A roofline-perfect kernel that is launched 10,000 times with gaps is still slow.",
    "CUDA graphs, persistent kernels",
    "ridge predict -m llama-3-8b -M h200 --no-graphs",
    run_launch,
    launch_on_cuda,
    2,
    {8e6, 8e6, 100e6, 100e6}};

}  // namespace ridge
