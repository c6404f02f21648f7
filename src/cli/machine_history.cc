// Peak, bandwidth and ridge over the years: why decoding became a question of bandwidth.
#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/plot.h"
#include "base/text.h"
#include "base/units.h"
#include "cli/machine_view.h"

namespace ridge {
namespace {

struct Epoch {
  const Machine* machine;
  DType dtype;  // of the peak: 16 bit where the part has it
  double year, peak, bandwidth;

  double ridge() const { return peak / bandwidth; }
};

// GeForce and RTX parts are sold for desks, the rest for data centres.
bool in_data_centres(const Machine& machine) {
  return machine.kind == MachineKind::gpu && machine.title.find("RTX") == std::string::npos;
}

// The parts that set a new record of the peak, one a year at most.
std::vector<Epoch> records(const std::vector<Machine>& machines) {
  std::vector<Epoch> all;
  for (const Machine& machine : machines) {
    const std::optional<DType> dtype = headline_dtype(machine);
    const Maybe bandwidth = machine.memory().read_bandwidth;
    if (!in_data_centres(machine) || !dtype || !bandwidth || !machine.year) continue;
    all.push_back({&machine, *dtype, *machine.year, *machine.peak_of(*dtype), *bandwidth});
  }
  // Within a year the best comes first, so that the others no longer set a record.
  std::sort(all.begin(), all.end(), [](const Epoch& a, const Epoch& b) {
    if (a.year != b.year) return a.year < b.year;
    return std::pair(a.peak, a.bandwidth) > std::pair(b.peak, b.bandwidth);
  });
  std::vector<Epoch> best;
  for (const Epoch& epoch : all) {
    if (best.empty() || epoch.peak > best.back().peak) best.push_back(epoch);
  }
  return best;
}

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

// How much grew from one part to another.
struct Growth {
  const Epoch* from;
  const Epoch* to;

  Maybe fp32() const {  // the same format on both sides
    const Maybe before = from->machine->peak_of(DType::fp32);
    const Maybe after = to->machine->peak_of(DType::fp32);
    return before && after ? Maybe(*after / *before) : std::nullopt;
  }
};

// The whole span, and the last ten years of it.
std::vector<Growth> growths(const std::vector<Epoch>& epochs) {
  std::vector<Growth> list = {{&epochs.front(), &epochs.back()}};
  const Epoch* decade = nullptr;
  for (const Epoch& epoch : epochs) {
    if (epoch.year <= epochs.back().year - 10) decade = &epoch;
  }
  if (decade && decade != &epochs.front()) list.push_back({decade, &epochs.back()});
  return list;
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

Json to_json(const std::vector<Epoch>& epochs) {
  Json out;
  out["records"] = Json::array();
  for (const Epoch& epoch : epochs) {
    out["records"].push_back({{"name", epoch.machine->name},
                              {"architecture", epoch.machine->architecture},
                              {"year", epoch.year},
                              {"dtype", std::string(dtype_name(epoch.dtype))},
                              {"peak", epoch.peak},
                              {"bandwidth", epoch.bandwidth},
                              {"ridge", epoch.ridge()}});
  }
  out["growth"] = Json::array();
  for (const Growth& growth : growths(epochs)) {
    const Maybe fp32 = growth.fp32();
    out["growth"].push_back({{"from", growth.from->machine->name},
                             {"to", growth.to->machine->name},
                             {"peak", growth.to->peak / growth.from->peak},
                             {"fp32", fp32 ? Json(*fp32) : Json()},
                             {"bandwidth", growth.to->bandwidth / growth.from->bandwidth},
                             {"ridge", growth.to->ridge() / growth.from->ridge()}});
  }
  return out;
}

}  // namespace

void print_machine_history(const std::vector<Machine>& machines, const MachineView& view) {
  const std::vector<Epoch> epochs = records(machines);
  if (epochs.empty()) throw Error("no data-centre GPU with a known year, peak and bandwidth");
  if (!view.svg.empty()) write_file(view.svg, draw_svg(draw(epochs)));
  if (view.json) {
    fmt::print("{}\n", to_json(epochs).dump(2));
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
