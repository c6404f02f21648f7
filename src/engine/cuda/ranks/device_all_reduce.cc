#ifdef RIDGE_HAS_CUDA

#include "engine/cuda/ranks/device_all_reduce.h"

#include <cuda_runtime.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <fstream>
#include <vector>

#include "base/error.h"
#include "cost/collective.h"
#include "engine/cuda/ranks/direct_all_reduce.cuh"
#include "engine/cuda/ranks/host_memory.h"
#include "engine/cuda/ranks/join_nccl.h"

namespace ridge::cuda {
namespace {

std::string host_identity() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  return boot;
}

// What a rank tells the others about its region.
struct RegionCard {
  char host[40];
  int process;
  cudaIpcMemHandle_t handle;
};

void check_call(cudaError_t status, const char* what) {
  if (status != cudaSuccess) throw Error("CUDA, {}: {}", what, take_error(status));
}

struct FreeDeviceMemory {
  void operator()(void* memory) const { cudaFree(memory); }
};
using DeviceMemory = std::unique_ptr<void, FreeDeviceMemory>;

DeviceMemory zeroed_device_memory(size_t bytes) {
  void* memory = nullptr;
  check_call(cudaMalloc(&memory, bytes), "allocating a region");
  DeviceMemory owner(memory);
  check_call(cudaMemset(memory, 0, bytes), "clearing a region");
  return owner;
}

class DirectAllReduce final : public DeviceAllReduce {
 public:
  // Throws Error where this rank cannot have a region.
  DirectAllReduce(Communicator& ranks, size_t max_count, Communicator::Deadline deadline, int first)
      : ranks_(ranks), first_(first), deadline_(deadline), stop_(1), missing_(1) {
    args_.rank = ranks.rank(), args_.ranks = ranks.size();
    args_.capacity = std::min<size_t>((max_count + 3) / 4 * 4, kMostFloats);
    // At least 2 MiB: an allocation of its own, which is what a handle names.
    region_ = zeroed_device_memory(
        std::max<size_t>(direct_region_bytes(args_.capacity), size_t{2} << 20));
    ended_ = zeroed_device_memory(sizeof(unsigned));
    args_.ended = static_cast<unsigned*>(ended_.get());
    check_call(cudaDeviceSynchronize(), "clearing a region");
    args_.stop = stop_.data(), args_.missing = missing_.data();
  }
  ~DirectAllReduce() override { close_regions(); }
  DirectAllReduce(const DirectAllReduce&) = delete;
  DirectAllReduce& operator=(const DirectAllReduce&) = delete;

  RegionCard card() const {
    RegionCard card = {};
    std::strncpy(card.host, host_identity().c_str(), sizeof card.host - 1);
    card.process = getpid();
    check_call(cudaIpcGetMemHandle(&card.handle, region_.get()), "sharing device memory");
    return card;
  }
  // Throws Error where this rank cannot open the others' regions.
  void open(const std::vector<RegionCard>& cards) {
    for (int rank = 0; rank < args_.ranks; ++rank) {
      const RegionCard& card = cards[size_t(rank)];
      if (rank == args_.rank) {
        args_.region[rank] = static_cast<uint8_t*>(region_.get());
        continue;
      }
      if (std::strcmp(card.host, cards[size_t(args_.rank)].host) != 0) {
        throw Error("rank {} is on another host", first_ + rank);
      }
      void* region = nullptr;
      check_call(cudaIpcOpenMemHandle(&region, card.handle, cudaIpcMemLazyEnablePeerAccess),
                 "opening another rank's memory");
      args_.region[rank] = static_cast<uint8_t*>(region);
    }
  }

  std::string name() const override { return "direct"; }
  void queue(CUstream_st* stream, float* values, size_t count) override {
    if (count % 4 != 0) throw Error("a sum of {} floats: a multiple of 4", count);
    args_.limit_ns = deadline_ == Communicator::kNoDeadline
                         ? UINT64_MAX
                         : uint64_t(deadline_.count()) * 1'000'000;
    while (count > 0) {
      DirectAllReduceArgs part = args_;
      part.values = values, part.count = std::min(count, args_.capacity);
      part.turn = ++args_.turn;
      part.two_shot = two_shot_is_faster(double(part.count) * sizeof(float));
      direct_all_reduce(stream, part);
      values += part.count, count -= part.count;
    }
  }
  std::string failure() const override {
    const int missing = *missing_.data();
    if (missing == 0) return {};
    return fmt::format("the sum of rank {} did not come within {:.1f} s", first_ + missing - 1,
                       double(deadline_.count()) / 1000);
  }
  void stop() override { *stop_.data() = 1; }
  // CUDA wants memory closed by those who opened it before its owner frees it.
  void leave() override {
    close_regions();
    const Communicator::Deadline usual = ranks_.deadline();
    ranks_.set_deadline(kLeaveDeadline);
    try {
      ranks_.barrier();
    } catch (const Error&) {  // a rank is gone, and uses no memory any more
    }
    ranks_.set_deadline(usual);
  }

