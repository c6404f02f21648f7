#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "cli/command.h"
#include "machine/atlas.h"
#include "machine/detect.h"
#include "measure/cpu/read_probe.h"

namespace ridge {
namespace {

constexpr const char* kAppFooter = R"(Examples:
  ridge                                          what this machine can do, on one screen
  ridge run "The memory of a computer"           generates text with the built-in model
  ridge predict -m llama-3-70b -M 8xh100-sxm -b 32 -c 4096 --weights fp8
  ridge explain -m llama-3-70b -M 8xh100-sxm --observed 280tok/s --batch 8
  ridge machine compare h100-sxm h200
Every command has --help with its own examples. All but serve and completion have --json.
Bad input prints one line and exits with code 2.)";

std::string version() {
  const std::string cuda = RIDGE_CUDA_TOOLKIT;
  return fmt::format("ridge {} ({})", RIDGE_VERSION,
                     cuda.empty() ? "built without CUDA" : "CUDA toolkit " + cuda);
}

// An option given as "" (an unset shell variable) is an error, not an option left out.
void check_values(const CLI::App& app) {
  for (const CLI::Option* option : app.get_options()) {
    const std::vector<std::string>& values = option->results();
    if (option->nonpositional() && std::ranges::find(values, "") != values.end()) {
      throw OptionError(option->get_name(), fmt::format("{} is empty", option->get_name()));
    }
  }
  for (const CLI::App* command : app.get_subcommands()) check_values(*command);
}

// The command among the words of a line that could not be read; "" where there is none. Throws
// OptionError where the first word is no command.
std::string named_command(const CLI::App& app, int argc, char** argv) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands({})) names.push_back(command->get_name());
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--atlas") ++i;
    if (word.starts_with('-')) continue;
    if (std::ranges::find(names, word) != names.end()) return word;
    const std::vector<std::string> near = nearest_names(word, names, 1);
    const std::string hint =
        near.empty() ? "ridge --help lists them" : fmt::format("did you mean {}?", near.front());
    throw OptionError(word, fmt::format("unknown command '{}'; {}", word, hint));
  }
  return "";
}

}  // namespace

int run_command_line(int argc, char** argv) {
  CLI::App app("Ridge measures, predicts, runs and explains the inference of language models.",
               "ridge");
  app.footer(kAppFooter);
  app.set_version_flag("--version", version());
  app.require_subcommand(0, 1);
  app.get_formatter()->column_width(34);

  Global global;
  app.add_flag("--json", global.json, "Machine-readable output");
  app.add_option("--atlas", global.atlas, "Folder of machine files that override the built-in ones")
      ->check(CLI::ExistingDirectory);
  app.fallthrough();
  add_run_command(app, global);
  add_pull_command(app, global);
  add_bench_command(app, global);
  add_perplexity_command(app, global);
  add_predict_command(app, global);
  add_explain_command(app, global);
  add_plan_command(app, global);
  add_machine_command(app, global);
  add_model_command(app, global);
  add_tiles_command(app, global);
  add_convert_command(app, global);
  add_validate_command(app, global);
  add_measure_command(app, global);
  add_serve_command(app, global);
  add_lab_command(app, global);
  add_load_command(app, global);
  add_report_command(app, global);
  add_tokenize_command(app, global);
  add_completion_command(app, global);
  // Options are known before any command runs.
  app.parse_complete_callback([&] {
    check_values(app);
    if (!global.atlas.empty()) set_atlas_folder(global.atlas);
  });
  set_cpu_probe(probe_cpu);

  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& success) {
    return app.exit(success);  // --help, --version
  } catch (const CLI::ParseError& error) {
    const std::string command = named_command(app, argc, argv);
    throw OptionError("", fmt::format("{} (see ridge{}{} --help)", error.what(),
                                      command.empty() ? "" : " ", command));
  }
  if (app.get_subcommands().empty()) print_tour(global);
  return global.exit_code;
}

}  // namespace ridge
