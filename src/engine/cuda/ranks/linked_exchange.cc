#ifdef RIDGE_HAS_CUDA

#include "engine/cuda/ranks/linked_exchange.h"

#include <cuda_runtime.h>

#include <chrono>
#include <string>
#include <thread>
#include <utility>

#include "base/error.h"
#include "engine/cuda/ranks/device_all_reduce.h"
#include "engine/cuda/ranks/host_memory.h"
#include "ranks/launcher.h"

namespace ridge::cuda {
namespace {

class LinkedExchange final : public RankExchange {
 public:
  LinkedExchange(std::shared_ptr<RankLinks> links, size_t max_count)
      : links_(std::move(links)), rows_(links_->grid.pp > 1 ? max_count : 1) {
    if (links_->grid.tp == 1) return;
    // Others may still load their part.
    const Communicator::Deadline usual = links_->peers->deadline();
    links_->peers->set_deadline(Communicator::kNoDeadline);
    sums_ =
        make_device_all_reduce(*links_->peers, max_count, usual, links_->first_of_stage(), how_);
    links_->peers->set_deadline(usual);
  }
  ~LinkedExchange() override {
    if (sums_ && links_->ending) sums_->leave();
  }
  LinkedExchange(const LinkedExchange&) = delete;
  LinkedExchange& operator=(const LinkedExchange&) = delete;

  std::string how() const override { return how_; }

  void all_reduce(CUstream_st* stream, float* values, size_t count) override {
    sums_->queue(stream, values, count);
  }
  void receive_residual(CUstream_st* stream, float* to, size_t count) override {
    links_->world->receive(links_->previous(),
                           std::as_writable_bytes(std::span(rows_.data(), count)));
    wait(stream);  // for the micro-batch before, which may wait for other ranks
    rows_.copy_to(to, count, stream);
  }
  void send_residual(CUstream_st* stream, const float* from, size_t count) override {
    wait(stream);
    rows_.copy_from(from, count, stream);
    links_->world->send(links_->next(), std::as_bytes(std::span(rows_.data(), count)));
  }
  void wait(CUstream_st* stream) override {
    constexpr std::chrono::milliseconds kBetweenLooks{2};
    const Clock::time_point start = Clock::now();
    Clock::time_point looked = start;
    cudaError_t status = cudaErrorNotReady;
    while ((status = cudaStreamQuery(stream)) == cudaErrorNotReady) {
      std::this_thread::yield();
      const Clock::time_point now = Clock::now();
      if (now - looked < kBetweenLooks) continue;
      looked = now;
      if (const std::string why = why_lost(now - start); !why.empty()) fail(stream, why);
    }
    if (sums_) {
      if (const std::string why = sums_->failure(); !why.empty()) fail(stream, why);
    }
    if (status != cudaSuccess) throw Error("CUDA, running a step: {}", cudaGetErrorString(status));
  }
  void stop() override {
    if (sums_) sums_->stop();
  }

 private:
  using Clock = std::chrono::steady_clock;

  // Why the stream cannot be waited for any longer; empty: it can. The stream may stand in a sum
  // whose other ranks do not come, so nothing but this look notices.
  std::string why_lost(Clock::duration waited) const {
    if (std::string why = links_->world->failure(); !why.empty()) return why;
    if (links_->lost) {
      if (std::string why = links_->lost(); !why.empty()) return why;
    }
    if (!sums_) return {};
    if (std::string why = sums_->failure(); !why.empty()) return why;
    // Twice the deadline: direct sums have a deadline of their own, which may begin later and says
    // which rank is missing. NCCL's have none.
    const Communicator::Deadline deadline = links_->peers->deadline();
    if (deadline == Communicator::kNoDeadline || waited < 2 * deadline) return {};
    const int first = links_->first_of_stage();
    return fmt::format("rank {} waited {:g} s for a step with the sums of ranks {} to {}",
                       links_->rank(), std::chrono::duration<double>(2 * deadline).count(), first,
                       first + links_->grid.tp - 1);
  }
  [[noreturn]] void fail(CUstream_st* stream, const std::string& why) {
    stop();
    links_->world->fail(why);
    cudaStreamSynchronize(stream);
    throw Error("{}", why);
  }

  std::shared_ptr<RankLinks> links_;
  PinnedFloats rows_;
  std::unique_ptr<DeviceAllReduce> sums_;
  std::string how_;
};

}  // namespace

bool on_several_gpus(const RankLinks& links) {
  int devices = 0;
  const cudaError_t found = cudaGetDeviceCount(&devices);
  return links.hosts.size() > 1 || (found == cudaSuccess && devices > 1);
}

void use_device_of(int rank) {
  int devices = 0;
  const cudaError_t found = cudaGetDeviceCount(&devices);
  if (found != cudaSuccess) throw Error("no CUDA device: {}", cudaGetErrorString(found));
  if (devices == 0) throw Error("no CUDA device is there");
  const cudaError_t set = cudaSetDevice(rank_on_host(rank) % devices);
  if (set != cudaSuccess) throw Error("CUDA, taking a device: {}", cudaGetErrorString(set));
}

std::unique_ptr<RankExchange> make_exchange(std::shared_ptr<RankLinks> links, size_t max_count) {
  return std::make_unique<LinkedExchange>(std::move(links), max_count);
}

}  // namespace ridge::cuda

#endif
