#include "measure/ranks/measure_collectives.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>

#include "base/error.h"
#include "base/units.h"
#include "ranks/local_copy.h"

namespace ridge {
namespace {

// Half a page between the offsets of source and target: see ranks/local_copy.h.
constexpr size_t kSkewFloats = 512;
constexpr double kFittedBytes = 1 << 20;
constexpr double kReferenceBytes = 64 << 10;
constexpr double kSameLink = 1.3;
constexpr int kWantedSamples = 9, kMostSamples = 40;

long rank_switches() {
  rusage usage{};
  getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_nivcsw;
}

// Of one sample: what the slowest rank needed, and whether any was preempted.
struct RankSample {
  double seconds = 0;
  bool preempted = false;
};

RankSample take_sample(Communicator& ranks, TimedCalls& calls, int count) {
  ranks.barrier();
  const long switches = rank_switches();
  const auto start = std::chrono::steady_clock::now();
  calls.run(count);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  const std::array<double, 2> mine{took.count(), rank_switches() != switches ? 1.0 : 0.0};
  std::vector<double> all(2 * size_t(ranks.size()));
  ranks.all_gather(std::as_bytes(std::span(mine)), std::as_writable_bytes(std::span(all)));
  RankSample slowest;
  for (size_t r = 0; r < all.size(); r += 2) {
    slowest.seconds = std::max(slowest.seconds, all[r]);
    slowest.preempted = slowest.preempted || all[r + 1] > 0;
  }
  slowest.seconds /= calls.messages(count);
  return slowest;
}

// How fast the link is now: a hypervisor that moves a processor to another die makes it several
// times as fast or slow. The ranks' times are comparable while this stays the same.
class LinkReference {
 public:
  explicit LinkReference(Communicator& ranks)
      : ranks_(ranks), calls_(ranks, Collective::all_reduce, kReferenceBytes) {
    take_sample(ranks_, calls_, 10);
    set();
  }
  void set() { seconds_ = now(); }
  bool holds() { return std::abs(std::log(now() / seconds_)) < std::log(kSameLink); }

 private:
  double now() {
    std::vector<double> seconds;
    for (int sample = 0; sample < 5; ++sample) {
      seconds.push_back(take_sample(ranks_, calls_, 10).seconds);
    }
    return median(seconds);
  }

  Communicator& ranks_;
  CollectiveCalls calls_;
  double seconds_ = 0;
};

// On a busy machine nearly everything is taken again: three times as long as planned, and no
// longer. What comes after that is taken once and quickly, and is in doubt. Rank 0's clock decides
// for all.
class MeasuringLimit {
 public:
  MeasuringLimit(Communicator& ranks, const CollectiveOptions& options)
      : ranks_(ranks),
        end_(Clock::now() +
             std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(
                 3 * options.seconds_each * double(options.kinds.size() * options.sizes.size())))) {
  }
  // All ranks call it.
  bool has_passed() {
    int passed = Clock::now() > end_ ? 1 : 0;
    ranks_.broadcast(0, std::as_writable_bytes(std::span(&passed, 1)));
    return passed != 0;
  }

 private:
  using Clock = std::chrono::steady_clock;
  Communicator& ranks_;
  Clock::time_point end_;
};

}  // namespace

// Every rank comes to the same numbers, so all take the same samples.
CollectiveTime measure_calls(Communicator& ranks, TimedCalls& calls,
                             const CollectiveOptions& options) {
  // The first calls touch the memory; then as many per sample as fill its time.
  take_sample(ranks, calls, 2);
  double each = take_sample(ranks, calls, 4).seconds;
  const double wanted = options.seconds_each / (kWantedSamples + 2);
  const auto count_for = [&] {
    return static_cast<int>(std::clamp(wanted / each / calls.messages(1), 1.0, 1e5));
  };
  each = std::min(each, take_sample(ranks, calls, count_for()).seconds);
  const int count = count_for();
  std::vector<double> clean, preempted;
  double spent = 0;
  const auto enough = [&] {
    const size_t taken = clean.size() + preempted.size();
    return clean.size() >= kWantedSamples || taken >= kMostSamples ||
           (taken >= 3 && spent > 2 * options.seconds_each);
  };
  while (!enough()) {
    const RankSample sample = take_sample(ranks, calls, count);
    spent += sample.seconds * calls.messages(count);
    const bool counts = options.oversubscribed || !sample.preempted;
    (counts ? clean : preempted).push_back(sample.seconds);
  }
  CollectiveTime time;
  if (clean.size() < 3) {
    time.doubt = "other processes preempted the ranks";
    clean.insert(clean.end(), preempted.begin(), preempted.end());
    std::sort(clean.begin(), clean.end());
    clean.resize((clean.size() + 1) / 2);  // they only ever add time
  }
  const Reading reading = summarize("", "", Dimension::time, std::move(clean), "");
  time.seconds = reading.value;
  time.low = reading.low;
  time.high = reading.high;
  time.samples = reading.samples;
  return time;
}

