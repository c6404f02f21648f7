// Peak, bandwidth and ridge over the years: why decoding became a question of bandwidth.
#include <fmt/format.h>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/plot.h"
#include "base/text.h"
#include "base/units.h"
#include "cli/machine_view.h"
#include "machine/history.h"

namespace ridge {
namespace {

Plot draw(const std::vector<Epoch>& epochs) {
  const Epoch& first = epochs.front();
  Plot plot;
  plot.title = fmt::format("Growth since the {} of {:g}", first.machine->title, first.year);
  plot.x = {"year", false, 0, 0};
  plot.y = {"times", true, 0, 0};
  Series peak{"peak", {}, {}, false}, bandwidth{"bandwidth", {}, {}, false},
      ridge{"ridge (peak / bandwidth)", {}, {}, true};
  for (const Epoch& epoch : epochs) {
    for (Series* series : {&peak, &bandwidth, &ridge}) series->x.push_back(epoch.year);
    peak.y.push_back(epoch.peak / first.peak);
    bandwidth.y.push_back(epoch.bandwidth / first.bandwidth);
    ridge.y.push_back(epoch.ridge() / first.ridge());
  }
  plot.series = {peak, bandwidth, ridge};
  return plot;
}

void print_growth(const Growth& growth) {
  const Epoch& from = *growth.from;
  const Epoch& to = *growth.to;
  const auto times = [](double factor) { return "x" + pretty_number(factor); };
  fmt::print(
      "{} {} ({:g}) to {} {} ({:g}): peak {} ({} to {}), fp32 {}, bandwidth {}, ridge {} to "
      "{} FLOP/byte.\n",
      from.machine->architecture, from.machine->name, from.year, to.machine->architecture,
      to.machine->name, to.year, times(to.peak / from.peak), dtype_name(from.dtype),
      dtype_name(to.dtype), or_unknown(growth.fp32(), times), times(to.bandwidth / from.bandwidth),
      pretty_number(from.ridge()), pretty_number(to.ridge()));
}

}  // namespace

void print_machine_history(const std::vector<Machine>& machines, const MachineView& view) {
  const std::vector<Epoch> epochs = peak_records(machines);
  if (epochs.empty()) throw Error("no data-centre GPU with a known year, peak and bandwidth");
  if (!view.svg.empty()) write_file(view.svg, draw_svg(draw(epochs)));
  if (view.json) {
    fmt::print("{}\n", history_json(epochs).dump(2));
    return;
  }
  Table table({"year", "machine", "generation", "peak", "in", "bandwidth", "ridge FLOP/byte"});
  for (const Epoch& epoch : epochs) {
    table.add({fmt::format("{:g}", epoch.year), epoch.machine->name, epoch.machine->architecture,
               pretty_flop_rate(epoch.peak), std::string(dtype_name(epoch.dtype)),
               pretty_rate(epoch.bandwidth), pretty_number(epoch.ridge())});
  }
  fmt::print(
      "{}\n{}\nData-centre GPUs that raised the record of the dense 16-bit peak (fp32 before "
      "there was one).\n\n",
      draw_text(draw(epochs)), table.text());
  for (const Growth& growth : growths(epochs)) print_growth(growth);
  if (!view.svg.empty()) fmt::print("\nwrote {}\n", view.svg);
}

}  // namespace ridge
