#include <fmt/format.h>

#include <algorithm>

#include "base/plot.h"
#include "base/text.h"
#include "base/units.h"
#include "cli/plan_text.h"

namespace ridge {
namespace {

std::string hourly_dollars(const std::optional<double>& value) {
  return value ? fmt::format("${:.2f}", *value) : "?";
}

std::string target_words(const LatencyTargets& t) {
  std::string words;
  const auto say = [&](const char* name, const std::optional<double>& target) {
    if (target) {
      words += fmt::format("{}{} {}", words.empty() ? "" : ", ", name, pretty_time(*target));
    }
  };
  say("TTFT", t.ttft_s);
  say("ITL", t.itl_s);
  say("E2E", t.e2e_s);
  return words;
}

std::string weights_words(const PlanOutcome& o) {
  return o.request.plan.weights ? o.request.plan.weights->name
                                : main_weight_format(*o.request.model).name;
}

std::string verdict_words(const PlanReport& report, const PlanOutcome& o) {
  if (&o == report.best()) return paint(Colour::green, "cheapest");
  return o.on_front ? paint(Colour::cyan, "faster") + ", " + o.reason : o.reason;
}

std::string replica_words(const PlanOutcome& o) {
  return layout_words(o.request.plan, 1) + (o.disaggregated ? ", disaggregated" : "");
}

// Whether all candidates have the same model and stack.
bool one_subject(const PlanReport& report) {
  const Request& first = report.outcomes.front().request;
  return std::all_of(report.outcomes.begin(), report.outcomes.end(), [&](const PlanOutcome& o) {
    return o.request.model->name == first.model->name && o.request.stack.name == first.stack.name;
  });
}

std::string candidate_words(const PlanReport& report, const PlanOutcome& o) {
  if (one_subject(report)) return replica_words(o);
  return fmt::format("{}, {}, {}", o.request.model->name, o.request.stack.name, replica_words(o));
}

Table outcome_table(const PlanTask& task, const PlanReport& report) {
  const std::string p = fmt::format("p{:g} ", 100 * task.targets.percentile);
  Table table({"machine", "replica", "weights", "needs", "$/h", p + "TTFT", p + "ITL", p + "E2E",
               "verdict"});
  for (const PlanOutcome& o : report.outcomes) {
    const bool ran = o.machines > 0;
    const auto time = [&](double seconds) { return ran ? pretty_time(seconds) : "-"; };
    table.add({o.request.system.name(), candidate_words(report, o), weights_words(o),
               o.meets ? fmt::format("{} x", o.machines) : "-",
               o.meets ? hourly_dollars(o.dollars_per_hour) : "-", time(o.service.ttft_tail.value),
               time(o.service.itl_tail.value), time(o.service.e2e_tail.value),
               verdict_words(report, o)});
  }
  return table;
}

std::string interval_words(const PercentileInterval& tail) {
  const std::string high = tail.high < 1e9 ? pretty_time(tail.high) : "?";
  return fmt::format("{} ({} - {})", pretty_time(tail.value), pretty_time(tail.low), high);
}

std::string best_text(const PlanTask& task, const PlanOutcome& best) {
  const ServiceSummary& s = best.service;
  std::string text = fmt::format(
      "\n{}: {} x {}, {} of {}, {}/h\n", paint(Colour::bold, "Cheapest"), best.machines,
      best.request.system.name(),
      best.replicas() == 1 ? "one replica" : fmt::format("{} replicas", best.replicas()),
      layout_words(best.request.plan, 1), hourly_dollars(best.dollars_per_hour));
  text += fmt::format(
      "p{:g} with 95 % confidence of {} requests: TTFT {}, ITL {}, E2E {}; {:.1f} % meet all "
      "targets\n",
      100 * task.targets.percentile, s.requests, interval_words(s.ttft_tail),
      interval_words(s.itl_tail), interval_words(s.e2e_tail), 100 * s.goodput);
  text += fmt::format("{} output tok/s, {} sequences on a busy replica, KV cache at most {} full",
                      pretty_number(s.output_tokens_per_s), pretty_number(best.load.mean_running),
                      pretty_percent(best.load.peak_kv_share));
  if (best.dollars_per_hour) {
    text += fmt::format(", ${:.2f} per million output tokens",
                        *best.dollars_per_hour / 3600 / s.output_tokens_per_s * 1e6);
  }
  if (const std::optional<double> watts = best.watts()) {
    text += fmt::format(", at most {:.1f} kW ({} J per token)", *watts / 1000,
                        pretty_number(*watts / s.output_tokens_per_s));
  }
  return text + "\n";
}

std::string change_text(const PlanOutcome& best, const PlanAnswer& answer) {
  Table table({"if", "needs", "$/h", "TTFT as it is", "ITL as it is"});
  for (const Sensitivity& change : answer.changes) {
    table.add({change.change, change.machines > 0 ? fmt::format("{} x", change.machines) : "more",
               change.machines > 0 ? hourly_dollars(change.dollars_per_hour) : "?",
               pretty_time(change.service.ttft_tail.value),
               pretty_time(change.service.itl_tail.value)});
  }
  std::string text = "\n" + table.text();
  // The best of each other machine.
  std::vector<std::string> named{best.request.system.name()};
  for (const PlanOutcome& other : answer.report.outcomes) {
    const std::string name = other.request.system.name();
    const std::optional<double> price = break_even_price(best, other);
    if (!other.meets || !price || std::find(named.begin(), named.end(), name) != named.end()) {
      continue;
    }
    named.push_back(name);
    text += fmt::format("{} would cost the same at ${:.2f} per device and hour\n", name, *price);
  }
  return text;
}

std::string curve_text(const std::vector<CapacityInterval>& curve) {
  Plot plot;
  plot.title = "Machines over time: needed by each interval, and started ahead";
  plot.x = {"hours", false, 0, 0};
  plot.y = {"machines", false, 0, 0};
  Series needed{"needed", {}, {}, false}, up{"up", {}, {}, true};
  double hours_needed = 0, hours_up = 0;
  int peak = 0;
  for (const CapacityInterval& interval : curve) {
    const double hours = (interval.end_s - interval.begin_s) / 3600;
    for (Series* series : {&needed, &up}) series->x.push_back(interval.begin_s / 3600);
    needed.y.push_back(interval.needed);
    up.y.push_back(interval.up);
    hours_needed += hours * interval.needed;
    hours_up += hours * interval.up;
    peak = std::max(peak, interval.up);
  }
  const double span = (curve.back().end_s - curve.front().begin_s) / 3600;
  plot.series = {needed, up};
  return "\n" + draw_text(plot, 78, 12) +
         fmt::format(
             "machine-hours: {:.1f} by need, {:.1f} with start-up, {:.1f} with the peak of {} all "
             "the time\n",
             hours_needed, hours_up, span * peak, peak);
}

}  // namespace

std::string plan_text(const PlanTask& task, const PlanAnswer& answer) {
  std::string text;
  if (one_subject(answer.report)) {
    const Request& first = answer.report.outcomes.front().request;
    const std::string& title = first.model->title;
    text =
        fmt::format("{} with {}: ", paint(Colour::bold, title.empty() ? first.model->name : title),
                    first.stack.name);
  }
  text += traffic_words(task.traffic) + "\n";
  if (task.clients > 0) text += fmt::format("{} clients, closed loop\n", task.clients);
  text +=
      fmt::format("targets at p{:g}: {}; with {:.0f} % more load too\n\n",
                  100 * task.targets.percentile, target_words(task.targets), 100 * task.headroom);
  text += outcome_table(task, answer.report).text();
  const PlanOutcome* best = answer.report.best();
  if (!best) return text + "\nNo candidate meets the targets.\n";
  text += best_text(task, *best);
  if (answer.breaks && answer.breaks->found) {
    text += fmt::format("Takes {:.2f} x the load; beyond, {} breaks first: {}\n",
                        answer.breaks->factor, answer.breaks->target, answer.breaks->wall);
  } else if (answer.breaks) {
    text += fmt::format("Takes {:.0f} x the load and more\n", answer.breaks->factor);
  }
  text += change_text(*best, answer);
  if (!answer.curve.empty()) text += curve_text(answer.curve);
  text += fmt::format("\nOn each replica: {}\n", launch_command(best->request, best->replica));
  return text;
}

Plot plan_front_plot(const PlanReport& report) {
  Plot plot;
  plot.title = "Cost against time to first token of the fleets that meet the targets";
  plot.x = {"$/h", true, 0, 0};
  plot.y = {"TTFT, s", true, 0, 0};
  for (const PlanOutcome& o : report.outcomes) {
    if (!o.meets || !o.dollars_per_hour) continue;
    plot.markers.push_back({fmt::format("{} x {}, {}", o.machines, o.request.system.name(),
                                        layout_words(o.request.plan, 1)),
                            *o.dollars_per_hour, o.service.ttft_tail.value, o.on_front ? 1. : 0.2});
  }
  return plot;
}

}  // namespace ridge
