#include "lab/lab_ranks.h"

#include <fmt/format.h>

#include "base/error.h"
#include "engine/ranks/cut_weights.h"
#include "engine/ranks/follower.h"
#include "engine/ranks/leader_runner.h"
#include "ranks/rank_processes.h"

namespace ridge {
namespace {

constexpr std::chrono::seconds kLabRankDeadline{20};

// On a thread of its own: an error ends the calls of all ranks.
template <typename Work>
std::jthread rank_thread(Communicator& shared, int rank, int ranks, Work work) {
  return std::jthread([&shared, rank, ranks, work = std::move(work)] {
    use_own_processors(rank, ranks);
    try {
      work();
    } catch (const std::exception& error) {
      shared.fail(fmt::format("rank {}: {}", rank, error.what()));
    }
  });
}

std::shared_ptr<RankLinks> lab_links(const RankGrid& grid, int rank,
                                     const std::shared_ptr<SharedRegion>& world,
                                     const std::shared_ptr<SharedRegion>& peers) {
  auto links = std::make_shared<RankLinks>();
  links->grid = grid;
  links->world = join_shared_region(world, rank);
  links->peers =
      join_shared_region(peers, rank, [all = links->world.get()] { return all->failure(); });
  links->world->set_deadline(kLabRankDeadline);
  links->peers->set_deadline(kLabRankDeadline);
  return links;
}

}  // namespace

std::vector<int> lab_rank_counts(const Lab&) {
  const size_t cores = one_per_core(usable_processors()).size();
  std::vector<int> counts;
  for (const int ranks : {2, 4}) {
    if (size_t(ranks) <= cores) counts.push_back(ranks);
  }
  return counts;
}

std::vector<CollectiveTime> lab_collectives(Lab& lab, int ranks, const CollectiveOptions& options) {
  const AffinityScope restored;
  const std::shared_ptr<SharedRegion> region = make_shared_region(ranks);
  std::vector<std::unique_ptr<Communicator>> communicators;
  for (int rank = 0; rank < ranks; ++rank) {
    communicators.push_back(join_shared_region(region, rank));
    communicators.back()->set_deadline(kLabRankDeadline);
  }
  std::vector<std::jthread> others;  // they end before what they use
  for (int rank = 1; rank < ranks; ++rank) {
    Communicator& mine = *communicators[size_t(rank)];
    others.push_back(rank_thread(mine, rank, ranks,
                                 [&mine, &options] { measure_collectives(mine, options, {}); }));
  }
  Communicator& mine = *communicators.front();
  use_own_processors(0, ranks);
  try {
    return measure_collectives(mine, options, [&](const std::string& step) { lab.step(step); });
  } catch (...) {
    mine.fail("the experiment was interrupted");  // or the others would wait for it
    throw;
  }
}

RankLink lab_rank_link(Lab& lab, int ranks) {
  CollectiveOptions options;
  options.kinds = {Collective::all_gather};
  options.sizes = {4, 2 << 10, 16 << 10, 128 << 10, 1 << 20};
  options.seconds_each = lab.quick() ? 0.02 : 0.08;
  const std::vector<CollectiveTime> times = lab_collectives(lab, ranks, options);
  RankLink link = fit_link(LinkMethod::shared_memory, ranks, local_copy_seconds_per_byte(), times);
  // A message of some KiB stays in the L1 of the core that wrote it, a larger one in its L2 or the
  // cache of all: each has its own rate, so steps are interpolated between the sizes.
  for (const CollectiveTime& time : times) {
    const Traffic traffic =
        rank_traffic(LinkMethod::shared_memory, Collective::all_gather, time.bytes, ranks);
    const double seconds = time.seconds - traffic.local_bytes * link.local_per_byte;
    if (seconds > 0) {
      link.exchanges.push_back({traffic.bytes / traffic.steps, seconds / traffic.steps});
    }
  }
  link.messages = link.exchanges;
  return link;
}

LabRankedModel::LabRankedModel(Weights whole, int ranks, RunnerOptions options) {
  RankGrid grid;
  grid.tp = ranks;
  check_cut(whole, grid);
  options.threads = 1;
  options.team = nullptr;
  const std::shared_ptr<SharedRegion> world = make_shared_region(ranks);
  const std::shared_ptr<SharedRegion> peers = make_shared_region(ranks);
  RunnerOptions mine = options;
  mine.ranks = lab_links(grid, 0, world, peers);
  try {
    for (int rank = 1; rank < ranks; ++rank) {
      RunnerOptions theirs = options;
      theirs.ranks = lab_links(grid, rank, world, peers);
      // Cut here, because the whole is the leader's soon.
      auto part = std::make_shared<Weights>(cut_weights(whole, grid, rank));
      followers_.push_back(rank_thread(*theirs.ranks->world, rank, ranks, [theirs, part] {
        const std::unique_ptr<Runner> local = make_cpu_runner(std::move(*part), theirs);
        follow(*local, *theirs.ranks);
      }));
    }
    use_own_processors(0, ranks);
    std::unique_ptr<Runner> local = make_cpu_runner(cut_weights(whole, grid, 0), mine);
    leader_ = make_leader_runner(std::move(whole), std::move(local), mine.ranks);
  } catch (...) {
    mine.ranks->world->fail("the leader has ended");  // or the others would wait for it
    throw;
  }
}

LabRankedModel::~LabRankedModel() { leader_.reset(); }

}  // namespace ridge
