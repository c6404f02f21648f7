// `ridge measure`: runs the microbenchmarks, shows them, writes machine files, compares.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "cli/command.h"
#include "cli/measure_ranks.h"
#include "cli/measure_view.h"
#include "cli/progress_line.h"
#include "machine/atlas.h"
#include "measure/cpu/measure_cpu.h"
#include "measure/cuda/measure_cuda.h"

namespace ridge {
namespace {

struct MeasureOptions {
  std::string device = "all";
  int ranks = 1;
  bool quick = false, full = false;
  std::string out, svg, before, disk;
  double tolerance = 5;  // per cent

  Effort effort() const { return full ? Effort::full : Effort::quick; }
};

constexpr const char* kMeasureFooter = R"(Examples:
  ridge measure                              this CPU and every GPU, about 20 s per device
  ridge measure --device cpu --full          longer, closer steps
  ridge measure --device cuda:0 -o h200.json
  ridge measure --ranks 2                    collectives between two processes of this host
  mpirun -n 2 ridge measure --ranks 2        the same through MPI
  ridge measure --ranks 2 --device cuda      sums between two GPU ranks: direct, NCCL, host
  ridge measure --compare baseline.json --tolerance 3     exit 1 when a ceiling fell
The files go to ~/.config/ridge/machines and are used from then on: `ridge machine this`.)";

// "cpu", "cuda", "cuda:1", "all" -> -1 for the CPU, else the GPU's index.
std::vector<int> chosen_devices(const std::string& text) {
  if (text == "cpu") return {-1};
  const CudaDevices gpus = cuda_devices();
  const int count = static_cast<int>(gpus.names.size());
  if (text == "all") {
    std::vector<int> devices = {-1};
    for (int i = 0; i < count; ++i) devices.push_back(i);
    if (count == 0) fmt::print(stderr, "No GPU is measured: {}.\n", gpus.why_none);
    return devices;
  }
  const std::string rest = text == "cuda" ? "0" : text.substr(std::min<size_t>(5, text.size()));
  const bool number =
      !rest.empty() && rest.size() < 4 && rest.find_first_not_of("0123456789") == std::string::npos;
  if ((text != "cuda" && !text.starts_with("cuda:")) || !number) {
    throw Error("--device must be cpu, cuda:N or all, not \"{}\"", text);
  }
  const int index = std::stoi(rest);
  if (count == 0) throw Error("{}: no GPU can be measured: {}", text, gpus.why_none);
  if (index >= count)
    throw Error("{}: there are only {} GPUs, cuda:0 to cuda:{}", text, count, count - 1);
  return {index};
}

Report measure(int device, const MeasureOptions& options) {
  if (device < 0) {
    const ProgressLine line("the CPU");
    CpuOptions cpu;
    cpu.effort = options.effort();
    const char* temporary = std::getenv("TMPDIR");
    cpu.disk_folder = !options.disk.empty()     ? options.disk
                      : temporary && *temporary ? temporary
                                                : "/var/tmp";
    return measure_cpu(cpu, [&](const std::string& step) { line(step); });
  }
  const ProgressLine line(fmt::format("cuda:{}", device));
  Report report =
      measure_cuda(device, options.effort(), [&](const std::string& step) { line(step); });
  // A second card of the same kind gets a machine file of its own.
  if (device > 0) report.base.name += fmt::format("-cuda{}", device);
  return report;
}

nlohmann::json file_of(const Report& report, int device, Effort effort) {
  nlohmann::json file = report_to_json(report, measured_today(), effort);
  if (device <= 0) return file;
  nlohmann::json whole =
      machine_to_json(overlay(report.base, measured_machine(report, measured_today())));
  whole["measurement"] = file["measurement"];
  return whole;
}

int run_measure(const MeasureOptions& options, bool json) {
  if (options.ranks > 1) {
    const bool gpus = options.device == "cuda";
    if (!gpus && options.device != "cpu" && options.device != "all") {
      throw Error("--ranks with --device {}: cpu, or cuda for sums between GPUs", options.device);
    }
    (gpus ? run_measure_gpu_ranks : run_measure_ranks)(options.ranks, options.effort(), options.out,
                                                       json);
    return 0;
  }
  std::vector<Reading> before;
  bool before_cpu = false;
  if (!options.before.empty()) {
    const nlohmann::json file = read_json(options.before);
    before = readings_from_json(file, options.before);
    before_cpu = machine_from_json(file, options.before).kind == MachineKind::cpu;
    if (before.empty()) throw Error("{}: holds no readings to compare with", options.before);
  }
  const bool kept = options.before.empty() || !options.out.empty();
  if (!options.svg.empty()) check_writable(options.svg);
  if (kept) check_writable(options.out.empty() ? measured_file("this") : options.out);
  const std::vector<int> devices = chosen_devices(options.device);
  if (devices.size() > 1 && !options.out.empty()) {
    throw Error("-o FILE holds one device: choose it with --device cpu or --device cuda:N");
  }
  const auto comparable = [&](int device) { return (device < 0) == before_cpu; };
  if (!before.empty() && std::ranges::none_of(devices, comparable)) {
    throw Error("{}: describes a {}, and none is measured here", options.before,
                before_cpu ? "CPU" : "GPU");
  }
  nlohmann::json documents = nlohmann::json::array();
  bool fell = false, compared = false;
  for (const int device : devices) {
    const Report report = measure(device, options);
    const nlohmann::json file = file_of(report, device, options.effort());
    std::vector<Drift> drifts;
    if (comparable(device)) drifts = compare(before, report.readings, options.tolerance / 100);
    compared |= !drifts.empty();
    if (!json) print_report(report);
    std::fflush(stdout);  // before what goes to stderr
    documents.push_back(file);
    if (!before.empty()) documents.back()["measurement"]["drift"] = drift_json(drifts);
    // A comparison writes no file unless -o names one.
    if (kept) {
      const std::string path = options.out.empty() ? measured_file(report.base.name) : options.out;
      write_file(path, file.dump(2) + "\n");
      fmt::print(stderr, "Wrote {}\n", path);
    }
    if (!options.svg.empty()) {
      const std::string path = devices.size() == 1 || device < 0
                                   ? options.svg
                                   : fmt::format("{}.{}.svg", options.svg, report.base.name);
      write_file(path, report_svg(report));
      fmt::print(stderr, "Wrote {}\n", path);
    }
    for (const Drift& drift : drifts) fell |= drift.fell;
    if (!json && !drifts.empty()) print_drift(drifts, options.tolerance / 100);
  }
  if (json) fmt::print("{}\n", (documents.size() == 1 ? documents[0] : documents).dump(2));
  if (!before.empty() && !compared) {
    throw Error("{}: holds no reading of {}", options.before,
                devices.size() == 1 ? "this device" : "these devices");
  }
  return fell ? 1 : 0;
}

}  // namespace

