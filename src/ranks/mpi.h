// Ranks that mpirun or Slurm started, on one host or several, which talk through MPI.
//
// Open MPI's library is loaded when it is needed: Ridge builds and runs without it.
#pragma once

#include <memory>

#include "ranks/communicator.h"
#include "ranks/launcher.h"

namespace ridge {

// All processes of the run; once a program. close() waits for all and ends MPI. Throws Error where
// the library is missing.
std::unique_ptr<Communicator> make_mpi_world();

// Before rank 0 throws an Error that all ranks know: the others write nothing and end, at the
// latest when rank 0's end makes mpirun end them.
void end_unless_leader(const Communicator& world);

// Of the processes that give the same `group`, in the order of their ranks. All of `world` call it.
std::unique_ptr<Communicator> split_mpi(Communicator& world, int group);

}  // namespace ridge
