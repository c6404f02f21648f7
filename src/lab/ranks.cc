// A collective takes a latency per step and its bytes over the bandwidth of the link: all-gathers
// of a few sizes say what every other collective and size takes.
#include <fmt/format.h>

#include <algorithm>

#include "base/units.h"
#include "lab/catalogue.h"
#include "lab/lab_ranks.h"

namespace ridge {
namespace {

LabResult run_ranks(Lab& lab) {
  LabResult result;
  result.x = {"message, bytes", true, 0, 0};
  result.y = {"us", true, 0, 0};
  result.on_memory = false;
  const std::vector<int> counts = lab_rank_counts(lab);
  if (counts.empty()) {
    result.sentence = "Two ranks need two cores, and this process may use one.";
    return result;
  }
  for (const int ranks : counts) {
    lab.step(fmt::format("the link among {} ranks", ranks));
    const RankLink link = lab_rank_link(lab, ranks);
    CollectiveOptions options = all_collectives();
    options.seconds_each = lab.quick() ? 0.01 : 0.06;
    options.kinds = {Collective::all_reduce, Collective::reduce_scatter, Collective::broadcast,
                     Collective::send};
    options.sizes.clear();
    for (double bytes = 64; bytes <= 4 << 20; bytes *= lab.quick() ? 16 : 4) {
      options.sizes.push_back(bytes);
    }
    const auto predicted_us = [&](Collective kind, double bytes) {
      const double us =
          1e6 * collective_seconds(LinkMethod::shared_memory, kind, bytes, ranks, link);
      return LabBand{0.7 * us, us, 1.4 * us};
    };
    for (const Collective kind : options.kinds) {
      for (const double bytes : options.sizes) {
        lab.announce(predicted_us(kind, bytes),
                     fmt::format("{} of {}", collective_name(kind), pretty_bytes(bytes)));
      }
    }
    for (const CollectiveTime& time : lab_collectives(lab, ranks, options)) {
      const std::string name = fmt::format("{}, {} ranks", collective_name(time.kind), ranks);
      if (result.series.empty() || result.series.back().name != name) {
        result.series.push_back({name, {}});
      }
      LabPoint point;
      point.x = time.bytes;
      point.band = predicted_us(time.kind, time.bytes);
      point.measured = 1e6 * time.seconds;
      point.spread = (time.high - time.low) / time.seconds;
      point.doubt = time.doubt;
      result.series.back().points.push_back(std::move(point));
    }
    result.notes.push_back(fmt::format("{} ranks: {} per step, {}.", ranks,
                                       pretty_time(link.latency), pretty_rate(1 / link.per_byte)));
  }
  const Agreement agreement = agreement_of({&result, 1});
  if (agreement.points == 0) {
    result.sentence = "The link did not stay as fast as it was: no point can be judged.";
    return result;
  }
  decide(result, agreement.share() >= 0.5, {});  // doubtful points are left out of the share
  result.sentence = fmt::format(
      "All-gathers of five sizes, 4 B to 1 MiB, predict four other collectives from 64 B to 4 MiB "
      "with a median error of {}.",
      pretty_percent(agreement.median_error));
  return result;
}

}  // namespace

const Experiment kRanksExperiment{
    "ranks",
    LabTopic::serving,
    "What does it cost ranks to talk?",
    "A collective takes a latency for each step and its bytes over the link's bandwidth, so "
    "all-gathers of a few sizes predict all others.",
    "alpha-beta model of collectives; tensor parallelism",
    "ridge measure --ranks 2",
    run_ranks,
    nullptr,
    6,
    {30e6, 30e6, 0, 0},
    "Needs two GPUs: ranks that share one take turns on it, and no link lies between them."};

}  // namespace ridge