void add_measure_command(CLI::App& app, Global& global) {
  auto options = std::make_shared<MeasureOptions>();
  CLI::App* command =
      app.add_subcommand("measure", "What this machine really does: measured pyramid and peaks");
  command->footer(kMeasureFooter);
  command->add_option("--device", options->device, "cpu, cuda:N or all")->capture_default_str();
  CLI::Option* quick =
      command->add_flag("--quick", options->quick, "Within 20 s per device (the default)");
  command->add_flag("--full", options->full, "Within 3 minutes per device")->excludes(quick);
  command->add_option("-o", options->out,
                      "Machine file to write (default: ~/.config/ridge/machines/NAME.json)");
  CLI::Option* svg =
      command->add_option("--svg", options->svg, "Draw the staircases and the roofline");
  CLI::Option* compare =
      command->add_option("--compare", options->before,
                          "Show the drift against an earlier file; exit 1 when a ceiling fell");
  command->add_option("--tolerance", options->tolerance, "Per cent a ceiling may fall")
      ->check(CLI::Range(0.0, 100.0))
      ->needs(compare)
      ->capture_default_str();
  CLI::Option* disk =
      command->add_option("--disk", options->disk, "Folder whose disk to read (default: $TMPDIR)");
  command
      ->add_option("--ranks", options->ranks,
                   "Measure the collectives between so many processes instead, about 10 s")
      ->check(CLI::Range(2, 64))
      ->excludes(svg)
      ->excludes(compare)
      ->excludes(disk);
  command->callback([options, &global] { global.exit_code = run_measure(*options, global.json); });
}

}  // namespace ridge
