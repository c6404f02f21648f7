// What the ranks of one model say to each other: collectives over floats and bytes.
//
// A rank is a process (in tests a thread) that holds part of a model. All ranks of a communicator
// call the same collectives in the same order. Every call has a deadline: a rank that does not come
// ends the call with an Error, on every rank, that says which one is missing or why it ended.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace ridge {

class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;  // 0 to size() - 1
  virtual int size() const = 0;
  virtual std::string name() const = 0;  // "shared memory", "MPI"

  virtual void barrier() = 0;
  // The bytes of `root` on every rank.
  virtual void broadcast(int root, std::span<std::byte> bytes) = 0;
  // Part r of `all` is rank r's `mine`; all have the same length.
  virtual void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) = 0;
  // Part r of `to` is the part of rank r's `from` that is meant for this rank; size() equal parts.
  virtual void all_to_all(std::span<const std::byte> from, std::span<std::byte> to) = 0;
  // Messages from one rank to another arrive in order. A send may return before it is received.
  virtual void send(int to, std::span<const std::byte> bytes) = 0;
  virtual void receive(int from, std::span<std::byte> bytes) = 0;
  // Every rank's sum over all ranks, added in the order of the ranks for each element: so the
  // result is the same on every rank, and that of an element does not depend on how many others
  // there are.
  virtual void all_reduce(std::span<float> values);
  // This rank's part of the sum; `values` are size() equal parts.
  virtual void reduce_scatter(std::span<const float> values, std::span<float> part);

  // Ends the calls of all ranks with this message, now and later.
  virtual void fail(const std::string& message) = 0;
  virtual std::string failure() const = 0;  // the message; empty: none

  // All ranks are done with it. Where a rank ends without, the others' calls end with an Error, or
  // their processes with it.
  virtual void close() {}

  // Of the calls that follow.
  using Deadline = std::chrono::milliseconds;
  static constexpr Deadline kNoDeadline{0};
  void set_deadline(Deadline deadline) { deadline_ = deadline; }
  Deadline deadline() const { return deadline_; }

 private:
  std::span<float> scratch(size_t floats);

  Deadline deadline_{120'000};
  std::vector<float> scratch_;
};

}  // namespace ridge
