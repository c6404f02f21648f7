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
  // The claim's numbers, each to a factor of 1.5: "about 60x", "8 to 10x", "~10", "~300".
  const auto near = [](double value, double low, double high) {
    return value >= low / 1.5 && value <= high * 1.5;
  };
  const double from = decade.from->ridge(), to = decade.to->ridge();
  const bool peak_near = near(flops, 60, 60), bytes_near = near(bytes, 8, 10);
  const bool ridge_near = near(from, 10, 10) && near(to, 300, 300);
  decide(result, peak_near && bytes_near && ridge_near, {});
  std::string misses;
  const auto miss = [&](bool is_near, const char* what) {
    if (!is_near) misses += fmt::format("{}{}", misses.empty() ? "" : ", ", what);
  };
  miss(peak_near, "60x the peak");
  miss(bytes_near, "8 to 10x the bandwidth");
  miss(ridge_near, "a ridge from 10 to 300");
  result.sentence = fmt::format(
      "From {} ({:.0f}) to {} ({:.0f}) the peak grew {:.0f}x and the bandwidth {:.1f}x; the ridge "
      "moved from {:.0f} to {:.0f} FLOP/byte. {}",
      decade.from->machine->name, decade.from->year, decade.to->machine->name, decade.to->year,
      flops, bytes, from, to,
      misses.empty()
          ? "The claim's numbers hold to a factor of 1.5."
          : fmt::format("Not within a factor of 1.5 of the claim: {}. {}", misses,
                        flops > 2 * bytes ? "Arithmetic did outgrow bandwidth, which is the point."
                                          : "Arithmetic did not outgrow bandwidth."));
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
    "AI and Memory Wall (Gholami et al., 2024)",
    "ridge machine --history",
    run_history,
    run_history,
    0.1,
    {8e6, 8e6, 8e6, 8e6},
    nullptr,
    false};

}  // namespace ridge
