// What one rank of several exchanges with the others in the middle of a step (engine/ranks/).
#pragma once

#include <cstddef>
#include <string>

struct CUstream_st;

namespace ridge::cuda {

class RankExchange {
 public:
  virtual ~RankExchange() = default;
  // How the sums are made: "direct sums", "NCCL sums"; empty: there are none.
  virtual std::string how() const = 0;
  // Each of `count` floats of device memory becomes its sum over the ranks of the stage, in the
  // order of what the stream has queued.
  virtual void all_reduce(CUstream_st* stream, float* values, size_t count) = 0;
  // The residual from the stage before, and to the next one. Both wait for the stream.
  virtual void receive_residual(CUstream_st* stream, float* to, size_t count) = 0;
  virtual void send_residual(CUstream_st* stream, const float* from, size_t count) = 0;
  // Waits for the stream. Throws Error where another rank has failed or does not come.
  virtual void wait(CUstream_st* stream) = 0;
  // Ends what waits for other ranks: the results are void.
  virtual void stop() = 0;
};

}  // namespace ridge::cuda
