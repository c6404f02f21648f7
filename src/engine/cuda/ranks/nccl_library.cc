#include "engine/cuda/ranks/nccl_library.h"

#include <dlfcn.h>

#include <thread>

#include "base/error.h"

namespace ridge::cuda {
namespace {

// Of NCCL's interface, which keeps them: ncclFloat32, ncclSum, ncclInProgress.
constexpr int kNcclFloat = 7, kNcclSum = 0, kNcclInProgress = 7;

// The configuration of NCCL 2.14, the first that has one. Later versions read as much of it as its
// size and version say, and take their defaults for the rest.
struct NcclConfig {
  size_t size = sizeof(NcclConfig);
  unsigned magic = 0xcafebeef;
  unsigned version = 21400;
  int blocking = 0;
};

}  // namespace

NcclLibrary::NcclLibrary() {
  void* library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) throw Error("NCCL is not installed (libnccl.so.2)");
  const auto load = [&](auto& function, const char* name) {
    void* found = dlsym(library, name);
    if (found == nullptr) throw Error("libnccl.so.2 has no {}: 2.14 or newer is needed", name);
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(found);
  };
  load(get_id_, "ncclGetUniqueId");
  load(init_, "ncclCommInitRankConfig");
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

// Until the call is no longer in progress. What it has queued may still run.
void NcclLibrary::settle(NcclComm comm, Result begun, const char* what,
                         const NcclPatience& patience) const {
  using Clock = std::chrono::steady_clock;
  check(begun, what);
  const Clock::time_point start = Clock::now();
  for (Result state = begun; state == kNcclInProgress;) {
    check(async_error_(comm, &state), what);
    check(state, what);
    if (state != kNcclInProgress) break;
    if (patience.deadline.count() > 0 && Clock::now() - start > patience.deadline) {
      throw Error("NCCL, {}: other ranks did not come within {:g} s", what,
                  std::chrono::duration<double>(patience.deadline).count());
    }
    if (patience.lost) {
      if (const std::string why = patience.lost(); !why.empty()) throw Error("{}", why);
    }
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
}

NcclId NcclLibrary::new_id() const {
  NcclId id = {};
  check(get_id_(&id), "making an id");
  return id;
}

NcclComm NcclLibrary::join(const NcclId& id, int rank, int ranks,
                           const NcclPatience& patience) const {
  NcclComm comm = nullptr;
  NcclConfig config;
  const Result begun = init_(&comm, ranks, id, rank, &config);
  try {
    settle(comm, begun, "joining", patience);
  } catch (const Error&) {
    if (comm != nullptr) abort_(comm);
    throw;
  }
  return comm;
}

void NcclLibrary::sum_floats(const On& on, const void* from, void* to, size_t count) const {
  settle(on.comm, all_reduce_(from, to, count, kNcclFloat, kNcclSum, on.comm, on.stream),
         "all-reduce", on.patience);
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
