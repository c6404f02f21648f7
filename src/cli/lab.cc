// ridge lab: each claim of the field as an experiment: predicted, measured here, compared.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <optional>
#include <span>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "base/units.h"
#include "cli/command.h"
#include "cli/interrupt.h"
#include "lab/lab_figure.h"
#include "lab/lab_json.h"
#include "lab/lab_memory.h"
#include "lab/lab_results.h"

namespace ridge {
namespace {

constexpr const char* kLabExamples = R"(Examples:
  ridge lab                          the experiments, by question
  ridge lab attention                one of them, with a plot
  ridge lab attention roofline --quick
  ridge lab all -o lab.html          everything, as one page
Each point's band is fixed and shown before it is measured; points outside it are marked.)";

struct LabCommandOptions {
  std::vector<std::string> names;
  std::string device = "cpu", file;
  bool quick = false;
  int threads = 0;
};

LabDevice lab_device(const LabCommandOptions& o) {
  return o.device == "cuda" ? LabDevice::cuda : LabDevice::cpu;
}

void print_list(const LabCommandOptions& o, const Global& global) {
  const LabDevice device = lab_device(o);
  if (global.json) {
    Json list = Json::array();
    for (const Experiment& e : experiments()) list.push_back(to_json(e, device));
    fmt::print("{}\n", list.dump(2));
    return;
  }
  static constexpr const char* kTopics[] = {"The machine", "The model", "Kernels", "Formats",
                                            "Serving"};
  int topic = -1;
  for (const Experiment& e : experiments()) {
    if (int(e.topic) != topic) {
      topic = int(e.topic);
      fmt::print("{}{}\n", topic ? "\n" : "", paint(Colour::bold, kTopics[topic]));
    }
    const bool runs = why_not_on(e, device).empty();
    fmt::print("  {:<22}{:>8}  {}\n", e.name,
               runs ? pretty_bytes(announced_bytes(e, device, o.quick)) : "-", e.question);
  }
  double seconds = 0;
  for (const Experiment& e : experiments()) seconds += e.seconds;
  fmt::print(
      "\nThe second column is the memory that an experiment holds at most{}.\n"
      "ridge lab NAME runs one, ridge lab all -o lab.html all of them (about {}).\n",
      device == LabDevice::cuda ? " on the device" : ", the probe of the ceilings included",
      pretty_time(seconds));
}

void print_run(const LabRun& run) {
  const Experiment& e = *run.experiment;
  const LabResult& r = run.result;
  const LabVerdict verdict = run.judgement.verdict;
  const Colour colour = verdict == LabVerdict::confirmed ? Colour::green
                        : verdict == LabVerdict::refuted ? Colour::red
                                                         : Colour::yellow;
  fmt::print("{}\n{}\n\n", paint(Colour::bold, e.question), e.claim);
  const std::string figure = lab_text_figure(e, r);
  if (!figure.empty()) fmt::print("{}\n", figure);
  Table table({r.x.label, "series", "predicted", "measured", "error", "", ""});
  for (const LabSeries& series : r.series) {
    for (const LabPoint& p : series.points) {
      table.add({p.label.empty() ? pretty_number(p.x) : p.label, series.name,
                 p.predicted() ? fmt::format("{} ({} - {})", pretty_number(p.band.expected),
                                             pretty_number(p.band.low), pretty_number(p.band.high))
                               : "",
                 pretty_number(p.measured), p.predicted() ? pretty_percent(p.error()) : "",
                 !p.predicted() ? ""
                 : p.doubtful() ? "doubtful"
                 : p.inside()   ? "inside"
                                : "OUTSIDE",
                 p.doubt});
    }
  }
  fmt::print("{}\n", table.text());
  for (const LabCheck& check : r.checks) {
    fmt::print("{}: {}\n", check.what, check.holds ? "holds" : paint(Colour::red, "does not hold"));
  }
  for (const std::string& note : r.notes) fmt::print("{}\n", note);
  const Agreement agreement = agreement_of({&r, 1});
  if (agreement.points + agreement.left_out > 0) fmt::print("{}\n", agreement_text(agreement));
  fmt::print("\n{}: {}\nNext: {}\n", paint(colour, lab_verdict_name(verdict)), lab_answer(run),
             e.next);
}

// All of them means those, too, that only say why they cannot run.
std::vector<const Experiment*> chosen(const LabCommandOptions& o) {
  std::vector<const Experiment*> list;
  for (const std::string& name : o.names) {
    if (name == "all") {
      for (const Experiment& e : experiments()) list.push_back(&e);
      continue;
    }
    const Experiment& e = find_experiment(name);
    const std::string why = why_not_on(e, lab_device(o));
    if (!why.empty()) throw Error("{} does not run on {}: {}", name, o.device, why);
    list.push_back(&e);
  }
  return list;
}

// On a terminal one line that is overwritten. Elsewhere predictions alone, each on its line before
// its point is measured, so that a log shows that they came first.
class LabProgress {
 public:
  explicit LabProgress(LabOptions& options) {
    if (shown_) {
      options.progress = [this](const std::string& step) {
        fmt::print(stderr, "\r\033[K{}: {}", current, step);
        std::fflush(stderr);
      };
    }
    options.announce = [this](const std::string& prediction) {
      fmt::print(stderr, "{}{}: {}{}", shown_ ? "\r\033[K" : "", current, prediction,
                 shown_ ? "" : "\n");
      std::fflush(stderr);
    };
  }
  ~LabProgress() {
    if (shown_) fmt::print(stderr, "\r\033[K");
  }
  LabProgress(const LabProgress&) = delete;
  LabProgress& operator=(const LabProgress&) = delete;

