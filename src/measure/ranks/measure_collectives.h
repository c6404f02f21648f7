// How long each collective of a communicator takes, by the size of its message.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cost/collective.h"
#include "measure/reading.h"
#include "ranks/communicator.h"

namespace ridge {

struct CollectiveTime {
  Collective kind = Collective::none;
  double bytes = 0;  // of one rank's message before or after the exchange, as in Work
  double seconds = 0, low = 0, high = 0;  // median, 10th and 90th percentile
  int samples = 0;
  std::string doubt;
};

std::string_view collective_name(Collective kind);  // "all-reduce"

// What all ranks do together, again and again.
class TimedCalls {
 public:
  virtual ~TimedCalls() = default;
  virtual void run(int calls) = 0;
  virtual double messages(int calls) const { return calls; }  // that the time is divided by
};

// Calls of one collective with the same buffers.
class CollectiveCalls final : public TimedCalls {
 public:
  // `bytes` is rounded up to whole floats in every part.
  CollectiveCalls(Communicator& ranks, Collective kind, double bytes);
  double bytes() const { return bytes_; }
  // So many, one after the other, each of which depends on the one before. All ranks call it. A
  // send goes from each rank around the ring to itself: its calls are size() messages each. What a
  // call sends was written by the call before, as activations are (a reduce-scatter's to one other
  // rank): over MPI bytes that the receiver's cache still holds come up to eight times as fast.
  void run(int calls) override;
  double messages(int calls) const override;

 private:
  void once(int call);

  Communicator& ranks_;
  Collective kind_;
  double bytes_ = 0;
  std::vector<float> first_, second_;
  std::span<float> from_, to_;  // of these two, which take turns
};

struct CollectiveOptions {
  double seconds_each = 0.1;    // for one collective and one size, about
  bool oversubscribed = false;  // more ranks than cores: they always preempt each other
  std::vector<Collective> kinds;
  std::vector<double> sizes;
};
// All of them, from 4 B to 16 MiB by factors of four.
CollectiveOptions all_collectives();

// The time of one message of `calls`, of the slowest rank. All ranks call it, and get the same.
CollectiveTime measure_calls(Communicator& ranks, TimedCalls& calls,
                             const CollectiveOptions& options);

// All ranks call it with the same options, and get the same times: those of the slowest rank. A
// sample in which a rank was preempted is discarded and taken again, within the limit; so is a
// collective around which the link was not as fast as at the start. What stays so is in doubt, and
// so is what is left when three times the planned time is over.
std::vector<CollectiveTime> measure_collectives(Communicator& ranks,
                                                const CollectiveOptions& options,
                                                const StepProgress& progress);

// The link that explains the all-gathers of the smallest size and of 1 MiB, the collective that
// does nothing but move bytes in both directions. Over MPI, whose protocol changes with the size,
// all all-gathers and sends that are not in doubt are its points. Throws Error where the two are
// not among the times.
RankLink fit_link(LinkMethod method, int ranks, double local_per_byte,
                  const std::vector<CollectiveTime>& times);

// Seconds per byte of a copy within the memory of one rank, of a message that fits its L2 cache.
double local_copy_seconds_per_byte();

}  // namespace ridge
