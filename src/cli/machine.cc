// `ridge machine`: what can this hardware do?
#include <fmt/format.h>

#include "base/error.h"
#include "base/json.h"
#include "base/json_csv.h"
#include "base/text.h"
#include "base/units.h"
#include "cli/command.h"
#include "cli/machine_view.h"
#include "machine/atlas.h"
#include "machine/nvml.h"
#include "machine/summary.h"
#include "model/read.h"

namespace ridge {
namespace {

struct MachineCommandOptions {
  std::string name;
  std::string model = "llama-3-8b";
  bool history = false;
  MachineView view;
  std::string first, second;  // of compare
};

constexpr const char* kMachineFooter = R"(Examples:
  ridge machine                       every machine of the atlas, by year
  ridge machine h100-sxm              its memory pyramid, ridge points, links and sources
  ridge machine this                  the machine you are on
  ridge machine 8xh100-sxm            a node; 2x8xh100-sxm is two of them
  ridge machine h200 --model llama-3-70b
  ridge machine compare h100-sxm h200
  ridge machine --history --svg history.svg

A name may be written freely (H100, h100_sxm5), or be the path of a machine file. Files in
~/.config/ridge/machines (or --atlas DIR) replace the atlas number by number.

JSON: the list is an array of {name, title, kind, year, dtype, peak, capacity, bandwidth, ridge,
link, power}; one machine is {system, machine, ridge, fits}, where machine is in the format of a
machine file; docs/json.md has those of --history and compare. SI units throughout (operations/s,
bytes, bytes/s, seconds, W); null is unknown.)";

std::string link_text(const Machine& machine) {
  if (machine.links.empty()) return "-";
  const Link& link = machine.links.front();
  return fmt::format("{} {}", link.name, or_unknown(link.bandwidth, pretty_rate));
}

// GPUs that the driver shows, in one line each kind.
void print_found_gpus() {
  const std::vector<GpuFound> gpus = detect_gpus();
  for (size_t i = 0; i < gpus.size();) {
    size_t same = i;
    while (same < gpus.size() && gpus[same].name == gpus[i].name) ++same;
    const size_t count = same - i;
    fmt::print("here: {} x {} ({} each){}\n", count, gpus[i].name, pretty_bytes(gpus[i].memory),
               gpus[i].machine.empty()
                   ? ", not in the atlas"
                   : fmt::format(": ridge machine {}{}", count > 1 ? fmt::format("{}x", count) : "",
                                 gpus[i].machine));
    i = same;
  }
}

void run_machine(const MachineCommandOptions& options, const Global& global, bool named) {
  if (named && options.name.empty()) throw Error("the machine's name is empty");
  MachineView view = options.view;
  view.json = global.json;
  if (view.csv && (options.history || !options.name.empty())) {
    throw Error("--csv is for the list; `ridge machine --csv`, or --json here");
  }
  if (!view.svg.empty() && !options.history) {
    throw Error("--svg goes with --history: ridge machine --history --svg FILE");
  }
  if (options.history) {
    print_machine_history(all_machines(), view);
  } else if (options.name.empty()) {
    print_machine_list(all_machines(), view);
  } else {
    const System system = find_system(options.name);
    print_machine(system, find_model(options.model), view);
    if (system.device.name == "this" && !view.json) print_found_gpus();
  }
}

}  // namespace

void print_machine_list(const std::vector<Machine>& machines, const MachineView& view) {
  if (view.json || view.csv) {
    Json list = Json::array();
    for (const Machine& machine : machines) list.push_back(machine_summary(machine));
    fmt::print("{}", view.json ? list.dump(2) + "\n" : json_csv(list));
    return;
  }
  Table table({"name", "year", "peak", "in", "memory", "bandwidth", "FLOP/byte", "link", "power"});
  for (const Machine& machine : machines) {
    const std::optional<DType> dtype = headline_dtype(machine);
    const Level& memory = machine.memory();
    table.add({machine.name,
               or_unknown(machine.year, [](double year) { return fmt::format("{:.0f}", year); }),
               or_unknown(dtype ? machine.peak_of(*dtype) : std::nullopt, pretty_flop_rate),
               dtype ? std::string(dtype_name(*dtype)) : "?",
               or_unknown(memory.capacity, pretty_bytes),
               or_unknown(memory.read_bandwidth, pretty_rate),
               or_unknown(dtype ? machine.ridge(*dtype) : std::nullopt, pretty_number),
               link_text(machine),
               or_unknown(machine.power, [](double w) { return fmt::format("{:.0f} W", w); })});
  }
  fmt::print("{}\n{} machines; dense peaks; link bandwidth is one direction of one device.\n",
             table.text(), machines.size());
}

void add_machine_command(CLI::App& app, Global& global) {
  auto options = std::make_shared<MachineCommandOptions>();
  CLI::App* command =
      app.add_subcommand("machine", "What can this hardware do? Memory pyramid, peaks, ridge");
  command->fallthrough();
  command->footer(kMachineFooter);
  command->add_option("name", options->name, "Machine, node (8xh100-sxm), file, or \"this\"");
  command->add_option("--model", options->model, "Model whose parts are placed in the pyramid")
      ->capture_default_str();
  command->add_flag("--history", options->history, "Peak, bandwidth and ridge over the years");
  command->add_option("--svg", options->view.svg, "Write the picture of --history to this file");
  command->add_flag("--csv", options->view.csv,
                    "The list as comma-separated values, fields as in --json");

  CLI::App* compare = command->add_subcommand("compare", "Two machines side by side");
  compare->fallthrough();
  compare->add_option("first", options->first, "Machine or node")->required();
  compare->add_option("second", options->second, "Machine or node")->required();
  compare->footer("Example:\n  ridge machine compare h100-sxm h200");
  compare->callback([options, &global] {
    MachineView view;
    view.json = global.json;
    print_machine_comparison(find_system(options->first), find_system(options->second), view);
  });
  command->callback([options, command, &global] {
    if (command->get_subcommands().empty())
      run_machine(*options, global, command->count("name") > 0);
  });
}

}  // namespace ridge
