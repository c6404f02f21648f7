#include "engine/cuda/ranks/nccl_library.h"

#include <dlfcn.h>

#include <thread>

#include "base/error.h"

namespace ridge::cuda {
namespace {

// Of NCCL's interface, which keeps them: ncclInt8, ncclFloat32, ncclSum, ncclInProgress.
constexpr int kNcclByte = 0, kNcclFloat = 7, kNcclSum = 0, kNcclInProgress = 7;

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
  load(reduce_scatter_, "ncclReduceScatter");
  load(all_gather_, "ncclAllGather");
  load(broadcast_, "ncclBroadcast");
  load(send_, "ncclSend");
  load(receive_, "ncclRecv");
  load(group_start_, "ncclGroupStart");
  load(group_end_, "ncclGroupEnd");
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

void NcclLibrary::sum_and_scatter_floats(const On& on, const void* from, void* to,
                                         size_t part) const {
  settle(on.comm, reduce_scatter_(from, to, part, kNcclFloat, kNcclSum, on.comm, on.stream),
         "reduce-scatter", on.patience);
}

void NcclLibrary::gather(const On& on, const void* mine, void* all, size_t bytes) const {
  settle(on.comm, all_gather_(mine, all, bytes, kNcclByte, on.comm, on.stream), "all-gather",
         on.patience);
}

// NCCL has no all-to-all of its own: messages to and from all ranks, begun together.
void NcclLibrary::exchange(const On& on, const void* from, void* to, size_t bytes,
                           int ranks) const {
  check(group_start_(), "all-to-all");
  Result begun = 0;
  for (int rank = 0; rank < ranks && begun == 0; ++rank) {
    const size_t at = size_t(rank) * bytes;
    begun = send_(static_cast<const char*>(from) + at, bytes, kNcclByte, rank, on.comm, on.stream);
    if (begun != 0) break;
    begun = receive_(static_cast<char*>(to) + at, bytes, kNcclByte, rank, on.comm, on.stream);
  }
  const Result ended = group_end_();
  check(begun, "all-to-all");
  settle(on.comm, ended, "all-to-all", on.patience);
}

void NcclLibrary::broadcast(const On& on, int root, void* data, size_t bytes) const {
  settle(on.comm, broadcast_(data, data, bytes, kNcclByte, root, on.comm, on.stream), "broadcast",
         on.patience);
}

void NcclLibrary::send(const On& on, int to, const void* data, size_t bytes) const {
  settle(on.comm, send_(data, bytes, kNcclByte, to, on.comm, on.stream), "send", on.patience);
}

void NcclLibrary::receive(const On& on, int from, void* data, size_t bytes) const {
  settle(on.comm, receive_(data, bytes, kNcclByte, from, on.comm, on.stream), "receive",
         on.patience);
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
