// Two machines or nodes side by side, and what the difference means for a language model.
#include <fmt/format.h>

#include <cmath>

#include "base/json.h"
#include "base/text.h"
#include "base/units.h"
#include "cli/machine_view.h"

namespace ridge {
namespace {

struct ComparedRow {
  std::string what;
  Maybe a, b;
  std::string (*format)(double);

  Maybe ratio() const { return a && b ? Maybe(*b / *a) : std::nullopt; }
};

std::string watts(double value) { return fmt::format("{:g} W", value); }

// What a number of all devices together is; the ridge and latencies are of one.
Maybe total(const Maybe& value, const System& system) {
  return value ? Maybe(*value * system.devices()) : std::nullopt;
}

const Maybe kUnknown;

std::vector<ComparedRow> rows_of(const System& a, const System& b) {
  const Machine& one = a.device;
  const Machine& two = b.device;
  std::vector<ComparedRow> rows;
  const auto add = [&](std::string what, const Maybe& left, const Maybe& right,
                       std::string (*format)(double)) {
    if (left || right) rows.push_back({std::move(what), left, right, format});
  };
  for (int i = 0; i < kDTypeCount; ++i) {
    add(fmt::format("peak {}", dtype_name(static_cast<DType>(i))), total(one.peak[i], a),
        total(two.peak[i], b), pretty_flop_rate);
  }
  add("memory", total(one.memory().capacity, a), total(two.memory().capacity, b), pretty_bytes);
  add("bandwidth", total(one.memory().read_bandwidth, a), total(two.memory().read_bandwidth, b),
      pretty_rate);
  for (const char* name : {"L1", "L2", "L3"}) {
    const Level* left = one.level(name);
    const Level* right = two.level(name);
    add(fmt::format("{} capacity", name), left ? total(left->total_capacity(), a) : kUnknown,
        right ? total(right->total_capacity(), b) : kUnknown, pretty_binary);
    add(fmt::format("{} bandwidth", name), left ? total(left->read_bandwidth, a) : kUnknown,
        right ? total(right->read_bandwidth, b) : kUnknown, pretty_rate);
  }
  add("memory latency", one.memory().latency, two.memory().latency, pretty_time);
  add("link, one way", one.links.empty() ? kUnknown : one.links.front().bandwidth,
      two.links.empty() ? kUnknown : two.links.front().bandwidth, pretty_rate);
  add("launch in a stream", one.launch.stream, two.launch.stream, pretty_time);
  add("power", total(one.power, a), total(two.power, b), watts);
  // One ridge says it: for the others both sides scale alike.
  const DType dtype = headline_dtype(one).value_or(DType::fp32);
  add(fmt::format("ridge {} FLOP/byte", dtype_name(dtype)), one.ridge(dtype), two.ridge(dtype),
      pretty_number);
  return rows;
}

Maybe decode_ratio(const System& a, const System& b) {
  const Maybe left = total(a.device.memory().read_bandwidth, a);
  const Maybe right = total(b.device.memory().read_bandwidth, b);
  return left && right ? Maybe(*right / *left) : std::nullopt;
}

// Each in the format it would use: bf16, else fp16, else fp32.
Maybe prefill_ratio(const System& a, const System& b) {
  const std::optional<DType> left = headline_dtype(a.device);
  const std::optional<DType> right = headline_dtype(b.device);
  if (!left || !right) return std::nullopt;
  return *total(b.device.peak_of(*right), b) / *total(a.device.peak_of(*left), a);
}

std::string speed(const Maybe& ratio, const std::string& subject, const char* unknown) {
  if (!ratio) return fmt::format("{}: {}", subject, unknown);
  if (std::abs(*ratio - 1) < 0.02) return fmt::format("{} runs about as fast", subject);
  return fmt::format("{} runs {} times as fast", subject, pretty_number(*ratio));
}

}  // namespace

void print_machine_comparison(const System& a, const System& b, const MachineView& view) {
  const std::vector<ComparedRow> rows = rows_of(a, b);
  const Maybe decode = decode_ratio(a, b);
  const Maybe prefill = prefill_ratio(a, b);
  if (view.json) {
    const auto or_null = [](const Maybe& value) { return value ? Json(*value) : Json(); };
    Json out;
    out["a"] = a.name();
    out["b"] = b.name();
    out["rows"] = Json::array();
    for (const ComparedRow& row : rows) {
      out["rows"].push_back({{"what", row.what},
                             {"a", or_null(row.a)},
                             {"b", or_null(row.b)},
                             {"ratio", or_null(row.ratio())}});
    }
    out["decode_ratio"] = or_null(decode);
    out["prefill_ratio"] = or_null(prefill);
    fmt::print("{}\n", out.dump(2));
    return;
  }
  Table table({"", a.name(), b.name(), "ratio"});
  for (const ComparedRow& row : rows) {
    table.add({row.what, or_unknown(row.a, row.format), or_unknown(row.b, row.format),
               or_unknown(row.ratio(), [](double ratio) { return "x" + pretty_number(ratio); })});
  }
  fmt::print(
      "{}\nOn {}, against {}: {} (the ratio of the memory bandwidths); {} (the ratio of the "
      "peaks).\n",
      table.text(), b.name(), a.name(),
      speed(decode, "decode at small batch", "a bandwidth is unknown"),
      speed(prefill, "prefill of long prompts", "a peak is unknown"));
  if (a.devices() > 1 || b.devices() > 1) {
    fmt::print("Totals of all devices; communication between them is not part of these ratios.\n");
  }
}

}  // namespace ridge
