#include "engine/ranks/start_ranks.h"

#include <fmt/format.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <utility>

#include "base/affinity.h"
#include "base/error.h"
#include "engine/ranks/cut_weights.h"
#include "engine/ranks/leader_runner.h"
#include "ranks/mpi.h"
#include "ranks/packet.h"
#include "ranks/shared_memory.h"

namespace ridge {
namespace {

constexpr int kFailedRankExitCode = 2;

// The processes of ranks 1, 2, ...; they end with this object.
class RankProcesses {
 public:
  RankProcesses() = default;
  RankProcesses(const RankProcesses&) = delete;
  RankProcesses& operator=(const RankProcesses&) = delete;
  // Waits for processes that were told to end, and kills those that do not.
  ~RankProcesses() {
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(2);
    for (const pid_t process : processes_) {
      while (waitpid(process, nullptr, WNOHANG) == 0) {
        if (std::chrono::steady_clock::now() > limit) kill(process, SIGKILL);
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    }
  }

  void add(pid_t process) { processes_.push_back(process); }

  // Why a process that should run does not; empty: all run.
  std::string lost() const {
    for (size_t i = 0; i < processes_.size(); ++i) {
      siginfo_t info{};
      const auto id = static_cast<id_t>(processes_[i]);
      const int looked = waitid(P_PID, id, &info, WEXITED | WNOHANG | WNOWAIT);
      if (looked != 0) return fmt::format("rank {} has ended", i + 1);
      if (info.si_pid == 0) continue;
      if (info.si_code == CLD_EXITED) {
        return fmt::format("rank {} ended with exit code {}", i + 1, info.si_status);
      }
      return fmt::format("rank {} was killed by signal {} ({})", i + 1, info.si_status,
                         strsignal(info.si_status));
    }
    return {};
  }

 private:
  std::vector<pid_t> processes_;
};

// Ranks of one host share its processors: this thread, and the team that it makes, use those of
// `rank`. mpirun does so by itself.
void use_own_processors(int rank, int ranks) {
  // Not logical processors: siblings of one core would fall to different ranks.
  const std::vector<int> all = one_per_core(usable_processors());
  const size_t count = all.size(), share = count / size_t(ranks);
  cpu_set_t mine;
  CPU_ZERO(&mine);
  if (share == 0) {
    CPU_SET(size_t(all[size_t(rank) % count]), &mine);
  } else {
    for (size_t i = 0; i < share; ++i) CPU_SET(size_t(all[size_t(rank) * share + i]), &mine);
  }
  sched_setaffinity(0, sizeof mine, &mine);  // refused: ranks and processors meet by chance
}

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
    each(options.kv);
    each(options.page_tokens);
    each(options.cache_tokens);
    each(options.max_tokens);
    each(options.max_sequences);
    each(options.max_logit_rows);
  };
  all([&](const auto& value) { packet.put(value); });
  world.broadcast(0, packet.bytes());
  all([&](auto& value) { value = packet.get<std::remove_reference_t<decltype(value)>>(); });
}

// The rest of a follower's life.
[[noreturn]] void be_follower(const RankStart& start, std::shared_ptr<RankLinks> links) {
  // Ctrl-C reaches all processes of a terminal: the leader ends the others.
  std::signal(SIGINT, SIG_IGN);
  std::signal(SIGTERM, SIG_IGN);
  Communicator& world = *links->world;
  try {
    RunnerOptions options;
    world.set_deadline(Communicator::kNoDeadline);  // until the leader has its model
    tell_options(world, options);
    world.set_deadline(start.deadline);
    links->peers->set_deadline(start.deadline);
    options.ranks = links;
    const std::unique_ptr<Runner> local =
        make_cpu_runner(cut_weights(start.load(), links->grid, links->rank()), options);
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
  auto processes = std::make_shared<RankProcesses>();
  std::fflush(nullptr);           // or every rank would write what is still in the buffers
  std::signal(SIGCHLD, SIG_DFL);  // ignored, it would hide how a rank ended
  const pid_t leader = getpid();
  for (int rank = 1; rank < grid.ranks(); ++rank) {
    const pid_t process = fork();
    if (process < 0) throw Error("rank {} could not be started: {}", rank, std::strerror(errno));
    if (process == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() != leader) _exit(kFailedRankExitCode);  // it ended before it could be watched
      use_own_processors(rank, grid.ranks());
      be_follower(start, join(regions, grid, rank, {}));
    }
    processes->add(process);
  }
  std::shared_ptr<RankLinks> links =
      join(regions, grid, 0, [watched = processes.get()] { return watched->lost(); });
  links->group = processes;
  return links;
}

std::shared_ptr<RankLinks> join_mpi(const RankStart& start) {
  const RankGrid& grid = start.grid;
  auto links = std::make_shared<RankLinks>();
  links->grid = grid;
  links->world = make_mpi_world();
  const int ranks = links->world->size(), rank = links->world->rank();
  if (ranks != grid.ranks()) {
    if (rank != 0) {  // one line is enough: mpirun ends this process when rank 0 has written it
      std::this_thread::sleep_for(std::chrono::seconds(5));
      _exit(kFailedRankExitCode);
    }
    throw Error("MPI started {} processes, and tp {} x pp {} are {} ranks", ranks, grid.tp, grid.pp,
                grid.ranks());
  }
  links->peers = split_mpi(*links->world, grid.stage_of(rank));
  if (rank != 0) be_follower(start, std::move(links));
  return links;
}

}  // namespace

std::shared_ptr<RankLinks> start_ranks(const RankStart& start) {
  std::shared_ptr<RankLinks> links = mpi_processes() > 1 ? join_mpi(start) : fork_ranks(start);
  links->world->set_deadline(start.deadline);
  links->peers->set_deadline(start.deadline);
  return links;
}

std::unique_ptr<Runner> lead(std::shared_ptr<RankLinks> links, Weights weights,
                             const RunnerOptions& options) {
  RunnerOptions mine = options;
  try {
    check_cut(weights, links->grid);
    tell_options(*links->world, mine);
    mine.ranks = links;
    const AffinityScope restored;  // for the threads that this one starts later
    if (links->group) use_own_processors(0, links->grid.ranks());
    std::unique_ptr<Runner> local = make_cpu_runner(cut_weights(weights, links->grid, 0), mine);
    return make_leader_runner(std::move(weights), std::move(local), links);
  } catch (const Error& error) {
    links->world->fail(error.what());
    throw;
  }
}

}  // namespace ridge
