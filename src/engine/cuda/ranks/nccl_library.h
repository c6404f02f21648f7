// NVIDIA's library of collectives between GPUs, loaded when it is first needed: libnccl.so.2. No
// header of it is needed to build.
#pragma once

#include <cstddef>
#include <string>

struct CUstream_st;
struct ncclComm;

namespace ridge::cuda {

using NcclComm = ncclComm*;
struct NcclId {
  char bytes[128];
};

class NcclLibrary {
 public:
  NcclLibrary();  // throws Error where there is none

  NcclId new_id() const;
  // All ranks, together. Throws Error where it refuses.
  NcclComm join(const NcclId& id, int rank, int ranks) const;
  void sum_floats(NcclComm comm, float* values, size_t count, CUstream_st* stream) const;
  std::string failure(NcclComm comm) const;  // empty: none
  void abort(NcclComm comm) const;

 private:
  using Result = int;  // 0: success
  void check(Result result, const char* what) const;

  Result (*get_id_)(NcclId*) = nullptr;
  Result (*init_)(NcclComm*, int, NcclId, int) = nullptr;
  Result (*all_reduce_)(const void*, void*, size_t, int, int, NcclComm, CUstream_st*) = nullptr;
  Result (*async_error_)(NcclComm, Result*) = nullptr;
  Result (*abort_)(NcclComm) = nullptr;
  const char* (*error_text_)(Result) = nullptr;
};

const NcclLibrary& nccl_library();  // loads it at the first call

}  // namespace ridge::cuda
