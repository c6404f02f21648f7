#ifdef RIDGE_HAS_CUDA

#include "engine/cuda/ranks/join_nccl.h"

#include <cuda_runtime.h>

#include <cstring>
#include <vector>

#include "base/error.h"

namespace ridge::cuda {

bool all_can(Communicator& ranks, int first, const std::string& reason, std::string& why) {
  struct Reason {
    char text[160];
  };
  Reason mine = {};
  std::strncpy(mine.text, reason.c_str(), sizeof mine.text - 1);
  std::vector<Reason> all(size_t(ranks.size()));
  ranks.all_gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)));
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].text[0] == 0) continue;
    why = fmt::format("rank {}: {}", size_t(first) + rank, all[rank].text);
    return false;
  }
  return true;
}

NcclComm join_nccl(Communicator& ranks, Communicator::Deadline deadline, int first,
                   std::string& why) {
  const NcclLibrary* library = nullptr;
  NcclId id = {};
  std::string reason;
  try {
    library = &nccl_library();
    if (ranks.rank() == 0) id = library->new_id();
  } catch (const Error& error) {
    reason = error.what();
  }
  if (!all_can(ranks, first, reason, why)) return nullptr;
  ranks.broadcast(0, std::as_writable_bytes(std::span(&id, 1)));
  NcclComm comm = nullptr;
  try {
    comm = library->join(id, ranks.rank(), ranks.size(),
                         {deadline, [&ranks] { return ranks.failure(); }});
  } catch (const Error& error) {
    reason = error.what();
    (void)cudaGetLastError();  // NCCL may leave one
  }
  if (all_can(ranks, first, reason, why)) return comm;
  if (comm != nullptr) library->abort(comm);
  return nullptr;
}

}  // namespace ridge::cuda

#endif
