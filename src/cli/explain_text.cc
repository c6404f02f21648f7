#include "cli/explain_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/text.h"
#include "base/units.h"
#include "cli/predict_text.h"

namespace ridge {
namespace {

void print_title(const char* title) { fmt::print("\n{}\n", paint(Colour::bold, title)); }

void print_verdict(const Diagnosis& d) {
  fmt::print("{}\n\n", paint(Colour::bold, d.sentence));
  const Colour colour = d.verdict == Verdict::unknown ? Colour::yellow
                        : d.healthy                   ? Colour::green
                                                      : Colour::red;
  fmt::print("verdict {}", paint(colour, verdict_name(d.verdict)));
  if (d.confidence > 0) fmt::print(", confidence {}", pretty_percent(d.confidence));
  if (d.wall) fmt::print(", wall {}", wall_name(*d.wall));
  if (d.next_wall) fmt::print(", next wall {}", wall_name(*d.next_wall));
  if (d.runner_up) {
    fmt::print("; else {} ({})", verdict_name(*d.runner_up),
               pretty_percent(d.runner_up_confidence));
  }
  fmt::print("\n");
}

void print_files(const Diagnosis& d) {
  bool first = true;
  for (const EvidenceFile& file : d.seen.evidence.files) {
    if (file.kind == "numbers as typed") continue;
    if (first) print_title("Files");
    first = false;
    fmt::print("  {}: {}{}\n", file.path, file.kind, file.window.empty() ? "" : ", " + file.window);
    for (const std::string& note : file.notes) fmt::print("    {}\n", note);
    if (!file.unknown.empty()) {
      fmt::print("    {} metrics of this engine are not known to Ridge\n", file.unknown.size());
    }
  }
  if (!d.taken.empty()) fmt::print("  from the files: {}\n", fmt::join(d.taken, ", "));
}

void print_observed(const Diagnosis& d) {
  Table table({"observed", "", "from", ""});
  for (const QuantityInfo& about : all_quantities()) {
    const Observed* from = d.seen.source[static_cast<size_t>(about.quantity)];
    if (!from || from->trust == Trust::stated) continue;
    table.add({about.name, pretty_quantity(about.quantity, from->value), from->origin,
               trust_name(from->trust)});
  }
  const std::string text = table.text();
  if (std::count(text.begin(), text.end(), '\n') > 2) fmt::print("\n{}", text);
}

// The step beside its roof and its expected time, as bars.
void print_step(const Diagnosis& d) {
  if (!d.run.expected) return;
  const Expected& e = *d.run.expected;
  const StepEstimate& step = d.run.predicted();
  const bool decode = d.run.phase == Phase::decode;
  const double longest = std::max(step.expected_s, d.run.compares() ? *d.run.step_s : 0);
  Table table({decode ? "step" : "prompt", "seconds", "", decode ? "tok/s" : "", "MBU", "MFU"});
  const auto row = [&](const std::string& name, double seconds) {
    const double tokens = e.request.batch * d.run.tokens_per_step / seconds;
    const double scale = step.expected_s / seconds;
    table.add({name, pretty_time(seconds), bar(seconds / longest, 24),
               decode ? pretty_number(tokens) : "", pretty_percent(step.mbu * scale),
               pretty_percent(step.mfu * scale)});
  };
  row("roof", step.roof_s);
  row(fmt::format("expected, {}", stack_words(e.request)), step.expected_s);
  if (d.run.step_s && !d.run.batch_predicted) {
    row(decode ? fmt::format("observed, batch {:.0f}", e.request.batch) : "observed",
        *d.run.step_s);
  }
  fmt::print("\n{} on {}{}\n{}", e.request.model->name, e.request.system.name(),
             decode ? fmt::format(", context {:.0f}", e.request.context)
                    : fmt::format(", prompt {:.0f}", e.request.prompt),
             table.text());
}

void print_profile(const Diagnosis& d) {
  if (!d.seen.profile) return;
  const KernelProfile& p = *d.seen.profile;
  fmt::print("\n{} in {:.0f} launches, {} on average{}\n", pretty_time(p.kernel_s), p.launches,
             pretty_time(p.launches > 0 ? p.kernel_s / p.launches : 0),
             p.graph_launches > 0 ? fmt::format("; {:.0f} CUDA graphs", p.graph_launches) : "");
  if (p.wall_s > 0 && p.busy_s > 0) {
    Table time({"time line", "", "share", ""});
    const double inside = p.wall_s - p.gap(GapCause::outside);
    const auto row = [&](const std::string& name, double seconds) {
      if (seconds <= 0) return;
      time.add({name, pretty_time(seconds), pretty_percent(seconds / inside),
                bar(seconds / inside, 24)});
    };
    row("kernels run", p.busy_s);
    if (p.exposed_collective_s > 0) row("  of it collectives alone", p.exposed_collective_s);
    for (const GapCause cause : {GapCause::launch, GapCause::synchronize, GapCause::host}) {
      row(fmt::format("gap: {}", gap_cause_name(cause)), p.gap(cause));
    }
    fmt::print("{}", time.text());
    if (p.gap(GapCause::outside) > 0) {
      fmt::print("(and {} of waiting for work that is not in the file)\n",
                 pretty_time(p.gap(GapCause::outside)));
    }
  }
  if (p.serialized) return;
  const bool expected = std::any_of(d.operators.begin(), d.operators.end(),
                                    [](const OperatorTime& row) { return row.expected_s > 0; });
  Table table({"operators", "time", "share", "", "launches", expected ? "expected" : ""});
  for (const OperatorTime& row : d.operators) {
    table.add({kernel_family_name(row.family), pretty_time(row.seconds),
               pretty_percent(row.seconds / p.kernel_s), bar(row.seconds / p.kernel_s, 24),
               fmt::format("{:.0f}", row.launches),
               row.expected_s > 0 ? pretty_time(row.expected_s) : ""});
  }
  fmt::print("\n{}", table.text());
}

void print_kernels(const Diagnosis& d) {
  if (!d.seen.profile || d.seen.profile->kernels.empty()) return;
  const bool counters = d.seen.profile->serialized;
  Table table(counters ? std::vector<std::string>{"kernel", "time", "DRAM", "memory", "SM"}
                       : std::vector<std::string>{"longest kernels", "time", "launches", "what"});
  const auto share = [](const std::optional<double>& value) {
    return value ? pretty_percent(*value) : std::string();
  };
  size_t shown = 0;
  for (const KernelTime& k : d.seen.profile->kernels) {
    if (++shown > 8) break;
    if (counters) {
      table.add({k.name.substr(0, 60), pretty_time(k.seconds),
                 k.dram_bytes ? pretty_bytes(*k.dram_bytes) : "",
                 share(k.memory_share ? k.memory_share : k.dram_share), share(k.compute_share)});
    } else {
      table.add({k.name.substr(0, 60), pretty_time(k.seconds), fmt::format("{:.0f}", k.launches),
                 kernel_family_name(k.family)});
    }
  }
  fmt::print("\n{}", table.text());
}

void print_findings(const Diagnosis& d) {
  const auto section = [&](Bearing bearing, const char* title, const char* mark) {
    bool first = true;
    for (const Finding& f : d.findings) {
      if (f.bearing != bearing) continue;
      if (first) print_title(title);
      first = false;
      fmt::print("  {} {}\n", mark, f.text);
    }
  };
  section(Bearing::supports, "Evidence for it", "+");
  section(Bearing::contradicts, "Against it, or other causes", "-");
  if (d.missing.empty()) return;
  print_title("Not observed; would decide it");
  for (const std::string& text : d.missing) fmt::print("  ? {}\n", text);
}

void print_levers(const Diagnosis& d, int most) {
  if (d.levers.empty() || most == 0) return;
  const bool predicted =
      std::any_of(d.levers.begin(), d.levers.end(), [](const Lever& l) { return l.predicted; });
  const bool settings = std::any_of(d.levers.begin(), d.levers.end(),
                                    [](const Lever& l) { return !l.setting.empty(); });
  std::vector<std::string> header{"lever"};
  if (settings) header.emplace_back("setting");
  if (predicted) {
    for (const char* name : {"tok/s per device", "per token", "TTFT", "next wall"}) {
      header.emplace_back(name);
    }
  }
  header.emplace_back("why");
  Table table(header);
  bool targeted = true;
  for (size_t i = 0; i < std::min(size_t(most), d.levers.size()); ++i) {
    const Lever& l = d.levers[i];
    if (targeted && !l.targeted && i > 0) table.rule();
    targeted = l.targeted;
    std::vector<std::string> row{l.name};
    if (settings) row.push_back(l.setting);
    if (predicted) {
      const auto times = [&](double v) {
        return l.predicted ? fmt::format("x{:.2f}", v) : std::string();
      };
      row.push_back(times(l.gain));
      row.push_back(l.predicted ? pretty_time(l.tpot_s) : "");
      row.push_back(times(l.ttft_gain));
      row.push_back(l.predicted ? std::string(wall_name(l.next_wall)) : "");
    }
    row.push_back(l.note);
    table.add(std::move(row));
  }
  print_title(predicted ? "Levers, by predicted gain" : "Levers");
  fmt::print("{}", table.text());
}

}  // namespace

void print_diagnosis(const Diagnosis& d, int most_levers) {
  print_verdict(d);
  print_step(d);
  print_profile(d);
  print_kernels(d);
  print_observed(d);
  print_findings(d);
  print_levers(d, most_levers);
  print_files(d);
}

}  // namespace ridge