namespace {

CollectiveTime measure_one(Communicator& ranks, Collective kind, double bytes,
                           CollectiveOptions options, LinkReference& reference,
                           MeasuringLimit& limit) {
  CollectiveCalls calls(ranks, kind, bytes);
  CollectiveTime time;
  for (int attempt = 0; attempt < 3; ++attempt) {
    if (limit.has_passed()) {
      if (attempt > 0) break;
      options.seconds_each /= 5;
      time = measure_calls(ranks, calls, options);
      if (!options.oversubscribed) time.doubt = "the machine is too busy to measure it again";
      break;
    }
    const bool before = options.oversubscribed || reference.holds();
    time = measure_calls(ranks, calls, options);
    if (before && (options.oversubscribed || reference.holds())) break;
    if (time.doubt.empty()) time.doubt = "the link was not as fast as at the start";
  }
  time.kind = kind;
  time.bytes = calls.bytes();
  return time;
}

std::vector<CollectiveTime> measure_all(Communicator& ranks, const CollectiveOptions& options,
                                        const StepProgress& progress, LinkReference& reference,
                                        MeasuringLimit& limit) {
  std::vector<CollectiveTime> times;
  for (const Collective kind : options.kinds) {
    for (const double bytes : options.sizes) {
      if (progress) progress(fmt::format("{}, {}", collective_name(kind), pretty_binary(bytes)));
      times.push_back(measure_one(ranks, kind, bytes, options, reference, limit));
      if (kind == Collective::barrier) break;  // it has no message
    }
  }
  return times;
}

}  // namespace

std::string_view collective_name(Collective kind) {
  static constexpr std::string_view kNames[] = {"none",           "all-reduce", "all-gather",
                                                "reduce-scatter", "all-to-all", "send",
                                                "broadcast",      "barrier"};
  return kNames[static_cast<size_t>(kind)];
}

CollectiveCalls::CollectiveCalls(Communicator& ranks, Collective kind, double bytes)
    : ranks_(ranks), kind_(kind) {
  if (kind == Collective::barrier) return;
  const bool in_parts = kind == Collective::all_gather || kind == Collective::reduce_scatter ||
                        kind == Collective::all_to_all;
  const auto unit = static_cast<size_t>(in_parts ? ranks.size() : 1);
  const auto wanted = static_cast<size_t>(bytes) / sizeof(float);
  const size_t floats = std::max<size_t>(1, (wanted + unit - 1) / unit) * unit;
  bytes_ = double(floats * sizeof(float));
  // Zeros: sums that are added again and again stay in range.
  first_.assign(floats, 0.0f);
  second_.assign(kSkewFloats + floats, 0.0f);
  from_ = first_, to_ = std::span(second_).subspan(kSkewFloats);
}

void CollectiveCalls::run(int calls) {
  for (int call = 0; call < calls; ++call) once(call);
}

double CollectiveCalls::messages(int calls) const {
  return double(calls) * (kind_ == Collective::send ? ranks_.size() : 1);
}

void CollectiveCalls::once(int call) {
  // The part of the next rank: in the result of an all-gather or all-to-all it came from there, and
  // is sent on by the call that follows.
  const int next = (ranks_.rank() + 1) % ranks_.size();
  const auto part = [&](std::span<float> of) {
    const size_t count = of.size() / size_t(ranks_.size());
    return of.subspan(size_t(next) * count, count);
  };
  switch (kind_) {
    case Collective::all_reduce:
      return ranks_.all_reduce(from_);
    case Collective::all_gather:
      ranks_.all_gather(std::as_bytes(part(from_)), std::as_writable_bytes(to_));
      return std::swap(from_, to_);
    case Collective::reduce_scatter:
      ranks_.reduce_scatter(from_, part(to_));
      return std::swap(from_, to_);
    case Collective::all_to_all:
      ranks_.all_to_all(std::as_bytes(from_), std::as_writable_bytes(to_));
      return std::swap(from_, to_);
    case Collective::broadcast:
      // Another root each time: one that had nothing to wait for would run ahead of the others.
      return ranks_.broadcast(call % ranks_.size(), std::as_writable_bytes(from_));
    case Collective::barrier:
      return ranks_.barrier();
    case Collective::send: {
      const int rank = ranks_.rank(), size = ranks_.size();
      const int previous = (rank + size - 1) % size;
      if (rank == 0) ranks_.send(next, std::as_bytes(from_));
      ranks_.receive(previous, std::as_writable_bytes(from_));
      if (rank != 0) ranks_.send(next, std::as_bytes(from_));
      return;
    }
    case Collective::none:
      return;
  }
}

