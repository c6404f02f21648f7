// The options of a diagnosis on the command line, and a diagnosis as a page that a person can act
// on.
#pragma once

#include <CLI/CLI.hpp>

#include "diagnose/explain_options.h"

namespace ridge {

// What a person sees; --batch is another option of `ridge report`.
void add_stated_options(CLI::App& command, StatedOptions& stated, bool with_batch);
// How files and live endpoints are read.
void add_explain_files(CLI::App& command, ExplainOptions& options);

void print_diagnosis(const Diagnosis& diagnosis, int most_levers);

}  // namespace ridge