  std::string current = "lab";  // the experiment that runs

 private:
  const bool shown_ = isatty(STDERR_FILENO) != 0;
};

LabOptions lab_options(const LabCommandOptions& o, std::span<const Experiment* const> list,
                       const std::atomic<bool>& stop) {
  LabOptions options;
  options.device = lab_device(o);
  options.quick = o.quick;
  options.threads = o.threads;
  options.ceilings = std::ranges::any_of(list, [](const Experiment* e) { return e->ceilings; });
  options.interrupted = &stop;
  return options;
}

// What ended before an interrupt is in the report.
LabReport run_all(const LabOptions& options, std::span<const Experiment* const> list,
                  LabProgress& progress) {
  LabReport report = lab_report(options);
  std::optional<Lab> lab;
  try {
    lab.emplace(options);
    report = lab_report(*lab);
    for (const Experiment* experiment : list) {
      progress.current = experiment->name;
      report.runs.push_back(run_experiment(*lab, *experiment));
    }
  } catch (const LabInterrupted&) {
    report.interrupted = true;
  }
  if (lab) report.conditions = lab->conditions();
  return report;
}

void print_report(const LabReport& report) {
  Table table({"experiment", "verdict", "inside", "s", ""});
  for (const LabRun& run : report.runs) {
    const Agreement a = agreement_of({&run.result, 1});
    std::string inside = a.points > 0 ? fmt::format("{}/{}", a.inside, a.points) : "";
    if (a.left_out > 0)
      inside += fmt::format("{}{} doubtful", inside.empty() ? "" : ", ", a.left_out);
    table.add({run.experiment->name, std::string(lab_verdict_name(run.judgement.verdict)), inside,
               fmt::format("{:.1f}", run.seconds), lab_answer(run)});
  }
  fmt::print("{}\n{}\n", table.text(), agreement_text(agreement_of(report)));
}

void run_lab(const LabCommandOptions& o, Global& global) {
  const InterruptScope interrupt;
  const std::vector<const Experiment*> list = chosen(o);
  if (!o.file.empty()) check_writable(o.file);
  LabOptions options = lab_options(o, list, interrupt.flag());
  LabReport report;
  {
    LabProgress progress(options);
    report = run_all(options, list, progress);
  }
  if (report.interrupted) global.exit_code = kInterruptedExitCode;
  // A page of nothing would replace the one before.
  const bool writes = !o.file.empty() && !(report.interrupted && report.runs.empty());
  if (writes) write_file(o.file, lab_html(report));
  const bool all = std::find(o.names.begin(), o.names.end(), "all") != o.names.end();
  if (all && !o.quick && !report.interrupted) keep_results(to_json(report));
  if (global.json) {
    fmt::print("{}\n", to_json(report).dump(2));
    return;
  }
  if (list.size() <= 3) {
    for (const LabRun& run : report.runs) print_run(run);
  } else {
    print_report(report);
  }
  fmt::print("{}; {} in all\n", report.ceilings, pretty_time(seconds_of(report)));
  for (const std::string& line : report.conditions) fmt::print("disturbed: {}\n", line);
  if (report.interrupted) {
    fmt::print("interrupted: {} of {} experiments ended\n", report.runs.size(), list.size());
  }
  if (writes) fmt::print("wrote {}\n", o.file);
}

}  // namespace

void add_lab_command(CLI::App& app, Global& global) {
  auto o = std::make_shared<LabCommandOptions>();
  CLI::App* command = app.add_subcommand(
      "lab", "Claims of the field as experiments: predicted, measured here, compared");
  command->add_option("names", o->names, "Experiments, or all; none: list them");
  command->add_option("--device", o->device, "Where to run: cpu or cuda")
      ->check(CLI::IsMember({"cpu", "cuda"}))
      ->capture_default_str();
  command->add_option("-o,--file", o->file, "Write one standalone page");
  command->add_flag("--quick", o->quick, "Fewer points and repeats");
  command->add_option("--threads", o->threads, "CPU threads (default: one per core)")
      ->check(CLI::Range(1, 1024));
  command->footer(kLabExamples);
  command->callback([o, &global] {
    if (o->names.empty()) {
      if (!o->file.empty()) throw Error("--file needs experiments: ridge lab all -o {}", o->file);
      return print_list(*o, global);
    }
    run_lab(*o, global);
  });
}

}  // namespace ridge
