#include "engine/ranks/rank_exchanges.h"

#include <numeric>
#include <vector>

namespace ridge {

double sum_when_loaded(Communicator& world, double of_this_rank) {
  const Communicator::Deadline usual = world.deadline();
  world.set_deadline(Communicator::kNoDeadline);
  std::vector<double> all(size_t(world.size()));
  world.all_gather(std::as_bytes(std::span(&of_this_rank, 1)),
                   std::as_writable_bytes(std::span(all)));
  world.set_deadline(usual);
  return std::accumulate(all.begin(), all.end(), 0.0);
}

double read_rate_of_all(RankLinks& links, Runner& local) {
  struct Reads {
    double rate = 0, bytes = 0;
  };
  Communicator& world = *links.world;
  Reads mine{0, local.weights().bytes};
  for (int stage = 0; stage < links.grid.pp; ++stage) {
    world.barrier();
    if (stage == links.stage()) mine.rate = local.read_rate();
  }
  std::vector<Reads> all(size_t(world.size()));
  world.all_gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)));
  double bytes = 0, seconds = 0;
  for (int stage = 0; stage < links.grid.pp; ++stage) {
    Reads sum;
    for (int part = 0; part < links.grid.tp; ++part) {
      const Reads& rank = all[size_t(stage * links.grid.tp + part)];
      sum.rate += rank.rate, sum.bytes += rank.bytes;
    }
    if (sum.rate <= 0) return 0;
    bytes += sum.bytes, seconds += sum.bytes / sum.rate;
  }
  return bytes / seconds;
}

}  // namespace ridge
