#include "cost/collective.h"

#include <algorithm>
#include <cmath>

namespace ridge {

Work collective_work(Collective kind, double message_bytes, int ranks, int stride) {
  Work work;
  work.collective = kind;
  work.message_bytes = message_bytes;
  work.ranks = ranks;
  work.stride = stride;
  // The buffer leaves and enters device memory once; reductions on the way stay on chip.
  work.act_bytes = 2 * message_bytes;
  return work;
}

Traffic ring_traffic(Collective kind, double m, int ranks) {
  const double n = ranks;
  const double share = (n - 1) / n;
  switch (kind) {
    case Collective::all_reduce:
      return {2 * share * m, 2 * (n - 1)};
    case Collective::all_gather:
    case Collective::reduce_scatter:
      return {share * m, n - 1};
    case Collective::all_to_all:
      return {share * m, 1};  // direct sends, all pairs at once
    case Collective::send:
      return {m, 1};
    case Collective::broadcast:
      return {m, n - 1};  // pieces follow each other around the ring
    case Collective::barrier:
      return {0, n - 1};
    case Collective::none:
      break;
  }
  return {};
}

Traffic tree_traffic(double m, int ranks) {
  return {2 * m, 2 * std::ceil(std::log2(static_cast<double>(ranks)))};
}

Traffic one_shot_traffic(double m, int ranks) { return {(ranks - 1) * m, 1}; }

Traffic two_shot_traffic(double m, int ranks) {
  return {ring_traffic(Collective::all_reduce, m, ranks).bytes, 2};
}

// A barrier takes about as long as copying 16 KiB: below, the second one costs more than it saves.
// Two ranks copy as much either way.
bool all_reduce_is_one_shot(double m, int ranks) { return ranks == 2 || m <= 16384; }

Traffic shared_memory_traffic(Collective kind, double m, int ranks) {
  const double n = ranks, part = m / n, others = m - part;
  switch (kind) {
    case Collective::all_reduce: {
      // Half of what is written and read: writing takes as long as reading. Each addition reads a
      // rank's own sum and writes it.
      const double read = (n - 1) * m, parts_read = (n - 1) * part;
      return all_reduce_is_one_shot(m, ranks)
                 ? Traffic{(m + read) / 2, 1, read}
                 : Traffic{(m + parts_read + part + others) / 2, 2, parts_read};
    }
    case Collective::all_gather:
      return {(part + others) / 2, 1, part};
    case Collective::reduce_scatter:
    case Collective::all_to_all:
      return {others, 1, part};
    case Collective::send:
    case Collective::broadcast:
      return {m, 1};
    case Collective::barrier:
      return {0, 1};
    case Collective::none:
      break;
  }
  return {};
}

Traffic mpi_traffic(Collective kind, double m, int ranks) {
  const double n = ranks, part = m / n, others = m - part;
  const double rounds = std::ceil(std::log2(n));
  switch (kind) {
    case Collective::all_reduce:
      // An all-gather, or an all-to-all and an all-gather, and the additions: each reads a rank's
      // own sum and what came, and writes the sum.
      return all_reduce_is_one_shot(m, ranks) ? Traffic{(n - 1) * m, 1, m + n * m}
                                              : Traffic{2 * others, 2, 2 * m + m + 2 * m};
    case Collective::all_gather:
    case Collective::all_to_all:
      return {others, 1, part};
    case Collective::reduce_scatter:
      return {others, 1, part + m};
    case Collective::send:
      return {m, 1};
    case Collective::broadcast:  // a binomial tree
      return {rounds * m, rounds};
    case Collective::barrier:  // dissemination
      return {0, rounds};
    case Collective::none:
      break;
  }
  return {};
}

LinkMethod link_method(std::string_view link) {
  for (const LinkMethod method : {LinkMethod::shared_memory, LinkMethod::mpi}) {
    if (link == link_name(method)) return method;
  }
  return LinkMethod::kernels;
}

std::string_view link_name(LinkMethod method) {
  static constexpr std::string_view kNames[] = {"kernels", "shared-memory", "MPI"};
  return kNames[static_cast<size_t>(method)];
}

Traffic rank_traffic(LinkMethod method, Collective kind, double m, int ranks) {
  return method == LinkMethod::mpi ? mpi_traffic(kind, m, ranks)
                                   : shared_memory_traffic(kind, m, ranks);
}

namespace {

// Between two sizes straight in logarithms; beyond the largest at its rate.
double seconds_at(const std::vector<LinkPoint>& points, double bytes) {
  if (bytes <= points.front().bytes) return points.front().seconds;
  const LinkPoint& last = points.back();
  if (bytes >= last.bytes) return last.seconds * bytes / last.bytes;
  const auto above = std::find_if(points.begin(), points.end(),
                                  [&](const LinkPoint& point) { return point.bytes > bytes; });
  const LinkPoint &low = above[-1], &high = above[0];
  const double share = std::log(bytes / low.bytes) / std::log(high.bytes / low.bytes);
  return low.seconds * std::pow(high.seconds / low.seconds, share);
}

}  // namespace

double collective_seconds(LinkMethod method, Collective kind, double m, int ranks,
                          const RankLink& link) {
  if (ranks <= 1 || kind == Collective::none) return 0;
  const Traffic t = rank_traffic(method, kind, m, ranks);
  const bool one_way = kind == Collective::send || kind == Collective::broadcast;
  const std::vector<LinkPoint>& points = one_way ? link.messages : link.exchanges;
  const double step = points.empty() ? link.latency + t.bytes / t.steps * link.per_byte
                                     : seconds_at(points, t.bytes / t.steps);
  return t.steps * step + t.local_bytes * link.local_per_byte;
}

double collective_seconds(Collective kind, double m, int ranks, double seconds_per_byte,
                          double latency, bool direct) {
  if (ranks <= 1 || kind == Collective::none) return 0;
  const auto seconds = [&](const Traffic& t) {
    return t.bytes * seconds_per_byte + t.steps * latency;
  };
  const double ring = seconds(ring_traffic(kind, m, ranks));
  if (kind != Collective::all_reduce) return ring;
  const double indirect = std::min(ring, seconds(tree_traffic(m, ranks)));
  if (!direct) return indirect;
  return std::min(
      {indirect, seconds(one_shot_traffic(m, ranks)), seconds(two_shot_traffic(m, ranks))});
}

}  // namespace ridge
