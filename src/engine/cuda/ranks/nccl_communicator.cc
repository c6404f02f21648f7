#ifdef RIDGE_HAS_CUDA

#include "engine/cuda/ranks/nccl_communicator.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <deque>
#include <thread>

#include "base/error.h"
#include "engine/cuda/ranks/host_memory.h"
#include "engine/cuda/ranks/join_nccl.h"

namespace ridge::cuda {
namespace {

void check_nccl(cudaError_t status, const char* what) {
  if (status != cudaSuccess) throw Error("CUDA, {}: {}", what, take_error(status));
}

// Device memory that grows to what a call needs.
class StagingBuffer {
 public:
  StagingBuffer() = default;
  ~StagingBuffer() { cudaFree(data_); }
  StagingBuffer(const StagingBuffer&) = delete;
  StagingBuffer& operator=(const StagingBuffer&) = delete;

  void* data() const { return data_; }
  void* at_least(size_t bytes) {
    if (bytes <= bytes_) return data_;
    cudaFree(data_);
    data_ = nullptr, bytes_ = 0;
    check_nccl(cudaMalloc(&data_, bytes), "allocating a buffer for NCCL");
    bytes_ = bytes;
    return data_;
  }

 private:
  void* data_ = nullptr;
  size_t bytes_ = 0;
};

class NcclCommunicator final : public Communicator {
 public:
  NcclCommunicator(Communicator& ranks, NcclComm comm, int first)
      : ranks_(ranks), comm_(comm), first_(first) {
    set_deadline(ranks.deadline());
    check_nccl(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "making a stream");
  }
  ~NcclCommunicator() override {
    abort();
    if (stream_ != nullptr) cudaStreamDestroy(stream_);
  }
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;

  int rank() const override { return ranks_.rank(); }
  int size() const override { return ranks_.size(); }
  std::string name() const override { return "NCCL"; }

  // NCCL has none: a sum of one float from every rank.
  void barrier() override {
    float one = 1;
    all_reduce({&one, 1});
  }
  void broadcast(int root, std::span<std::byte> bytes) override {
    if (bytes.empty()) return;
    const void* from = rank() == root ? bytes.data() : nullptr;
    call("broadcast", {from, bytes.size()}, 0, bytes, [&](const NcclLibrary::On& on) {
      library_.broadcast(on, root, in_.data(), bytes.size());
    });
  }
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) override {
    if (mine.empty()) return;
    call("all-gather", {mine.data(), mine.size()}, all.size(), all, [&](const NcclLibrary::On& on) {
      library_.gather(on, in_.data(), out_.data(), mine.size());
    });
  }
  void all_to_all(std::span<const std::byte> from, std::span<std::byte> to) override {
    if (from.empty()) return;
    call("all-to-all", {from.data(), from.size()}, to.size(), to, [&](const NcclLibrary::On& on) {
      const size_t part = from.size() / size_t(size());
      library_.exchange(on, in_.data(), out_.data(), part, size());
    });
  }
  void send(int to, std::span<const std::byte> bytes) override {
    if (to == rank()) {
      own_messages_.emplace_back(bytes.begin(), bytes.end());
      return;
    }
    if (bytes.empty()) return;
    call("send", {bytes.data(), bytes.size()}, 0, {},
         [&](const NcclLibrary::On& on) { library_.send(on, to, in_.data(), bytes.size()); });
  }
  void receive(int from, std::span<std::byte> bytes) override {
    if (from == rank()) return receive_own(bytes);
    if (bytes.empty()) return;
    call("receive", {nullptr, bytes.size()}, 0, bytes,
         [&](const NcclLibrary::On& on) { library_.receive(on, from, in_.data(), bytes.size()); });
  }
  void all_reduce(std::span<float> values) override {
    if (values.empty()) return;
    call("all-reduce", {values.data(), values.size_bytes()}, 0, std::as_writable_bytes(values),
         [&](const NcclLibrary::On& on) {
           void* buffer = in_.data();
           library_.sum_floats(on, buffer, buffer, values.size());
         });
  }
  void reduce_scatter(std::span<const float> values, std::span<float> part) override {
    if (part.empty()) return;
    call("reduce-scatter", {values.data(), values.size_bytes()}, part.size_bytes(),
         std::as_writable_bytes(part), [&](const NcclLibrary::On& on) {
           library_.sum_and_scatter_floats(on, in_.data(), out_.data(), part.size());
         });
  }

