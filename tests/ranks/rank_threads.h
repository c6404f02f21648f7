// Ranks that are threads of the test, or under mpirun its processes.
#pragma once

#include <memory>
#include <thread>
#include <vector>

#include "engine/ranks/cut_weights.h"
#include "engine/ranks/follower.h"
#include "engine/ranks/leader_runner.h"
#include "mpi_world.h"
#include "ranks/shared_memory.h"

namespace ridge {

// A model that grid.ranks() threads share, led from the thread of the test. Under mpirun every
// process makes one: rank 0 leads, and the others follow in the constructor until it ends.
class RankThreads {
 public:
  // `load` gives the whole weights; every rank calls it.
  template <typename Load>
  RankThreads(const RankGrid& grid, const Load& load, RunnerOptions options) {
    if (mpi_world()) {
      start_under_mpi(grid, load, options);
      return;
    }
    const std::shared_ptr<SharedRegion> world = make_shared_region(grid.ranks());
    std::vector<std::shared_ptr<SharedRegion>> stages;
    for (int stage = 0; stage < grid.pp; ++stage) stages.push_back(make_shared_region(grid.tp));
    options.threads = 1;
    const auto local = [=](int rank) {
      RunnerOptions mine = options;
      mine.ranks = std::make_shared<RankLinks>();
      mine.ranks->grid = grid;
      mine.ranks->world = join_shared_region(world, rank);
      mine.ranks->peers =
          join_shared_region(stages[size_t(grid.stage_of(rank))], grid.part_of(rank));
      return make_cpu_runner(cut_weights(load(), grid, rank), mine);
    };
    for (int rank = 1; rank < grid.ranks(); ++rank) {
      followers_.emplace_back([local, rank] {
        const std::unique_ptr<Runner> runner = local(rank);
        follow(*runner, *runner->options().ranks);
      });
    }
    std::unique_ptr<Runner> mine = local(0);
    std::shared_ptr<RankLinks> links = mine->options().ranks;
    leader_ = make_leader_runner(load(), std::move(mine), std::move(links));
  }
  ~RankThreads() {
    leader_.reset();
    for (std::thread& follower : followers_) follower.join();
  }
  RankThreads(const RankThreads&) = delete;
  RankThreads& operator=(const RankThreads&) = delete;

  bool leads() const { return leader_ != nullptr; }
  Runner& leader() { return *leader_; }

 private:
  template <typename Load>
  void start_under_mpi(const RankGrid& grid, const Load& load, RunnerOptions options) {
    Communicator& world = *mpi_world();
    options.threads = 1;
    options.ranks = std::make_shared<RankLinks>();
    options.ranks->grid = grid;
    options.ranks->world = std::make_unique<BorrowedRanks>(world);
    options.ranks->peers = split_mpi(world, grid.stage_of(world.rank()));
    std::unique_ptr<Runner> mine =
        make_cpu_runner(cut_weights(load(), grid, world.rank()), options);
    if (world.rank() != 0) return follow(*mine, *options.ranks);
    leader_ = make_leader_runner(load(), std::move(mine), options.ranks);
  }

  std::vector<std::thread> followers_;
  std::unique_ptr<Runner> leader_;
};

}  // namespace ridge
