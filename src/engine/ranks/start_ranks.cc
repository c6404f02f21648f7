#include "engine/ranks/start_ranks.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <thread>
#include <utility>

#include "base/affinity.h"
#include "base/error.h"
#include "base/memory_limit.h"
#include "engine/ranks/cut_weights.h"
#include "engine/ranks/follower.h"
#include "engine/ranks/leader_runner.h"
#include "ranks/mpi.h"
#include "ranks/packet.h"
#include "ranks/rank_processes.h"
#include "ranks/shared_memory.h"

namespace ridge {
namespace {

// The regions that processes of one host share.
struct RankRegions {
  std::shared_ptr<SharedRegion> world;
  std::vector<std::shared_ptr<SharedRegion>> stages;

  explicit RankRegions(const RankGrid& grid) : world(make_shared_region(grid.ranks())) {
    for (int stage = 0; stage < grid.pp; ++stage) stages.push_back(make_shared_region(grid.tp));
  }
};

std::shared_ptr<RankLinks> join(const RankRegions& regions, const RankGrid& grid, int rank,
                                const std::function<std::string()>& lost) {
  auto links = std::make_shared<RankLinks>();
  links->grid = grid;
  links->world = join_shared_region(regions.world, rank, lost);
  // A failure is told through the world; who waits for the peers of a stage looks there too.
  const auto failure = [world = links->world.get(), lost]() -> std::string {
    if (lost) {
      if (const std::string why = lost(); !why.empty()) world->fail(why);
    }
    return world->failure();
  };
  links->peers = join_shared_region(regions.stages[size_t(grid.stage_of(rank))], grid.part_of(rank),
                                    failure, rank - grid.part_of(rank));
  return links;
}

// What lead() tells the others about the runner.
void tell_options(Communicator& world, RunnerOptions& options) {
  Packet packet;
  const auto all = [&](auto&& each) {
    each(options.threads);
    each(options.device_format);
    each(options.kv);
    each(options.page_tokens);
    each(options.cache_tokens);
    each(options.max_context);
    each(options.max_tokens);
    each(options.max_sequences);
    each(options.max_logit_rows);
    each(options.invariant);
  };
  all([&](const auto& value) { packet.put(value); });
  world.broadcast(0, packet.bytes());
  all([&](auto& value) { value = packet.get<std::remove_reference_t<decltype(value)>>(); });
}

// The rest of a follower's life.
[[noreturn]] void be_follower(const RankStart& start, std::shared_ptr<RankLinks> links) {
  leave_signals_to_leader();
  Communicator& world = *links->world;
  try {
    RunnerOptions options;
    world.set_deadline(Communicator::kNoDeadline);  // until the leader has its model
    tell_options(world, options);
    world.set_deadline(start.deadline);
    links->peers->set_deadline(start.deadline);
    options.ranks = links;
    const LazyWeights weights = start.load();
    const std::unique_ptr<Runner> local =
        start.make(cut_weights(weights.whole, links->grid, links->rank(), weights.make), options);
    follow(*local, *links);
  } catch (const std::exception& error) {
    // The leader says it; a message that came from there is known.
    if (world.failure().empty()) {
      world.fail(fmt::format("rank {}: {}", links->rank(), error.what()));
    }
    _exit(kFailedRankExitCode);
  }
  world.close();
  _exit(0);
}

std::shared_ptr<RankLinks> fork_ranks(const RankStart& start) {
  const RankGrid& grid = start.grid;
  const RankRegions regions(grid);
  const auto processes = std::make_shared<RankProcesses>(
      grid.ranks(), [&](int rank) { be_follower(start, join(regions, grid, rank, {})); });
  const auto lost = [watched = processes.get()] { return watched->lost(); };
  std::shared_ptr<RankLinks> links = join(regions, grid, 0, lost);
  links->group = processes;
  links->lost = lost;
  return links;
}

// Where the ranks are, and what they may use there before any has loaded its part.
std::vector<RankHost> find_hosts(Communicator& world) {
  struct Place {
    char host[256];
    double free_bytes;
  };
  Place mine = {};
  gethostname(mine.host, sizeof mine.host - 1);
  mine.free_bytes = free_bytes();
  std::vector<Place> all(size_t(world.size()));
  world.all_gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)));
  std::map<std::string, RankHost> hosts;
  for (const Place& place : all) {
    const auto [at, added] = hosts.try_emplace(place.host, RankHost{0, place.free_bytes});
    RankHost& host = at->second;
    ++host.ranks;
    host.free_bytes = std::min(host.free_bytes, place.free_bytes);
  }
  std::vector<RankHost> found;
  for (const auto& [name, host] : hosts) found.push_back(host);
  return found;
}

std::shared_ptr<RankLinks> join_mpi(const RankStart& start) {
  const RankGrid& grid = start.grid;
  auto links = std::make_shared<RankLinks>();
  links->grid = grid;
  links->world = make_mpi_world();
  const int ranks = links->world->size(), rank = links->world->rank();
  if (ranks != grid.ranks()) {
    end_unless_leader(*links->world);
    throw Error("MPI started {} processes, and tp {} x pp {} are {} ranks", ranks, grid.tp, grid.pp,
                grid.ranks());
  }
  links->peers = split_mpi(*links->world, grid.stage_of(rank));
  links->hosts = find_hosts(*links->world);
  if (rank != 0) be_follower(start, std::move(links));
  return links;
}

}  // namespace

std::shared_ptr<RankLinks> start_ranks(const RankStart& start) {
  const bool by_mpi = mpi_processes() > 1;
  if (!by_mpi) refuse_tasks_without_pmix();
  std::shared_ptr<RankLinks> links = by_mpi ? join_mpi(start) : fork_ranks(start);
  links->world->set_deadline(start.deadline);
  links->peers->set_deadline(start.deadline);
  return links;
}

std::unique_ptr<Runner> lead(std::shared_ptr<RankLinks> links, MakeRunner make, LazyWeights weights,
                             const RunnerOptions& options) {
  RunnerOptions mine = options;
  try {
    check_cut(weights.whole, links->grid);
    tell_options(*links->world, mine);
    mine.ranks = links;
    const AffinityScope restored;  // for the threads that this one starts later
    if (links->group) use_own_processors(0, links->grid.ranks());
    std::unique_ptr<Runner> local =
        make(cut_weights(weights.whole, links->grid, 0, weights.make), mine);
    return make_leader_runner(std::move(weights.whole), std::move(local), links);
  } catch (const Error& error) {
    links->world->fail(error.what());
    throw;
  }
}

}  // namespace ridge