  void fail(const std::string& message) override { ranks_.fail(message); }
  std::string failure() const override { return ranks_.failure(); }
  void close() override {
    ranks_.barrier();
    abort();  // nothing is queued
  }

 private:
  struct Input {
    const void* data;  // null: nothing is copied there
    size_t bytes;
  };

  // What every call does: the input to the device, NCCL's kernel, the result back. The result is in
  // the second buffer, or where that has no bytes in the first.
  template <typename Queue>
  void call(const char* what, const Input& input, size_t out_bytes, std::span<std::byte> result,
            const Queue& queue) {
    if (comm_ == nullptr) throw Error("{}", gone());
    void* in = in_.at_least(input.bytes);
    const void* out = out_bytes > 0 ? out_.at_least(out_bytes) : in;
    if (input.data != nullptr) {
      check_nccl(cudaMemcpyAsync(in, input.data, input.bytes, cudaMemcpyDefault, stream_),
                 "copying to the device");
    }
    const NcclPatience patience{deadline(), [this] { return ranks_.failure(); }};
    try {
      queue({comm_, stream_, patience});
      finish(what);
    } catch (const Error& error) {
      abort();
      if (ranks_.failure().empty()) {
        ranks_.fail(fmt::format("rank {}: {}", first_ + rank(), error.what()));
      }
      throw Error("{}", ranks_.failure());
    }
    if (result.empty()) return;
    check_nccl(cudaMemcpyAsync(result.data(), out, result.size(), cudaMemcpyDefault, stream_),
               "copying from the device");
    check_nccl(cudaStreamSynchronize(stream_), "copying from the device");
  }

  // Waits for the stream. NCCL's kernels have no deadline of their own.
  void finish(const char* what) {
    using Clock = std::chrono::steady_clock;
    const Clock::time_point start = Clock::now();
    Clock::time_point looked = start;
    for (;;) {
      const cudaError_t status = cudaStreamQuery(stream_);
      if (status == cudaSuccess) return;
      if (status != cudaErrorNotReady) check_nccl(status, what);
      std::this_thread::yield();
      const Clock::time_point now = Clock::now();
      if (now - looked < std::chrono::milliseconds(2)) continue;
      looked = now;
      if (const std::string why = ranks_.failure(); !why.empty()) throw Error("{}", why);
      if (const std::string why = library_.failure(comm_); !why.empty()) throw Error("{}", why);
      if (deadline() != kNoDeadline && now - start > deadline()) {
        throw Error("NCCL, {}: other ranks did not come within {:g} s", what,
                    std::chrono::duration<double>(deadline()).count());
      }
    }
  }

  void receive_own(std::span<std::byte> bytes) {
    if (own_messages_.empty()) throw Error("rank {} has sent itself no message", first_ + rank());
    const std::vector<std::byte>& message = own_messages_.front();
    std::copy_n(message.begin(), std::min(message.size(), bytes.size()), bytes.begin());
    own_messages_.pop_front();
  }

  std::string gone() const {
    const std::string why = ranks_.failure();
    return why.empty() ? "NCCL's communicator is closed" : why;
  }
  void abort() {
    if (comm_ != nullptr) library_.abort(comm_);
    comm_ = nullptr;
  }

  const NcclLibrary& library_ = nccl_library();
  Communicator& ranks_;
  NcclComm comm_;
  int first_;
  cudaStream_t stream_ = nullptr;
  StagingBuffer in_, out_;
  std::deque<std::vector<std::byte>> own_messages_;
};

}  // namespace

std::unique_ptr<Communicator> make_nccl_communicator(Communicator& ranks, std::string& why,
                                                     int first) {
  const NcclComm comm = join_nccl(ranks, ranks.deadline(), first, why);
  if (comm == nullptr) return nullptr;
  return std::make_unique<NcclCommunicator>(ranks, comm, first);
}

}  // namespace ridge::cuda

#endif
