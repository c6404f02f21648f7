// The collectives of a Communicator between GPUs, by NCCL.
#pragma once

#include <memory>
#include <string>

#include "ranks/communicator.h"

namespace ridge::cuda {

// Null, on every rank, where NCCL cannot (join_nccl.h), with the reason in `why`. Each rank's
// current device is its own, and stays so. Bytes may lie in host or device memory; they pass
// through a buffer of the device. Failures are told through `ranks`, which must outlive the result;
// so does rank() and size(). `first`: the number of rank 0 in messages.
//
// A send waits until the other rank receives. Sums of more than two ranks are added in NCCL's
// order, not in that of the ranks.
std::unique_ptr<Communicator> make_nccl_communicator(Communicator& ranks, std::string& why,
                                                     int first = 0);

}  // namespace ridge::cuda
