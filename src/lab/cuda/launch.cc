// The same small pieces of work as launches in a stream, as nodes of a graph, and inside one
// persistent kernel with grid barriers: what starting costs.
#ifdef RIDGE_HAS_CUDA

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/units.h"
#include "lab/cuda/gpu_point.h"
#include "lab/cuda/on_cuda.h"
#include "lab/cuda/pieces.h"

namespace ridge {

LabResult launch_on_cuda(Lab& lab) {
  LabGpu gpu;
  const Launch& costs = lab.machine().launch;
  const Level* l2 = lab.machine().cache();
  if (!costs.stream || !costs.graph || !costs.persistent || l2 == nullptr || !l2->read_bandwidth) {
    throw Error("the launch costs of {} are unknown: ridge measure stores them",
                lab.machine().title);
  }
  const int count = lab.quick() ? 1000 : 10000;
  lab.step("building a graph");
  bool equal = true;
  {
    constexpr int kSteps = 24;  // then every float is 2 - 2^-23, exactly
    LaunchPieces few(gpu, kSteps);
    const auto gives_the_same = [&](void (LaunchPieces::*way)(int)) {
      few.reset();
      (few.*way)(kSteps);
      return few.all_equal(2 - 0x1p-23f);
    };
    equal = gives_the_same(&LaunchPieces::by_stream) && gives_the_same(&LaunchPieces::by_graph) &&
            gives_the_same(&LaunchPieces::by_persistent);
  }
  LaunchPieces pieces(gpu, 1000);
  // The work itself waits for one load from the L2; what a start costs is the machine's figure.
  const double ideal = LaunchPieces::bytes(gpu) / *l2->read_bandwidth;
  const double body = ideal + 2 * l2->latency.value_or(2e-7);
  LabResult result;
  result.x = {"way to start", false, 0, 0};
  result.y = {"us for each piece", true, 0, 0};
  result.categories = true;
  LabSeries series{"time per piece", {}};
  const auto point = [&](double x, const char* label, double start, double hidden,
                         void (LaunchPieces::*way)(int)) {
    lab.step(label);
    const double expected = std::max(start, hidden);
    const LabBand band{1e6 * 0.6 * start, 1e6 * expected, 1e6 * 1.8 * expected};
    LabPoint p = lab.measure(
        x, band,
        [&] {
          (pieces.*way)(count);
          gpu.wait();
        },
        [&](double seconds) { return 1e6 * seconds / count; });
    p.label = label;
    series.points.push_back(p);
    return p.measured;
  };
  // The host launches ahead while a piece runs, so in a stream the body is hidden.
  const double persistent = point(1, "persistent kernel", *costs.persistent,
                                  *costs.persistent + body, &LaunchPieces::by_persistent);
  const double graph =
      point(2, "graph", *costs.graph, *costs.graph + body, &LaunchPieces::by_graph);
  const double stream = point(3, "stream", *costs.stream, *costs.stream, &LaunchPieces::by_stream);
  result.series = {series};
  result.checks.push_back({"every way computes the same", equal});
  const bool starts = stream > 5e6 * ideal && stream > 1.5 * graph;
  decide(result, starts, points_of(series));
  result.sentence = fmt::format(
      "{} pieces of {} take {} as launches of a stream, {} as graphs and {} inside one persistent "
      "kernel; the roof allows {}{}.",
      count, pretty_time(ideal), pretty_time(1e-6 * stream * count),
      pretty_time(1e-6 * graph * count), pretty_time(1e-6 * persistent * count),
      pretty_time(ideal * count), starts ? ": the starts, not the work, are the time" : "");
  result.notes.push_back(fmt::format(
      "A piece is 4 KiB on each of {} SMs, in the L2. Expected: {} for a launch in a stream, {} "
      "for "
      "an edge of a graph and {} for a grid barrier, with the body of a piece, {}, besides.",
      gpu.sms(), pretty_time(*costs.stream), pretty_time(*costs.graph),
      pretty_time(*costs.persistent), pretty_time(body)));
  result.notes.push_back(gpu.conditions());
  return result;
}

}  // namespace ridge

#endif
