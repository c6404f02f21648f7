// Experiments that were run, with their verdicts.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lab/lab.h"

namespace ridge {

struct LabRun {
  const Experiment* experiment = nullptr;
  LabDevice device = LabDevice::cpu;
  LabResult result;
  LabJudgement judgement;
  double seconds = 0;                          // that it took
  double announced_bytes = 0, peak_bytes = 0;  // peak: growth of the process; 0: unknown
};

// Of a whole run: where, when, how disturbed, how well predictions and measurements agree.
struct LabReport {
  LabDevice backend = LabDevice::cpu;
  std::string device;    // "AMD EPYC, 2 cores" or the GPU's name
  std::string ceilings;  // what the predictions rest on
  std::string date;
  bool quick = false;
  bool interrupted = false;  // `runs` are those that ended before
  std::vector<std::string> conditions;
  std::vector<LabRun> runs;
};

// Why an experiment does not run on a device; empty: it does.
std::string why_not_on(const Experiment& experiment, LabDevice device);

std::string_view lab_device_name(LabDevice device);  // "cpu"
// "ridge lab decode --device cuda".
std::string lab_command(const Experiment& experiment, LabDevice device);

// Runs and judges one; one that does not run on this device, or has no room in its memory, says
// why. An Error of the experiment is its answer: the reason why it cannot run here. The rates of
// memory and cores are read before it, for its predictions, and after it: where one changed, it
// runs once more, and where it changed again, its points are doubtful. So are those of a GPU that
// others use. Throws LabInterrupted.
LabRun run_experiment(Lab& lab, const Experiment& experiment);

// The sentence of the result, and why the verdict is open.
std::string lab_answer(const LabRun& run);

// Of today, with the lab's machine; no runs yet. Without a lab: of one that was interrupted before
// it knew its machine.
LabReport lab_report(const Lab& lab);
LabReport lab_report(const LabOptions& options);
Agreement agreement_of(const LabReport& report);
double seconds_of(const LabReport& report);

}  // namespace ridge
