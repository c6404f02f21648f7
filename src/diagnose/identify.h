// Which model on which machine? From the options where they say so, else from the files; never
// guessed.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "diagnose/observations.h"
#include "predict/request.h"

namespace ridge {

struct Identified {
  std::optional<Request> request;    // none where the model or the machine is not known
  std::optional<System> system;      // known even where the model is not
  std::vector<std::string> taken;    // what came from the files: "model llama-3.1-8b (...)"
  std::vector<std::string> missing;  // what is not known, and the option that says it
  bool context_known = false;        // given, or computed from the lengths that were observed
};

// The parts of the options that are kAuto, or empty where that means "derive", are filled in.
// Throws Error for options that are wrong; names in files that nobody knows are only `missing`.
Identified identify(const RequestOptions& options, const Observations& seen,
                    Sources sources = Sources::names_and_files);

}  // namespace ridge
