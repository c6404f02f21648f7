#include "cli/predict_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "base/units.h"
#include "predict/layout.h"

namespace ridge {
namespace {

std::string wall_text(Wall wall) {
  static constexpr Colour kColours[] = {Colour::red,  Colour::blue, Colour::yellow, Colour::magenta,
                                        Colour::cyan, Colour::red,  Colour::red};
  return paint(kColours[static_cast<int>(wall)], wall_name(wall));
}

std::string share_or_unknown(double share) { return share > 0 ? pretty_percent(share) : "?"; }

std::vector<std::string> phase_row(const std::string& name, const StepEstimate& s) {
  return {name,
          pretty_time(s.roof_s),
          pretty_time(s.expected_s),
          pretty_time(s.low_s) + " - " + pretty_time(s.high_s),
          wall_text(s.wall),
          wall_text(s.next_wall),
          pretty_number(s.intensity()),
          share_or_unknown(s.mfu),
          share_or_unknown(s.mbu)};
}

// The layout that was chosen and the next best, which it beat.
std::string layouts_text(const std::vector<ParallelLayout>& layouts) {
  const auto words = [](const ParallelLayout& layout) {
    return fmt::format("{} ({} tok/s)", layout_words(layout), pretty_number(layout.tokens_per_s));
  };
  constexpr size_t kShown = 4;
  std::string text = fmt::format("Fastest of the {} layouts that fit: {}, before ", layouts.size(),
                                 words(layouts.front()));
  for (size_t i = 1; i < std::min(layouts.size(), kShown); ++i) {
    text += (i > 1 ? "; " : "") + words(layouts[i]);
  }
  return text + "\n";
}

std::string weights_name(const Request& r) {
  return r.plan.weights ? r.plan.weights->name : main_weight_format(*r.model).name;
}

}  // namespace

std::string stack_words(const Request& r) {
  return fmt::format("stack {} ({}{})", r.stack.name, r.stack.title,
                     r.default_stack ? ", the default for " + r.system.device.name : "");
}

std::string prediction_headline(const Request& r, const Prediction& p) {
  std::string text = fmt::format(
      "{} on {} ({}), weights {}, KV {}, GEMMs in {}; {}\n",
      paint(Colour::bold, r.model->title.empty() ? r.model->name : r.model->title),
      paint(Colour::bold, r.system.name()), layout_words(layout_of(r.plan)), weights_name(r),
      r.plan.kv ? r.plan.kv->name : r.model->kv_format.name, dtype_name(p.math), stack_words(r));
  if (r.layouts.size() > 1) text += layouts_text(r.layouts);
  return text;
}

std::string prediction_phases(const Request& r, const Prediction& p) {
  Table table({"phase", "roof", "expected", "band", "wall", "next wall", "FLOP/B", "MFU", "MBU"});
  table.add(phase_row(fmt::format("prefill {} tokens", pretty_count(r.prompt)), p.prefill));
  table.add(phase_row(
      fmt::format("decode batch {} at {}", pretty_count(r.batch), pretty_count(r.context)),
      p.decode));
  if (p.mixed) {
    table.add(
        phase_row(fmt::format("decode + {} prompt tokens", pretty_count(r.plan.chunk)), *p.mixed));
  }
  std::string text = table.text();
  if (!p.memory.fits && !p.endpoint) return text + "\nno rates: the memory does not hold it\n";
  text += fmt::format(
      "\ntime to first token {}   per token {}   {} tok/s: {} tok/s per user, {} per device (roof "
      "{})\n",
      paint(Colour::bold, pretty_time(p.ttft_s())), paint(Colour::bold, pretty_time(p.tpot_s())),
      paint(Colour::bold, pretty_number(p.tokens_per_s)), pretty_number(1 / p.tpot_s()),
      pretty_number(p.tokens_per_s / r.plan.devices()), pretty_number(p.roof_tokens_per_s));
  if (p.endpoint) {
    text += fmt::format(
        "endpoint with {} clients, {} tokens in, {} out: first token {}, per token {}, {} tok/s"
        " ({} run at once)\n",
        pretty_count(*r.clients), pretty_count(r.prompt), pretty_count(r.output),
        pretty_time(p.endpoint->ttft_s), pretty_time(p.endpoint->tpot_s),
        pretty_number(p.endpoint->tokens_per_s), pretty_count(p.endpoint->running));
  }
  if (p.tokens_per_step > 1) {
    text += fmt::format("speculation: {:.2f} tokens per step, {} of the step spent drafting\n",
                        p.tokens_per_step, pretty_percent(p.draft_s / p.decode.expected_s));
  }
  if (p.batch_efficiency < 1) {
    text += fmt::format("static batching: {} of the batch slots are active on average\n",
                        pretty_percent(p.batch_efficiency));
  }
  if (p.joules_per_token) {
    text += fmt::format("at most {} J per token (board power)", pretty_number(*p.joules_per_token));
    text += p.dollars_per_mtok
                ? fmt::format(", ${} per million tokens\n", pretty_number(*p.dollars_per_mtok))
                : std::string("; price unknown: --price gives $ per million tokens\n");
  }
  return text;
}

std::string simulated_text(const ServiceSummary& s) {
  Table table({"simulated", "mean", "p50", "p90", "p99"});
  const auto add = [&](const char* name, const Percentiles& p) {
    table.add(
        {name, pretty_time(p.mean), pretty_time(p.p50), pretty_time(p.p90), pretty_time(p.p99)});
  };
  add("first token", s.ttft);
  add("per token", s.itl);
  add("whole answer", s.e2e);
  return table.text() + fmt::format("{} requests: {} requests/s, {} tok/s\n", s.requests,
                                    pretty_number(s.requests_per_s),
                                    pretty_number(s.output_tokens_per_s));
}

std::string prediction_memory(const Request& r, const Prediction& p) {
  const MemoryFit& m = p.memory;
  std::string text = fmt::format(
      "Memory per device: weights {}, KV {}, activations {}, overhead {}", pretty_bytes(m.weights),
      pretty_bytes(m.kv), pretty_bytes(m.activations), pretty_bytes(m.overhead));
  if (!m.capacity) return text + "; memory size unknown\n";
  text += fmt::format(" = {} of {}", pretty_bytes(m.used()), pretty_bytes(*m.capacity));
  if (m.reserved > 0) {
    text += fmt::format(", of which {} leaves {} unused", r.stack.name, pretty_bytes(m.reserved));
  }
  text += '\n';
  const auto part = [&](double bytes, const char* glyph) {
    std::string bar;
    const int cells = static_cast<int>(std::lround(bytes / *m.capacity * 50));
    for (int i = 0; i < std::min(cells, 50); ++i) bar += glyph;
    return bar;
  };
  std::string bar = part(m.weights, "█") + part(m.kv, "▓") + part(m.activations + m.overhead, "▒");
  while (display_width(bar) < 50) bar += "·";
  if (m.fits) {
    text += fmt::format("{}  {} left\n", bar, pretty_bytes(m.left()));
  } else {
    text += paint(Colour::red,
                  fmt::format("does not fit: {} too much per device\n", pretty_bytes(-m.left())));
  }
  const auto amount = [](double value) { return value > 0 ? pretty_count(value) : "none"; };
  text += fmt::format(
      "Largest batch at context {}: {}; largest context at batch {}: {}\n", pretty_count(r.context),
      amount(m.max_batch), pretty_count(r.batch),
      amount(m.max_context) +
          (m.max_context == double(r.model->max_context) ? " (the model's limit)" : ""));
  return text;
}

std::string prediction_ops(const Prediction& p) {
  std::string text;
  for (const bool prefill : {true, false}) {
    const StepEstimate& phase = prefill ? p.prefill : p.decode;
    Table table({prefill ? "prefill" : "decode", "count", "FLOPs", "bytes", "FLOP/B", "roof",
                 "expected", "share", "", "wall"});
    for (const OpEstimate& op : p.ops) {
      if (op.prefill != prefill) continue;
      const double share = op.expected_s / phase.expected_s;
      table.add({op.name, fmt::format("{:.0f}", op.count), pretty_flops(op.flops),
                 pretty_bytes(op.bytes), pretty_number(op.intensity()), pretty_time(op.roof_s),
                 pretty_time(op.expected_s), pretty_percent(share), bar(share, 12),
                 wall_text(op.wall)});
    }
    text += table.text() + "\n";
  }
  return text;
}

std::string prediction_notes(const Request& r, const Prediction& p) {
  std::string text;
  if (!r.stack.calibrated && r.stack.name != "ideal") {
    text += fmt::format("Expected times (stack '{}'): {}.\n", r.stack.name, r.stack.basis);
  }
  for (const std::string& note : p.notes) text += "Note: " + note + ".\n";
  return paint(Colour::dim, text);
}

Plot roofline_plot(const Request& r, const Prediction& p) {
  const Machine& machine = r.system.device;
  Plot plot;
  plot.title = fmt::format("{} on {}", r.model->name, machine.name);
  plot.x = {"FLOP/byte", true, 0.1, 10000};
  plot.y = {"FLOP/s", true, 0, 0};
  const double bandwidth = *machine.memory().read_bandwidth;
  double top = 0;
  const auto roof = [&](double peak, double rate, std::string label, bool dashed) {
    plot.series.push_back(
        {std::move(label), {0.1, peak / rate, 10000}, {0.1 * rate, peak, peak}, dashed});
    top = std::max(top, peak);
  };
  for (int i = 0; i < kDTypeCount; ++i) {
    const DType dtype = static_cast<DType>(i);
    const bool shown =
        dtype == DType::fp32 || dtype == DType::bf16 || dtype == DType::fp8 || dtype == DType::fp4;
    const Maybe peak = machine.peak_of(dtype);
    if (!shown || !peak) continue;
    roof(*peak, bandwidth,
         fmt::format("{} {}, {} {}, ridge {}", dtype_name(dtype), pretty_flop_rate(*peak),
                     machine.memory().name, pretty_rate(bandwidth),
                     pretty_number(*peak / bandwidth)),
         false);
  }
  const Level* cache = machine.cache();
  if (const Maybe peak = machine.peak_of(DType::bf16); peak && cache && cache->read_bandwidth) {
    roof(*peak, *cache->read_bandwidth,
         fmt::format("bf16, {} {}", cache->name, pretty_rate(*cache->read_bandwidth)), true);
  }
  double low = top;
  for (const OpEstimate& op : p.ops) {
    if (op.flops <= 0 || op.bytes <= 0) continue;
    const double y = op.flops / op.expected_s;
    low = std::min(low, y);
    const double total = op.prefill ? p.prefill.expected_s : p.decode.expected_s;
    plot.markers.push_back({fmt::format("{} {}", op.prefill ? "prefill" : "decode", op.name),
                            op.intensity(), y, op.expected_s / total});
  }
  // The many small operators would hide the few that matter: keep those above 1 % of their phase.
  std::erase_if(plot.markers, [](const Marker& m) { return m.weight < 0.01; });
  plot.y.low = std::pow(10, std::floor(std::log10(std::max(low, top * 1e-5))));
  plot.y.high = top * 2;
  return plot;
}

}  // namespace ridge
