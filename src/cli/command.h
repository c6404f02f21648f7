// Each command adds itself to the application; its callback does the work and prints.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace ridge {

// Options every command shares.
struct Global {
  bool json = false;
  std::string atlas;
  int exit_code = 0;  // 1: a check failed, such as a comparison
};

void add_machine_command(CLI::App& app, Global& global);
void add_model_command(CLI::App& app, Global& global);
void add_predict_command(CLI::App& app, Global& global);
void add_explain_command(CLI::App& app, Global& global);
void add_plan_command(CLI::App& app, Global& global);
void add_tiles_command(CLI::App& app, Global& global);
void add_convert_command(CLI::App& app, Global& global);
void add_validate_command(CLI::App& app, Global& global);
void add_measure_command(CLI::App& app, Global& global);
void add_run_command(CLI::App& app, Global& global);
void add_pull_command(CLI::App& app, Global& global);
void add_bench_command(CLI::App& app, Global& global);
void add_perplexity_command(CLI::App& app, Global& global);
void add_serve_command(CLI::App& app, Global& global);
void add_lab_command(CLI::App& app, Global& global);
void add_load_command(CLI::App& app, Global& global);
void add_report_command(CLI::App& app, Global& global);
void add_tokenize_command(CLI::App& app, Global& global);
void add_completion_command(CLI::App& app, Global& global);

// Prints one screen about this machine: the output of `ridge` and `./run` without arguments.
void print_tour(const Global& global);

// Parses and runs. Throws Error for what a user can correct; returns the exit code otherwise.
int run_command_line(int argc, char** argv);

}  // namespace ridge
