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
