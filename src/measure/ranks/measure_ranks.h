// `ridge measure --ranks`: the collectives between processes, and the link that explains them.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "measure/ranks/measure_collectives.h"

namespace ridge {

struct RanksReport {
  int ranks = 0, hosts = 1, cores = 0;  // cores: of this host, for all ranks on it
  LinkMethod method = LinkMethod::shared_memory;
  RankLink link;
  std::vector<CollectiveTime> times;
  Report report;  // the link as readings; conditions

  double predicted_s(const CollectiveTime& time) const;
  bool is_point(const CollectiveTime& time) const;  // of the link: it predicts itself
  // |predicted / measured - 1| over all that is not in doubt and no point of the link.
  double median_error() const;
};

// Where mpirun or Slurm started this process, with the processes that they started, through MPI;
// else `ranks` - 1 more are forked from this one, which must have no other thread yet. Returns on
// rank 0; the processes of the other ranks end. Throws Error where MPI started another number of
// processes, or a rank ends or does not answer within half a minute.
RanksReport measure_ranks(int ranks, Effort effort, const StepProgress& progress);

// Where a rank of a measurement is. `progress` is rank 0's.
struct MeasuringRank {
  Communicator& ranks;
  LinkMethod method;
  int cores;  // of this host, for all ranks on it
  const StepProgress& progress;
};
// Does `work` on every rank, as measure_ranks() starts them. Returns on rank 0.
void on_every_rank(int ranks, const StepProgress& progress,
                   const std::function<void(const MeasuringRank& rank)>& work);
// How many of the ranks' names are different: of hosts, or of devices.
int count_different(Communicator& ranks, const std::string& name);

// A machine file that holds the link, and all times under "measurement": docs/json.md.
nlohmann::json ranks_to_json(const RanksReport& report, const std::string& date, Effort effort);

}  // namespace ridge
