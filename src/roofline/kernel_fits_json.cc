// Calibrations as JSON: one object per fit, its parameters by name.
#include "base/error.h"
#include "base/json.h"
#include "roofline/kernel_fits.h"

namespace ridge {
namespace {

KernelParams default_params(KernelKind family) {
  switch (family) {
    case KernelKind::gemm:
      return GemmParams{};
    case KernelKind::context_attention:
    case KernelKind::context_mla:
      return PrefillParams{};
    case KernelKind::generation_attention:
    case KernelKind::generation_mla:
      return DecodeParams{};
    case KernelKind::moe:
      return MoeParams{};
    default:
      return CollectiveParams{};
  }
}

template <typename P>
void read_params(P& params, const nlohmann::json& json, const std::string& where) {
  size_t known = 0;
  for (const Field<P>& field : P::fields()) {
    // A missing number keeps its default, so old files stay readable.
    const auto value = number_field(json, field.name, where,
                                    field.low * (field.low > 0 ? 0.999 : 1), field.high * 1.001);
    if (value) params.*field.member = *value, ++known;
  }
  if (known != json.size()) throw Error("{}: a parameter this version does not know", where);
}

std::string required(const nlohmann::json& json, const char* key, const std::string& where) {
  const auto value = string_field(json, key, where);
  if (!value) throw Error("{}: {} is missing", where, key);
  return *value;
}

KernelFit read_fit(const nlohmann::json& json, const std::string& stack, const std::string& where) {
  KernelFit fit;
  fit.stack = stack;
  fit.family = family_from_name(required(json, "op", where));
  fit.arch = arch_from_name(required(json, "arch", where));
  fit.dtype = required(json, "dtype", where);
  fit.kernel = string_field(json, "kernel", where).value_or("");
  fit.rows = number_field(json, "rows", where, 0, 1e12).value_or(0);
  fit.mape = number_field(json, "mape", where, 0, 1e6).value_or(0);
  fit.median = number_field(json, "median", where, 0, 1e6).value_or(0);
  try {
    if (json.contains("gpus")) fit.gpus = json["gpus"].get<std::vector<std::string>>();
    if (json.contains("head_dims")) fit.head_dims = json["head_dims"].get<std::vector<double>>();
    for (const auto& pair : json.value("bands", nlohmann::json::array()))
      fit.bands.push_back({pair.at(0).get<double>(), pair.at(1).get<double>()});
  } catch (const nlohmann::json::exception&) {
    throw Error("{}: gpus, head_dims or bands have another form than expected", where);
  }
  fit.params = default_params(fit.family);
  const auto params = json.value("params", nlohmann::json::object());
  std::visit([&](auto& p) { read_params(p, params, where + ".params"); }, fit.params);
  return fit;
}

}  // namespace

void read_fits(const nlohmann::json& file, std::string_view where, KernelFits& out) {
  if (!file.contains("calibration")) return;
  const nlohmann::json& part = file["calibration"];
  const std::string place(where), stack = required(file, "name", place);
  if (!part.is_object() || !part.contains("fits") || !part["fits"].is_array())
    throw Error("{}: calibration must be an object with a list of fits", where);
  size_t index = 0;
  for (const auto& fit : part["fits"])
    out.push_back(read_fit(fit, stack, fmt::format("{}: calibration.fits[{}]", where, index++)));
}

std::string write_fits(const KernelFits& fits, std::string_view stack) {
  std::string out = "{\n    \"fits\": [";
  bool first = true;
  const auto round4 = [](double value) { return std::stod(fmt::format("{:.4g}", value)); };
  for (const KernelFit& fit : fits) {
    if (fit.stack != stack) continue;
    Json json;
    json["op"] = family_name(fit.family);
    json["arch"] = arch_name(fit.arch);
    json["dtype"] = fit.dtype;
    json["kernel"] = fit.kernel;
    if (!fit.head_dims.empty()) json["head_dims"] = fit.head_dims;
    json["gpus"] = fit.gpus;
    json["rows"] = fit.rows;
    json["mape"] = std::stod(fmt::format("{:.1f}", fit.mape));
    json["median"] = std::stod(fmt::format("{:.1f}", fit.median));
    Json params = Json::object();
    std::visit(
        [&](const auto& p) {
          for (const auto& field : p.fields()) params[field.name] = round4(p.*field.member);
        },
        fit.params);
    json["params"] = params;
    Json bands = Json::array();
    for (const Band& band : fit.bands)
      bands.push_back({std::stod(fmt::format("{:.3g}", band.low)),
                       std::stod(fmt::format("{:.3g}", band.high))});
    json["bands"] = bands;
    out += fmt::format("{}\n      {}", first ? "" : ",", json.dump());
    first = false;
  }
  return out + "\n    ]\n  }";
}

}  // namespace ridge
