#include "engine/cuda/ranks/nccl_library.h"

#include <dlfcn.h>

#include "base/error.h"

namespace ridge::cuda {
namespace {

// Of NCCL's interface, which keeps them: ncclFloat32, ncclSum, ncclInProgress.
constexpr int kNcclFloat = 7, kNcclSum = 0, kNcclInProgress = 7;

}  // namespace

NcclLibrary::NcclLibrary() {
  void* library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) throw Error("NCCL is not installed (libnccl.so.2)");
  const auto load = [&](auto& function, const char* name) {
    void* found = dlsym(library, name);
    if (found == nullptr) throw Error("libnccl.so.2 has no {}", name);
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(found);
  };
  load(get_id_, "ncclGetUniqueId");
  load(init_, "ncclCommInitRank");
  load(all_reduce_, "ncclAllReduce");
  load(async_error_, "ncclCommGetAsyncError");
  load(abort_, "ncclCommAbort");
  load(error_text_, "ncclGetErrorString");
}

void NcclLibrary::check(Result result, const char* what) const {
  if (result != 0 && result != kNcclInProgress) {
    throw Error("NCCL, {}: {}", what, error_text_(result));
  }
}

NcclId NcclLibrary::new_id() const {
  NcclId id = {};
  check(get_id_(&id), "making an id");
  return id;
}

NcclComm NcclLibrary::join(const NcclId& id, int rank, int ranks) const {
  NcclComm comm = nullptr;
  check(init_(&comm, ranks, id, rank), "joining");
  return comm;
}

void NcclLibrary::sum_floats(NcclComm comm, float* values, size_t count,
                             CUstream_st* stream) const {
  check(all_reduce_(values, values, count, kNcclFloat, kNcclSum, comm, stream), "summing");
}

std::string NcclLibrary::failure(NcclComm comm) const {
  Result result = 0;
  if (async_error_(comm, &result) != 0 || result == 0 || result == kNcclInProgress) return {};
  return std::string("NCCL: ") + error_text_(result);
}

void NcclLibrary::abort(NcclComm comm) const { abort_(comm); }

const NcclLibrary& nccl_library() {
  static const NcclLibrary library;
  return library;
}

}  // namespace ridge::cuda
