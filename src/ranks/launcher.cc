#include "ranks/launcher.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <initializer_list>
#include <optional>
#include <thread>

#include "base/error.h"
#include "ranks/rank_processes.h"

namespace ridge {
namespace {

std::optional<int> number(const char* variable) {
  const char* text = std::getenv(variable);
  return text == nullptr ? std::nullopt : std::optional(std::atoi(text));
}

// The first of `variables` that is set.
int first_number(std::initializer_list<const char*> variables, int otherwise) {
  for (const char* variable : variables) {
    if (const std::optional<int> found = number(variable)) return *found;
  }
  return otherwise;
}

bool has_pmix() { return number("OMPI_COMM_WORLD_SIZE") || number("PMIX_RANK"); }

}  // namespace

int mpi_processes() {
  if (const int processes = number("OMPI_COMM_WORLD_SIZE").value_or(0); processes > 0) {
    return processes;
  }
  return number("PMIX_RANK") ? std::max(1, number("SLURM_NTASKS").value_or(1)) : 1;
}

int mpi_rank() {
  return mpi_processes() > 1 ? first_number({"OMPI_COMM_WORLD_RANK", "PMIX_RANK"}, 0) : 0;
}

int tasks_without_pmix() {
  if (has_pmix()) return 1;
  return std::max({1, number("PMI_SIZE").value_or(1), number("SLURM_STEP_NUM_TASKS").value_or(1)});
}

int task_without_pmix() {
  return tasks_without_pmix() > 1 ? first_number({"PMI_RANK", "SLURM_PROCID"}, 0) : 0;
}

void refuse_tasks_without_pmix() {
  const int tasks = tasks_without_pmix();
  if (tasks == 1) return;
  if (task_without_pmix() > 0) end_with_leader();
  throw Error("started as one of {} tasks without PMIx: use srun --mpi=pmix, or Open MPI's mpirun",
              tasks);
}

void end_with_leader(std::chrono::milliseconds limit) {
  std::this_thread::sleep_for(limit);
  _exit(kFailedRankExitCode);
}

int rank_on_host(int rank) {
  if (mpi_processes() == 1) return rank;
  return first_number({"OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID"}, rank);
}

}  // namespace ridge
