// NVIDIA's library of collectives between GPUs, loaded when it is first needed: libnccl.so.2. No
// header of it is needed to build. Of its collectives the engine uses the all-reduce.
//
// A communicator of it is made non-blocking: a call may return before NCCL has connected the ranks
// or queued its kernels. So a rank that does not come can be waited for with a deadline.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <string>

struct CUstream_st;
struct ncclComm;

namespace ridge::cuda {

using NcclComm = ncclComm*;
struct NcclId {
  char bytes[128];
};

// The longest wait for other ranks, and why it would be in vain; empty: no reason is known.
struct NcclPatience {
  std::chrono::milliseconds deadline{0};  // 0: none
  std::function<std::string()> lost = {};
};

class NcclLibrary {
 public:
  NcclLibrary();  // throws Error where there is none

  NcclId new_id() const;
  // All ranks, together, each with its GPU current. Throws Error where NCCL refuses, and where not
  // all ranks have come within the deadline.
  NcclComm join(const NcclId& id, int rank, int ranks, const NcclPatience& patience) const;

  // Queues on the stream and waits until NCCL has done so. Both buffers are device memory. Throws
  // Error as join() does.
  struct On {
    NcclComm comm;
    CUstream_st* stream;
    const NcclPatience& patience;
  };
  void sum_floats(const On& on, const void* from, void* to, size_t count) const;

  std::string failure(NcclComm comm) const;  // empty: none
  void abort(NcclComm comm) const;           // what is queued ends, its results are void

 private:
  using Result = int;  // 0: success
  using Stream = CUstream_st*;
  void check(Result result, const char* what) const;
  void settle(NcclComm comm, Result begun, const char* what, const NcclPatience& patience) const;

  Result (*get_id_)(NcclId*) = nullptr;
  Result (*init_)(NcclComm*, int, NcclId, int, void*) = nullptr;
  Result (*all_reduce_)(const void*, void*, size_t, int, int, NcclComm, Stream) = nullptr;
  Result (*async_error_)(NcclComm, Result*) = nullptr;
  Result (*abort_)(NcclComm) = nullptr;
  const char* (*error_text_)(Result) = nullptr;
};

const NcclLibrary& nccl_library();  // loads it at the first call

}  // namespace ridge::cuda
