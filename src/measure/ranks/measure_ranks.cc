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

// How many different hosts the ranks run on.
int count_hosts(Communicator& ranks) {
  constexpr size_t kNameBytes = 256;
  std::array<char, kNameBytes> mine{};
  gethostname(mine.data(), mine.size() - 1);
  std::vector<char> all(kNameBytes * size_t(ranks.size()));
  ranks.all_gather(std::as_bytes(std::span(mine)), std::as_writable_bytes(std::span(all)));
  std::set<std::string> names;
  for (size_t at = 0; at < all.size(); at += kNameBytes) names.insert(&all[at]);
  return static_cast<int>(names.size());
}

// The processors of this process before any rank was confined to its share.
int usable_cores() { return static_cast<int>(one_per_core(usable_processors()).size()); }

// What every rank does. Rank 0 gets the report.
RanksReport measure_on(Communicator& ranks, LinkMethod method, int cores, Effort effort,
                       const StepProgress& progress) {
  ranks.set_deadline(kRanksDeadline);
  RanksReport found;
  found.ranks = ranks.size();
  found.method = method;
  found.cores = cores;
  found.hosts = count_hosts(ranks);
  // Where there are several hosts, each has its share of the ranks.
  const bool oversubscribed = found.ranks > found.cores * found.hosts;
  const Disturbance before = disturbance_now();
  found.times = measure_collectives(ranks, collective_options(effort, oversubscribed), progress);
  found.link = fit_link(method, found.ranks, local_copy_seconds_per_byte(), found.times);
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

RanksReport measure_forked(int ranks, Effort effort, const StepProgress& progress) {
  const int cores = usable_cores();
  const std::shared_ptr<SharedRegion> region = make_shared_region(ranks);
  const RankProcesses others(ranks, [&](int rank) {
    leave_signals_to_leader();
    const std::unique_ptr<Communicator> mine = join_shared_region(region, rank);
    try {
      measure_on(*mine, LinkMethod::shared_memory, cores, effort, {});
    } catch (const std::exception& error) {
      mine->fail(fmt::format("rank {}: {}", rank, error.what()));
      _exit(kFailedRankExitCode);
    }
  });
  const std::unique_ptr<Communicator> mine =
      join_shared_region(region, 0, [&others] { return others.lost(); });
  const AffinityScope restored;
  use_own_processors(0, ranks);
  try {
    return measure_on(*mine, LinkMethod::shared_memory, cores, effort, progress);
  } catch (const Error& error) {
    mine->fail(error.what());  // who still waits ends
    throw;
  }
}

RanksReport measure_under_mpi(int ranks, Effort effort, const StepProgress& progress) {
  const std::unique_ptr<Communicator> world = make_mpi_world();
  const bool leads = world->rank() == 0;
  if (ranks != world->size()) {
    end_unless_leader(*world);
    throw Error("MPI started {} processes, and --ranks says {}", world->size(), ranks);
  }
  // Not usable_cores(): mpirun may have confined each rank to a core of its own.
  const auto cores = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  RanksReport found =
      measure_on(*world, LinkMethod::mpi, cores, effort, leads ? progress : StepProgress());
  world->close();
  if (!leads) _exit(0);
  return found;
}

}  // namespace

double RanksReport::predicted_s(const CollectiveTime& time) const {
  return collective_seconds(method, time.kind, time.bytes, ranks, link);
}

double RanksReport::median_error() const {
  std::vector<double> errors;
  for (const CollectiveTime& time : times) {
    if (!time.doubt.empty()) continue;
    errors.push_back(std::abs(predicted_s(time) / time.seconds - 1));
  }
  return errors.empty() ? 0 : median(errors);
}

RanksReport measure_ranks(int ranks, Effort effort, const StepProgress& progress) {
  RanksReport found = mpi_processes() > 1 ? measure_under_mpi(ranks, effort, progress)
                                          : measure_forked(ranks, effort, progress);
  add_link_readings(found);
  return found;
}

nlohmann::json ranks_to_json(const RanksReport& found, const std::string& date, Effort effort) {
  nlohmann::json file = report_to_json(found.report, date, effort);
  for (nlohmann::json& link : file["links"]) link["max_devices"] = found.ranks;
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
