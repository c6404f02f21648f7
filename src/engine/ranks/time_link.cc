#include "engine/ranks/time_link.h"

#include <unistd.h>

#include <algorithm>

#include "measure/ranks/measure_collectives.h"

namespace ridge {

int most_ranks_of_a_host(const RankLinks& links) {
  if (links.hosts.empty()) return links.grid.ranks();
  int most = 0;
  for (const RankHost& host : links.hosts) most = std::max(most, host.ranks);
  return most;
}

Link time_link(RankLinks& links) {
  Communicator& ranks = links.grid.tp > 1 ? *links.peers : *links.world;
  const LinkMethod method =
      ranks.name() == link_name(LinkMethod::mpi) ? LinkMethod::mpi : LinkMethod::shared_memory;
  CollectiveOptions options;
  options.oversubscribed = most_ranks_of_a_host(links) > sysconf(_SC_NPROCESSORS_ONLN);
  options.seconds_each = 0.02;
  options.kinds = {Collective::all_gather};
  options.sizes = {4, 1 << 20};
  if (method == LinkMethod::mpi) {  // its protocol changes with the size
    options.kinds.push_back(Collective::send);
    options.sizes = all_collectives().sizes;
    while (options.sizes.back() > 1 << 20) options.sizes.pop_back();
  }
  std::vector<CollectiveTime> times;
  for (const Collective kind : options.kinds) {
    for (const double bytes : options.sizes) {
      CollectiveCalls calls(ranks, kind, bytes);
      times.push_back(measure_calls(ranks, calls, options));
      times.back().kind = kind;
      times.back().bytes = calls.bytes();
      times.back().doubt.clear();  // of a busy machine: the steps run there too
    }
  }
  const RankLink fitted = fit_link(method, ranks.size(), local_copy_seconds_per_byte(), times);
  Link link;
  link.name = link_name(method);
  link.bandwidth = 1 / fitted.per_byte;
  link.latency = fitted.latency;
  link.max_devices = links.grid.ranks();
  link.exchanges = fitted.exchanges;
  link.messages = fitted.messages;
  link.copy_bandwidth = 1 / fitted.local_per_byte;
  return link;
}

}  // namespace ridge
