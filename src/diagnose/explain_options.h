// What `ridge explain` is asked, and the way from there to a diagnosis. The command line, the
// report and the HTTP API all go through here.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "diagnose/diagnose.h"
#include "diagnose/readers/evidence_input.h"
#include "diagnose/stated.h"
#include "predict/request.h"

namespace ridge {

struct ExplainOptions {
  ExplainOptions() { request.model = request.machine = kAuto; }

  std::vector<std::string> files;             // paths, or a URL of a live endpoint
  std::vector<EvidenceInput> sent;            // files in memory, after `files`
  uint64_t most_unpacked_bytes = UINT64_MAX;  // of all files together; above: Error
  RequestOptions request;                     // model and machine kAuto: from the files
  StatedOptions stated;
  std::string window;  // between two snapshots
  std::string sample;  // how long a live endpoint is sampled
  std::function<bool(double)> tick;
};

// Throws Error.
Diagnosis explain(const ExplainOptions& options, Sources sources = Sources::names_and_files);

}  // namespace ridge