CollectiveOptions all_collectives() {
  CollectiveOptions options;
  options.kinds = {Collective::all_reduce, Collective::all_gather, Collective::reduce_scatter,
                   Collective::all_to_all, Collective::send,       Collective::broadcast,
                   Collective::barrier};
  for (double bytes = 4; bytes <= 16 << 20; bytes *= 4) options.sizes.push_back(bytes);
  return options;
}

std::vector<CollectiveTime> measure_collectives(Communicator& ranks,
                                                const CollectiveOptions& options,
                                                const StepProgress& progress) {
  MeasuringLimit limit(ranks, options);
  LinkReference reference(ranks);
  std::vector<CollectiveTime> times = measure_all(ranks, options, progress, reference, limit);
  const auto doubtful = std::count_if(times.begin(), times.end(),
                                      [](const auto& time) { return !time.doubt.empty(); });
  if (size_t(doubtful) > times.size() / 2 && !limit.has_passed()) {
    reference.set();  // what the link was at the start was no rule
    times = measure_all(ranks, options, progress, reference, limit);
  }
  return times;
}

namespace {

// What a step took by the bytes that a rank sent in it, without the copies within its own memory.
std::vector<LinkPoint> link_points(int ranks, double local_per_byte, Collective kind,
                                   const std::vector<CollectiveTime>& times) {
  std::vector<LinkPoint> points;
  for (const CollectiveTime& time : times) {
    if (time.kind != kind || !time.doubt.empty()) continue;
    const Traffic traffic = rank_traffic(LinkMethod::mpi, kind, time.bytes, ranks);
    const double seconds = time.seconds - traffic.local_bytes * local_per_byte;
    const LinkPoint point{traffic.bytes / traffic.steps, seconds / traffic.steps};
    // Two sizes that round to the same floats are one.
    const bool larger = points.empty() || point.bytes > points.back().bytes;
    if (larger && seconds > 0) points.push_back(point);
  }
  if (points.size() < 2) points.clear();
  return points;
}

}  // namespace

RankLink fit_link(LinkMethod method, int ranks, double local_per_byte,
                  const std::vector<CollectiveTime>& times) {
  const CollectiveTime* smallest = nullptr;
  const CollectiveTime* large = nullptr;
  for (const CollectiveTime& time : times) {
    if (time.kind != Collective::all_gather) continue;
    if (smallest == nullptr || time.bytes < smallest->bytes) smallest = &time;
    if (time.bytes >= kFittedBytes && (large == nullptr || time.bytes < large->bytes)) {
      large = &time;
    }
  }
  if (large == nullptr || smallest == large) throw Error("a link needs all-gathers of two sizes");
  const auto traffic = [&](const CollectiveTime& time) {
    return rank_traffic(method, Collective::all_gather, time.bytes, ranks);
  };
  RankLink link;
  link.latency = smallest->seconds / traffic(*smallest).steps;
  link.local_per_byte = local_per_byte;
  const double bytes_s = large->seconds - traffic(*large).steps * link.latency -
                         traffic(*large).local_bytes * local_per_byte;
  link.per_byte = std::max(bytes_s / traffic(*large).bytes, 1e-15);
  if (method == LinkMethod::mpi) {
    link.exchanges = link_points(ranks, local_per_byte, Collective::all_gather, times);
    link.messages = link_points(ranks, local_per_byte, Collective::send, times);
  }
  return link;
}

double local_copy_seconds_per_byte() {
  constexpr size_t kCopied = 128 << 10;
  const std::vector<std::byte> from(kCopied);
  std::vector<std::byte> to(kCopied);
  double best = 1;
  for (int sample = 0; sample < 5; ++sample) {
    constexpr int kCopies = 20;
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < kCopies; ++i) copy_locally(to.data(), from.data(), kCopied);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    best = std::min(best, took.count() / (double(kCopied) * kCopies));
  }
  return best;
}

}  // namespace ridge
