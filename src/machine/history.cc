#include "machine/history.h"

#include <algorithm>

#include "machine/summary.h"

namespace ridge {
namespace {

// GeForce, RTX, Radeon and Arc parts are sold for desks, the rest for data centres.
bool in_data_centres(const Machine& machine) {
  const auto titled = [&](const char* word) {
    return machine.title.find(word) != std::string::npos;
  };
  return machine.kind == MachineKind::gpu && !titled("RTX") && !titled("Radeon") && !titled("Arc");
}

}  // namespace

std::vector<Epoch> peak_records(const std::vector<Machine>& machines) {
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

Maybe Growth::fp32() const {
  const Maybe before = from->machine->peak_of(DType::fp32);
  const Maybe after = to->machine->peak_of(DType::fp32);
  return before && after ? Maybe(*after / *before) : std::nullopt;
}

std::vector<Growth> growths(const std::vector<Epoch>& epochs) {
  std::vector<Growth> list = {{&epochs.front(), &epochs.back()}};
  const Epoch* decade = nullptr;
  for (const Epoch& epoch : epochs) {
    if (epoch.year <= epochs.back().year - 10) decade = &epoch;
  }
  if (decade && decade != &epochs.front()) list.push_back({decade, &epochs.back()});
  return list;
}

Json history_json(const std::vector<Epoch>& epochs) {
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

}  // namespace ridge
