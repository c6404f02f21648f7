// Starts the ranks of one model, and gives them the model.
//
// Two steps, because processes are forked while a program has one thread, and models are loaded
// later: start_ranks() at the beginning of a command, lead() when the model is there.
#pragma once

#include <functional>
#include <memory>

#include "engine/runner/runner.h"
#include "engine/weights/random_weights.h"
#include "ranks/rank_grid.h"

namespace ridge {

using MakeRunner = std::unique_ptr<Runner> (*)(Weights, const RunnerOptions&);

struct RankStart {
  MakeRunner make;  // make_cpu_runner or make_cuda_runner
  RankGrid grid;
  Communicator::Deadline deadline;
  std::function<LazyWeights()> load;  // the whole model, of which a rank touches only its part
};

// Where mpirun or Slurm started this process, the ranks are the processes that it started, and talk
// through MPI; throws Error where these are not grid.ranks(). Otherwise the others are forked from
// this process, which must have no other thread yet, and talk through shared memory.
//
// Returns on rank 0. The other ranks wait for lead(), load their part, follow, and never return:
// their process ends with the leader's runner. A rank that ends or is killed, or a call that takes
// longer than the deadline, ends the leader's call with an Error that says which and why.
std::shared_ptr<RankLinks> start_ranks(const RankStart& start);

// On rank 0: a runner of the whole model, by the same function as on the others. options.threads
// are those of each rank; 0: its share of the processors. Throws Error where the model cannot be
// cut, or another rank fails to load it.
std::unique_ptr<Runner> lead(std::shared_ptr<RankLinks> links, MakeRunner make, LazyWeights weights,
                             const RunnerOptions& options);

}  // namespace ridge
