// How ranks come together before they use the same device memory or the same library.
#pragma once

#include <string>

#include "engine/cuda/ranks/nccl_library.h"
#include "ranks/communicator.h"

namespace ridge::cuda {

// Whether every rank can; all hear the first reason of one that cannot. Rank 0 is called `first`.
bool all_can(Communicator& ranks, int first, const std::string& reason, std::string& why);

// Null, on every rank, where the library is missing or refuses on one of them, as when two ranks
// share a device, or where they do not all come within `deadline`: with the reason in `why`.
// Otherwise to be aborted by its owner. NCCL's id travels through `ranks`.
NcclComm join_nccl(Communicator& ranks, Communicator::Deadline deadline, int first,
                   std::string& why);

}  // namespace ridge::cuda
