// FLOPs grew faster than bandwidth, so the ridge moved to the right. From the atlas: nothing is
// measured.
#include "machine/history.h"

#include <fmt/format.h>

#include "lab/catalogue.h"
#include "lab/lab.h"
#include "machine/atlas.h"

namespace ridge {
namespace {

LabResult run_history(Lab& lab) {
  lab.step("reading the atlas");
  const std::vector<Machine> machines = all_machines();
  const std::vector<Epoch> epochs = peak_records(machines);
  LabResult result;
  result.x = {"year", false, 0, 0};
  result.y = {"growth since the first, x", true, 0, 0};
  LabSeries peak{"peak FLOP/s", {}}, bandwidth{"bandwidth", {}}, ridge{"ridge", {}};
  const Epoch& first = epochs.front();
  for (const Epoch& epoch : epochs) {
    const auto point = [&](double value) {
      LabPoint p;
      p.x = epoch.year;
      p.label = epoch.machine->name;
      p.measured = value;
      return p;
    };
    peak.points.push_back(point(epoch.peak / first.peak));
    bandwidth.points.push_back(point(epoch.bandwidth / first.bandwidth));
    ridge.points.push_back(point(epoch.ridge() / first.ridge()));
  }
  result.series = {peak, bandwidth, ridge};
  // The last ten years of it.
  const Growth decade = growths(epochs).back();
  const double flops = decade.to->peak / decade.from->peak;
  const double bytes = decade.to->bandwidth / decade.from->bandwidth;
  result.holds = flops > 2 * bytes;
  result.sentence = fmt::format(
      "From {} ({:.0f}) to {} ({:.0f}) the peak grew {:.0f}x and the bandwidth {:.1f}x; the ridge "
      "moved from {:.0f} to {:.0f} FLOP/byte. {}",
      decade.from->machine->name, decade.from->year, decade.to->machine->name, decade.to->year,
      flops, bytes, decade.from->ridge(), decade.to->ridge(),
      flops > 60 && bytes > 10
          ? "Both grew more than the claimed 60x and 8 to 10x, arithmetic far ahead as claimed."
          : "");
  result.notes.push_back(
      "Peaks are the 16-bit ones where a part has them: tensor cores count, as the claim does.");
  return result;
}

}  // namespace

const Experiment kHistoryExperiment{
    "history",
    LabTopic::hardware,
    "Why does everything end at the memory wall?",
    "FLOP/s grew about 60x in a decade, bandwidth 8 to 10x: the ridge went from ~10 to ~300.",
    "claim 20",
    "ridge machine --history",
    true,
    true,
    0.1,
    run_history};

}  // namespace ridge
