#include "measure/ranks/measure_ranks.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "base/affinity.h"
#include "base/error.h"
#include "base/units.h"
#include "machine/detect.h"
#include "measure/cpu/noise.h"
#include "ranks/mpi.h"
#include "ranks/rank_processes.h"
#include "ranks/shared_memory.h"

namespace ridge {
namespace {

constexpr std::chrono::seconds kRanksDeadline{30};

CollectiveOptions collective_options(Effort effort, bool oversubscribed) {
  CollectiveOptions options = all_collectives();
  options.seconds_each = effort == Effort::quick ? 0.08 : 0.4;
  options.oversubscribed = oversubscribed;
  return options;
}

std::string host_name() {
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  return name.data();
}

// The processors of this process before any rank was confined to its share.
int usable_cores() { return static_cast<int>(one_per_core(usable_processors()).size()); }

// What every rank does. Rank 0 gets the report.
RanksReport measure_on(const MeasuringRank& rank, Effort effort) {
  Communicator& ranks = rank.ranks;
  RanksReport found;
  found.ranks = ranks.size();
  found.method = rank.method;
  found.cores = rank.cores;
  found.hosts = count_different(ranks, host_name());
  // Where there are several hosts, each has its share of the ranks.
  const bool oversubscribed = found.ranks > found.cores * found.hosts;
  const Disturbance before = disturbance_now();
  found.times =
      measure_collectives(ranks, collective_options(effort, oversubscribed), rank.progress);
  found.link = fit_link(found.method, found.ranks, local_copy_seconds_per_byte(), found.times);
  std::vector<std::string>& conditions = found.report.conditions;
  conditions = disturbances_between(before, disturbance_now(), std::min(found.ranks, found.cores));
  if (oversubscribed) {
    conditions.push_back(fmt::format("{} ranks share {} cores: they wait for each other's turns",
                                     found.ranks, found.cores * found.hosts));
  }
  return found;
}

void add_link_readings(RanksReport& found) {
  found.report.base = detect_this();
  const bool network = found.hosts > 1;
  const std::string name(link_name(found.method));
  const std::string path = network ? "levels.network" : "links." + name;
  const std::string how = fmt::format("all-gathers among {} ranks, {}", found.ranks, name);
  std::string doubt;
  for (const CollectiveTime& time : found.times) {
    if (time.kind == Collective::all_gather && !time.doubt.empty()) doubt = time.doubt;
  }
  if (found.ranks > found.cores * found.hosts) doubt = "more ranks than cores";
  Reading latency = summarize("ranks.latency", path + ".latency", Dimension::time,
                              {found.link.latency}, how + ", 4 B of each");
  Reading bandwidth =
      summarize("ranks.bandwidth", path + (network ? ".read_bandwidth" : ".bandwidth"),
                Dimension::bandwidth, {1 / found.link.per_byte}, how + ", 1 MiB less the latency");
  latency.doubt = bandwidth.doubt = doubt;
  found.report.readings = {latency, bandwidth};
}

using RankWork = std::function<void(const MeasuringRank& rank)>;

void work_on_forked(int ranks, const StepProgress& progress, const RankWork& work) {
  const int cores = usable_cores();
  const std::shared_ptr<SharedRegion> region = make_shared_region(ranks);
  const RankProcesses others(ranks, [&](int rank) {
    leave_signals_to_leader();
    const std::unique_ptr<Communicator> mine = join_shared_region(region, rank);
    mine->set_deadline(kRanksDeadline);
    try {
      work({*mine, LinkMethod::shared_memory, cores, {}});
    } catch (const std::exception& error) {
      mine->fail(fmt::format("rank {}: {}", rank, error.what()));
      _exit(kFailedRankExitCode);
    }
  });
  const std::unique_ptr<Communicator> mine =
      join_shared_region(region, 0, [&others] { return others.lost(); });
  const AffinityScope restored;
  use_own_processors(0, ranks);
  mine->set_deadline(kRanksDeadline);
  try {
    work({*mine, LinkMethod::shared_memory, cores, progress});
  } catch (const Error& error) {
    mine->fail(error.what());  // who still waits ends
    throw;
  }
}

void work_under_mpi(int ranks, const StepProgress& progress, const RankWork& work) {
  const std::unique_ptr<Communicator> world = make_mpi_world();
  const bool leads = world->rank() == 0;
  if (ranks != world->size()) {
    end_unless_leader(*world);
    throw Error("MPI started {} processes, and --ranks says {}", world->size(), ranks);
  }
  // Not usable_cores(): mpirun may have confined each rank to a core of its own.
  const auto cores = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  world->set_deadline(kRanksDeadline);
  try {
    work({*world, LinkMethod::mpi, cores, leads ? progress : StepProgress()});
  } catch (const Error& error) {
    world->fail(leads ? error.what() : fmt::format("rank {}: {}", world->rank(), error.what()));
    throw;
  }
  world->close();
  if (!leads) _exit(0);
}

}  // namespace

double RanksReport::predicted_s(const CollectiveTime& time) const {
  return collective_seconds(method, time.kind, time.bytes, ranks, link);
}

bool RanksReport::is_point(const CollectiveTime& time) const {
  return (time.kind == Collective::all_gather && !link.exchanges.empty()) ||
         (time.kind == Collective::send && !link.messages.empty());
}

double RanksReport::median_error() const {
  std::vector<double> errors;
  for (const CollectiveTime& time : times) {
    if (!time.doubt.empty() || is_point(time)) continue;
    errors.push_back(std::abs(predicted_s(time) / time.seconds - 1));
  }
  return errors.empty() ? 0 : median(errors);
}

void on_every_rank(int ranks, const StepProgress& progress,
                   const std::function<void(const MeasuringRank& rank)>& work) {
  if (mpi_processes() > 1) return work_under_mpi(ranks, progress, work);
  refuse_tasks_without_pmix();
  work_on_forked(ranks, progress, work);
}

int count_different(Communicator& ranks, const std::string& name) {
  constexpr size_t kNameBytes = 256;
  std::array<char, kNameBytes> mine{};
  name.copy(mine.data(), mine.size() - 1);
  std::vector<char> all(kNameBytes * size_t(ranks.size()));
  ranks.all_gather(std::as_bytes(std::span(mine)), std::as_writable_bytes(std::span(all)));
  std::set<std::string> names;
  for (size_t at = 0; at < all.size(); at += kNameBytes) names.insert(&all[at]);
  return static_cast<int>(names.size());
}

RanksReport measure_ranks(int ranks, Effort effort, const StepProgress& progress) {
  RanksReport found;
  on_every_rank(ranks, progress,
                [&](const MeasuringRank& rank) { found = measure_on(rank, effort); });
  add_link_readings(found);
  return found;
}

nlohmann::json ranks_to_json(const RanksReport& found, const std::string& date, Effort effort) {
  nlohmann::json file = report_to_json(found.report, date, effort);
  for (nlohmann::json& link : file["links"]) {
    link["max_devices"] = found.ranks;
    link["copy_bandwidth"] = 1 / found.link.local_per_byte;
    for (const LinkPoint& p : found.link.exchanges)
      link["exchanges"].push_back({p.bytes, p.seconds});
    for (const LinkPoint& p : found.link.messages) link["messages"].push_back({p.bytes, p.seconds});
  }
  nlohmann::json& ranks = file["measurement"]["ranks"];
  ranks = {{"ranks", found.ranks},
           {"hosts", found.hosts},
           {"cores", found.cores},
           {"link", link_name(found.method)},
           {"latency_s", found.link.latency},
           {"bandwidth", 1 / found.link.per_byte},
           {"local_copy_bandwidth", 1 / found.link.local_per_byte},
           {"median_error", found.median_error()},
           {"collectives", nlohmann::json::array()}};
  for (const CollectiveTime& time : found.times) {
    nlohmann::json item = {{"collective", collective_name(time.kind)},
                           {"bytes", time.bytes},
                           {"seconds", time.seconds},
                           {"p10", time.low},
                           {"p90", time.high},
                           {"samples", time.samples},
                           {"bytes_per_s", time.bytes / time.seconds},
                           {"predicted_s", found.predicted_s(time)}};
    if (!time.doubt.empty()) item["doubt"] = time.doubt;
    ranks["collectives"].push_back(std::move(item));
  }
  return file;
}

}  // namespace ridge
