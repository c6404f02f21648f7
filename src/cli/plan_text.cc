#include "cli/plan_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/plot.h"
#include "base/text.h"
#include "base/units.h"
#include "plan/traffic.h"

namespace ridge {
namespace {

constexpr size_t kTimelinePoints = 120;

// Requests that run and that wait, over time.
Plot timeline_plot(std::span<const ServedRequest> requests) {
  double begin = INFINITY, end = 0;
  for (const ServedRequest& r : requests) {
    begin = std::min(begin, r.arrival_s);
    end = std::max(end, r.finish_s);
  }
  Plot plot;
  plot.title = "Requests over time";
  plot.x = {"seconds", false, begin, end};
  plot.y = {"requests", false, 0, 0};
  Series running{"running", {}, {}, false}, waiting{"waiting", {}, {}, true};
  // Counts of starts less ends, summed up to each point.
  std::vector<double> runs(kTimelinePoints + 1), waits(kTimelinePoints + 1);
  const double width = std::max(end - begin, 1e-9) / double(kTimelinePoints);
  const auto at = [&](double time) {
    return std::min(size_t(std::ceil((time - begin) / width)), kTimelinePoints);
  };
  for (const ServedRequest& r : requests) {
    if (!r.served) continue;
    waits[at(r.arrival_s)] += 1;
    waits[at(r.scheduled_s)] -= 1;
    runs[at(r.scheduled_s)] += 1;
    runs[at(r.finish_s)] -= 1;
  }
  double run = 0, wait = 0;
  for (size_t i = 0; i <= kTimelinePoints; ++i) {
    run += runs[i];
    wait += waits[i];
    for (Series* series : {&running, &waiting}) series->x.push_back(begin + width * double(i));
    running.y.push_back(run);
    waiting.y.push_back(wait);
  }
  plot.series = {running, waiting};
  return plot;
}

std::vector<std::string> latency_row(const char* name, const Percentiles& p,
                                     const std::optional<double>& target) {
  return {name,
          pretty_time(p.mean),
          pretty_time(p.p50),
          pretty_time(p.p90),
          pretty_time(p.p99),
          pretty_time(p.max),
          target ? pretty_time(*target) : "-"};
}

}  // namespace

std::string layout_words(const Plan& plan, int replicas) {
  std::string words;
  const auto say = [&](const char* name, int degree) {
    if (degree > 1) words += fmt::format("{}{} {}", words.empty() ? "" : ", ", name, degree);
  };
  say("tp", plan.tp);
  say("pp", plan.pp);
  say("ep", plan.ep);
  if (words.empty()) words = "one device";
  if (replicas > 1) words += fmt::format(", {} replicas", replicas);
  return words;
}

std::string simulation_text(const Request& request, const Replica& replica, const Trace& traffic,
                            const FleetRun& run, const ServiceSummary& s,
                            const LatencyTargets& targets) {
  const Model& model = *request.model;
  std::string text =
      fmt::format("{} on {} ({}), stack {}\n",
                  paint(Colour::bold, model.title.empty() ? model.name : model.title),
                  paint(Colour::bold, request.system.name()),
                  layout_words(request.plan, request.plan.dp), request.stack.name);
  text += fmt::format("{}\n", traffic_words(traffic));
  text +=
      fmt::format("{} tokens a step, {} sequences, {} KV blocks of {} tokens, prefix cache {}\n\n",
                  replica.policy.max_tokens, replica.policy.max_sequences, replica.pages,
                  replica.policy.page_tokens, replica.policy.prefix_cache ? "on" : "off");
  std::vector<std::string> header{"", "mean", "p50", "p90", "p99", "max", "target"};
  if (!targets.any()) header.pop_back();
  Table table(header);
  const auto add = [&](const char* name, const Percentiles& p,
                       const std::optional<double>& target) {
    std::vector<std::string> row = latency_row(name, p, target);
    row.resize(header.size());
    table.add(std::move(row));
  };
  add("TTFT", s.ttft, targets.ttft_s);
  add("ITL", s.itl, targets.itl_s);
  add("E2E", s.e2e, targets.e2e_s);
  text += table.text();
  text += fmt::format("\n{} requests/s, {} output tok/s, {} prompt tok/s ({} of them cached)\n",
                      pretty_number(s.requests_per_s), pretty_number(s.output_tokens_per_s),
                      pretty_number(s.prompt_tokens_per_s), pretty_percent(s.cached_share));
  const SimulationSummary& t = run.total;
  text += fmt::format(
      "{} steps of {} on average, {} sequences running on average, KV cache at most {} full, {} "
      "preemptions\n",
      t.steps, pretty_time(t.steps > 0 ? t.busy_s / double(t.steps) : 0),
      pretty_number(t.mean_running), pretty_percent(t.peak_kv_share), t.preemptions);
  if (s.refused > 0) {
    text += paint(Colour::red,
                  fmt::format("{} requests refused: longer than the KV cache\n", s.refused));
  }
  if (targets.any()) {
    text +=
        fmt::format("goodput: {} of the requests meet all targets\n", pretty_percent(s.goodput));
  }
  return text + "\n" + draw_text(timeline_plot(run.requests), 78, 12);
}

}  // namespace ridge
