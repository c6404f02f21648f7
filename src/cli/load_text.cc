#include "cli/load_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/plot.h"
#include "base/text.h"
#include "base/units.h"

namespace ridge {
namespace {

std::string latency_table(const LoadSummary& s) {
  Table table({"latency", "mean", "p50", "p90", "p95", "p99", "max"});
  const auto add = [&](const char* name, const Percentiles& p) {
    if (p.count == 0) return;
    table.add({name, pretty_time(p.mean), pretty_time(p.p50), pretty_time(p.p90),
               pretty_time(p.p95), pretty_time(p.p99), pretty_time(p.max)});
  };
  add("first token (TTFT)", s.ttft);
  add("per token (TPOT)", s.tpot);
  add("between chunks (ITL)", s.itl);
  add("whole request (E2E)", s.e2el);
  return table.text();
}

// Shares of the values in bins that are equally wide in the logarithm.
Series histogram(const char* label, const std::vector<double>& values, double low, double high) {
  constexpr int kBins = 40;
  std::vector<double> shares(kBins);
  const double width = std::log(high / low) / kBins;
  for (const double value : values) {
    const int bin = int(std::log(std::max(value, low) / low) / width);
    shares[size_t(std::clamp(bin, 0, kBins - 1))] += 100. / double(values.size());
  }
  Series series{.label = label, .x = {}, .y = {}, .dashed = false};
  for (size_t b = 0; b < shares.size(); ++b) {  // the outline of the bars
    for (const size_t edge : {b, b + 1}) {
      series.x.push_back(low * std::exp(double(edge) * width));
      series.y.push_back(shares[b]);
    }
  }
  return series;
}

std::string latency_plot(const LoadRecord& record) {
  std::vector<double> ttft, tpot, e2e;  // ms
  for (const LoadRequest& request : record.requests) {
    if (!request.error.empty()) continue;
    ttft.push_back(1000 * request.ttft_s);
    e2e.push_back(1000 * request.latency_s);
    if (request.output_tokens > 1) tpot.push_back(1000 * request.tpot_s());
  }
  constexpr size_t kFewest = 10;  // fewer make no shape
  if (e2e.size() < kFewest) return "";
  constexpr double kLeast = 0.01;
  double low = *std::min_element(ttft.begin(), ttft.end());
  if (!tpot.empty()) low = std::min(low, *std::min_element(tpot.begin(), tpot.end()));
  low = std::max(kLeast, 0.9 * low);
  const double high = std::max(2 * low, 1.1 * *std::max_element(e2e.begin(), e2e.end()));
  Plot plot;
  plot.x = {.label = "ms", .log = true};
  plot.y = {.label = "% of requests", .log = false};
  plot.series.push_back(histogram("TTFT", ttft, low, high));
  if (!tpot.empty()) plot.series.push_back(histogram("TPOT", tpot, low, high));
  plot.series.push_back(histogram("E2E", e2e, low, high));
  return draw_text(plot, 72, 10);
}

std::string server_text(const ServerTotals& server) {
  Table table(
      {"server's steps", "count", "measured", "predicted", "measured / predicted", "of roof"});
  for (size_t p = 0; p < kLoadPhases.size(); ++p) {
    const StepTotals& t = server.phases[p];
    if (t.steps <= 0) continue;
    const double measured = t.measured_s / t.steps;
    const bool predicted = t.predicted_steps > 0 && t.predicted_s > 0;
    const double prediction = predicted ? t.predicted_s / t.predicted_steps : 0;
    table.add({std::string(kLoadPhases[p]), pretty_count(t.steps), pretty_time(measured),
               predicted ? pretty_time(prediction) : "-",
               predicted ? fmt::format("{:.2f}", measured / prediction) : "-",
               t.roof_steps > 0 ? pretty_percent(t.roof_s / t.roof_steps / measured) : "-"});
  }
  std::string text = table.text();
  if (server.gaps > 0) {
    text += fmt::format("host gap {} a step", pretty_time(server.gap_s / server.gaps));
    if (server.drafts > 0) {
      text += fmt::format(", {} of drafted tokens accepted",
                          pretty_percent(server.accepted / server.drafts));
    }
    if (server.preemptions > 0) text += fmt::format(", {} preemptions", server.preemptions);
    text += "\n";
  }
  return text;
}

}  // namespace

std::string load_text(const LoadRecord& record, const LoadSummary& s,
                      const std::optional<ServerTotals>& server) {
  std::string text = fmt::format(
      "{} completed, {} failed in {}: {} requests/s, {} output tok/s, {} with prompts\n",
      s.completed, s.failed > 0 ? paint(Colour::red, std::to_string(s.failed)) : "0",
      pretty_time(s.duration_s), pretty_number(s.per_second(s.completed)),
      pretty_number(s.per_second(double(s.output_tokens))),
      pretty_number(s.per_second(double(s.input_tokens + s.output_tokens))));
  if (s.completed > 0) {
    text += fmt::format("{} tokens in ({} cached), {} out; at most {} requests in flight\n",
                        s.input_tokens, s.cached_tokens, s.output_tokens, s.peak_in_flight);
  }
  if (s.has_targets) {
    text += fmt::format("goodput {} requests/s: {} of {} within the targets\n",
                        pretty_number(s.per_second(s.good)), s.good, s.completed);
  }
  constexpr double kLate = 0.05;
  if (s.latest_start_s > kLate) {
    text += fmt::format(
        "requests were sent up to {} after their arrival: --concurrency held them back, or this "
        "machine is busy\n",
        pretty_time(s.latest_start_s));
  }
  if (s.without_usage > 0) {
    text += fmt::format("{} answers had no usage: their tokens are counted by chunks\n",
                        s.without_usage);
  }
  if (s.completed > 0) text += "\n" + latency_table(s) + latency_plot(record);
  if (server) text += "\n" + server_text(*server);
  for (const auto& [kind, count] : s.errors) {
    const auto message = s.messages.find(kind);
    text += fmt::format("{} {} {}{}\n", paint(Colour::red, "failed:"), count, kind,
                        message == s.messages.end() ? "" : fmt::format(" ({})", message->second));
  }
  return text;
}

}  // namespace ridge