 private:
  static constexpr size_t kMostFloats = size_t{4} << 20;
  static constexpr std::chrono::seconds kLeaveDeadline{10};

  void close_regions() {
    for (int rank = 0; rank < args_.ranks; ++rank) {
      uint8_t*& region = args_.region[rank];
      if (rank != args_.rank && region) cudaIpcCloseMemHandle(region);
      region = nullptr;
    }
  }

  // By the predictor's formulas, with NVLink's usual figures: a wait of 3 us, 360 GB/s.
  bool two_shot_is_faster(double bytes) const {
    constexpr double kWait = 3e-6, kSecondsPerByte = 1 / 360e9;
    const auto seconds = [&](const Traffic& traffic) {
      return traffic.steps * kWait + traffic.bytes * kSecondsPerByte;
    };
    return seconds(two_shot_traffic(bytes, args_.ranks)) <
           seconds(one_shot_traffic(bytes, args_.ranks));
  }

  Communicator& ranks_;
  int first_;  // the number of rank 0 in messages
  Communicator::Deadline deadline_;
  MappedInts stop_, missing_;
  DeviceMemory region_, ended_;
  DirectAllReduceArgs args_ = {};
};

class NcclAllReduce final : public DeviceAllReduce {
 public:
  NcclAllReduce(Communicator& ranks, NcclComm comm, Communicator::Deadline deadline)
      : comm_(comm), patience_{deadline, [&ranks] { return ranks.failure(); }} {}
  ~NcclAllReduce() override {
    if (comm_) library_.abort(comm_);
  }
  NcclAllReduce(const NcclAllReduce&) = delete;
  NcclAllReduce& operator=(const NcclAllReduce&) = delete;
  std::string name() const override { return "NCCL"; }
  void queue(CUstream_st* stream, float* values, size_t count) override {
    if (comm_) library_.sum_floats({comm_, stream, patience_}, values, values, count);
  }
  std::string failure() const override { return comm_ ? library_.failure(comm_) : std::string(); }
  void stop() override {
    if (comm_) library_.abort(comm_);
    comm_ = nullptr;
  }

 private:
  const NcclLibrary& library_ = nccl_library();
  NcclComm comm_;
  NcclPatience patience_;
};

class HostAllReduce final : public DeviceAllReduce {
 public:
  HostAllReduce(Communicator& ranks, size_t max_count) : ranks_(ranks), values_(max_count) {}
  std::string name() const override { return "host"; }
  void queue(CUstream_st* stream, float* values, size_t count) override {
    values_.copy_from(values, count, stream);
    ranks_.all_reduce({values_.data(), count});
    values_.copy_to(values, count, stream);
  }

 private:
  Communicator& ranks_;
  PinnedFloats values_;
};

}  // namespace

std::unique_ptr<DeviceAllReduce> make_direct_all_reduce(Communicator& ranks, size_t max_count,
                                                        Communicator::Deadline deadline,
                                                        std::string& why, int first) {
  if (ranks.size() > kMaxDirectRanks) {
    why = fmt::format("{} ranks: at most {}", ranks.size(), kMaxDirectRanks);
    return nullptr;
  }
  std::unique_ptr<DirectAllReduce> made;
  std::vector<RegionCard> cards(size_t(ranks.size()));
  RegionCard mine = {};
  std::string reason;
  try {
    made = std::make_unique<DirectAllReduce>(ranks, max_count, deadline, first);
    mine = made->card();
  } catch (const Error& error) {
    reason = error.what();
  }
  ranks.all_gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(cards)));
  if (!all_can(ranks, first, reason, why)) return nullptr;
  try {
    made->open(cards);
  } catch (const Error& error) {
    reason = error.what();
  }
  if (all_can(ranks, first, reason, why)) return made;
  made->leave();
  return nullptr;
}

std::unique_ptr<DeviceAllReduce> make_nccl_all_reduce(Communicator& ranks,
                                                      Communicator::Deadline deadline,
                                                      std::string& why, int first) {
  const NcclComm comm = join_nccl(ranks, deadline, first, why);
  if (comm == nullptr) return nullptr;
  return std::make_unique<NcclAllReduce>(ranks, comm, deadline);
}

std::unique_ptr<DeviceAllReduce> make_host_all_reduce(Communicator& ranks, size_t max_count) {
  return std::make_unique<HostAllReduce>(ranks, max_count);
}

std::unique_ptr<DeviceAllReduce> make_device_all_reduce(Communicator& ranks, size_t max_count,
                                                        Communicator::Deadline deadline, int first,
                                                        std::string& how) {
  std::string why;
  how = "direct sums";
  if (auto direct = make_direct_all_reduce(ranks, max_count, deadline, why, first)) return direct;
  how = "NCCL sums";
  if (auto nccl = make_nccl_all_reduce(ranks, deadline, why, first)) return nccl;
  how = fmt::format("sums through the host ({})", why);
  return make_host_all_reduce(ranks, max_count);
}

}  // namespace ridge::cuda

#endif
