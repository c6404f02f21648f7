#include "machine/summary.h"

#include "machine/atlas.h"

namespace ridge {
namespace {

nlohmann::json or_null(const Maybe& value) {
  return value ? nlohmann::json(*value) : nlohmann::json();
}

}  // namespace

std::optional<DType> headline_dtype(const Machine& machine) {
  for (const DType dtype : {DType::bf16, DType::fp16, DType::fp32}) {
    if (machine.peak_of(dtype)) return dtype;
  }
  return std::nullopt;
}

DType tile_dtype(const Machine& machine) {
  return machine.peak_of(DType::fp16) ? DType::fp16 : headline_dtype(machine).value_or(DType::fp16);
}

Json machine_summary(const Machine& machine) {
  const std::optional<DType> dtype = headline_dtype(machine);
  Json entry;
  entry["name"] = machine.name;
  entry["title"] = machine.title;
  entry["kind"] = machine_to_json(machine)["kind"];
  entry["year"] = or_null(machine.year);
  entry["dtype"] = dtype ? Json(std::string(dtype_name(*dtype))) : Json();
  entry["peak"] = or_null(dtype ? machine.peak_of(*dtype) : std::nullopt);
  entry["capacity"] = or_null(machine.memory().capacity);
  entry["bandwidth"] = or_null(machine.memory().read_bandwidth);
  entry["ridge"] = or_null(dtype ? machine.ridge(*dtype) : std::nullopt);
  entry["link"] = or_null(machine.links.empty() ? std::nullopt : machine.links.front().bandwidth);
  entry["power"] = or_null(machine.power);
  return entry;
}

}  // namespace ridge
