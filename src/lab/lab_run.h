// Experiments that were run, with their verdicts.
#pragma once

#include <string>
#include <vector>

#include "lab/lab.h"

namespace ridge {

struct LabRun {
  const Experiment* experiment = nullptr;
  LabResult result;
  LabJudgement judgement;
  double seconds = 0;  // that it took
};

// Of a whole run: where, when, how disturbed, how well predictions and measurements agree.
struct LabReport {
  std::string device;    // "AMD EPYC, 2 cores" or the GPU's name
  std::string ceilings;  // what the predictions rest on
  std::string date;
  bool quick = false;
  std::vector<std::string> conditions;
  std::vector<LabRun> runs;
};

// Why an experiment does not run on a device; empty: it does.
std::string why_not_on(const Experiment& experiment, LabDevice device);

// Runs and judges one; one that does not run on this device says why. An Error of the experiment is
// its answer: the reason why it cannot run here. A clock that fell while it ran makes its points
// doubtful. Throws LabInterrupted.
LabRun run_experiment(Lab& lab, const Experiment& experiment);

// The sentence of the result, and why the verdict is open.
std::string lab_answer(const LabRun& run);

// Of today, with the lab's machine; no runs yet.
LabReport lab_report(const Lab& lab);
Agreement agreement_of(const LabReport& report);
double seconds_of(const LabReport& report);

}  // namespace ridge
