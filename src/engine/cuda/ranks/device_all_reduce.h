// The sum over ranks of values in device memory, in three ways:
//   direct   own kernels, where the ranks reach each other's memory (direct_all_reduce.cuh)
//   NCCL     GPUs of several hosts, or without access to each other
//   host     copied to the host, added up there by a Communicator
// All ranks make the same one, together.
#pragma once

#include <memory>
#include <string>

#include "ranks/communicator.h"

struct CUstream_st;

namespace ridge::cuda {

class DeviceAllReduce {
 public:
  virtual ~DeviceAllReduce() = default;
  virtual std::string name() const = 0;
  // Each of `count` floats of device memory becomes its sum over the ranks. Direct and NCCL only
  // queue. Direct and host add in the order of the ranks, whatever the count; NCCL does not say.
  virtual void queue(CUstream_st* stream, float* values, size_t count) = 0;
  // Why queued sums will not come; empty: nothing is known to be wrong.
  virtual std::string failure() const { return {}; }
  // Ends the sums that wait for other ranks. Their results are void.
  virtual void stop() {}
  // All ranks, together, when their last sum has come and before they free this. Without it, as
  // after a failure, a rank may free memory that another still has open.
  virtual void leave() {}
};

// Null, on every rank, where one of them cannot: with the reason in `why`. `max_count`: of one sum;
// longer ones than the region holds are cut. `first`: the number of rank 0 in messages. `ranks`
// must outlive the result.
std::unique_ptr<DeviceAllReduce> make_direct_all_reduce(Communicator& ranks, size_t max_count,
                                                        Communicator::Deadline deadline,
                                                        std::string& why, int first = 0);
// Null where the library is missing or refuses: as when two ranks share a device. The deadline is
// that of joining, and of queueing a sum, which at first connects the ranks.
std::unique_ptr<DeviceAllReduce> make_nccl_all_reduce(Communicator& ranks,
                                                      Communicator::Deadline deadline,
                                                      std::string& why, int first = 0);
std::unique_ptr<DeviceAllReduce> make_host_all_reduce(Communicator& ranks, size_t max_count);

// The first of them that works. `deadline`: of each sum. `how` says which, and why it is the host:
// "direct sums", "NCCL sums", "sums through the host (rank 0: NCCL is not installed)".
std::unique_ptr<DeviceAllReduce> make_device_all_reduce(Communicator& ranks, size_t max_count,
                                                        Communicator::Deadline deadline, int first,
                                                        std::string& how);

}  // namespace ridge::cuda
