// What the environment says about the program that started this process: Open MPI's mpirun, srun,
// another launcher of MPI programs, or a shell.
#pragma once

#include <chrono>

namespace ridge {

// How many processes mpirun, or srun with PMIx, started, of which this is one; 1: it was not so.
int mpi_processes();
// The number of this process among them; 0 where MPI did not start it.
int mpi_rank();

// How many tasks a launcher without PMIx started, of which this is one: srun without --mpi=pmix, or
// the mpirun of MPICH. Open MPI's library cannot connect such tasks. 1: it was not so.
int tasks_without_pmix();
// The number of this task among them.
int task_without_pmix();

// Before ranks are forked: throws Error on the first of several tasks without PMIx, each of which
// would fork ranks of its own. The other tasks end without a message.
void refuse_tasks_without_pmix();

// The launcher ends this process when the first one ends. Where it does not within the limit, this
// process ends, as one that failed. Then mpirun ends the first one, too: so the limit is longer
// than any machine takes until the first one has said why it ends, or has answered a server's
// requests.
inline constexpr std::chrono::seconds kUntilLeaderEnds{30};
[[noreturn]] void end_with_leader(std::chrono::milliseconds limit = kUntilLeaderEnds);

// The number of rank `rank` among the ranks of its host. Forked ranks are all on one host. What the
// environment says is true of ranks under MPI only: a batch job of Slurm sets SLURM_LOCALID too.
int rank_on_host(int rank);

}  // namespace ridge
