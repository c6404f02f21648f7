// What a launcher's environment says about this process.
#include "ranks/launcher.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <string>
#include <vector>

namespace ridge {
namespace {

// Sets all variables of launchers to those given, or unsets them, until the end of its scope.
class Environment {
 public:
  explicit Environment(const std::map<std::string, std::string>& wanted) {
    for (const char* name :
         {"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "PMIX_RANK",
          "PMI_SIZE", "PMI_RANK", "SLURM_NTASKS", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID",
          "SLURM_LOCALID"}) {
      const char* value = std::getenv(name);
      before_.emplace_back(name, value ? value : "");
      set(name, wanted.contains(name) ? wanted.at(name) : "");
    }
  }
  ~Environment() {
    for (const auto& [name, value] : before_) set(name, value);
  }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  static void set(const std::string& name, const std::string& value) {
    value.empty() ? unsetenv(name.c_str()) : setenv(name.c_str(), value.c_str(), 1);
  }
  std::vector<std::pair<std::string, std::string>> before_;
};

TEST(Launcher, AShellStartsOneProcess) {
  const Environment none({});
  EXPECT_EQ(mpi_processes(), 1);
  EXPECT_EQ(mpi_rank(), 0);
  EXPECT_EQ(tasks_without_pmix(), 1);
  EXPECT_EQ(rank_on_host(3), 3);
}

TEST(Launcher, OpenMpiAndSlurmWithPmixNumberTheRanks) {
  {
    const Environment mpirun({{"OMPI_COMM_WORLD_SIZE", "4"},
                              {"OMPI_COMM_WORLD_RANK", "3"},
                              {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                              {"PMIX_RANK", "3"}});
    EXPECT_EQ(mpi_processes(), 4);
    EXPECT_EQ(mpi_rank(), 3);
    EXPECT_EQ(tasks_without_pmix(), 1);
    EXPECT_EQ(rank_on_host(3), 1);
  }
  const Environment srun({{"PMIX_RANK", "5"},
                          {"SLURM_NTASKS", "8"},
                          {"SLURM_STEP_NUM_TASKS", "8"},
                          {"SLURM_PROCID", "5"},
                          {"SLURM_LOCALID", "1"}});
  EXPECT_EQ(mpi_processes(), 8);
  EXPECT_EQ(mpi_rank(), 5);
  EXPECT_EQ(tasks_without_pmix(), 1);
  EXPECT_EQ(rank_on_host(5), 1);
}

// A batch job of Slurm, and the shell of a container that mpirun started, set these variables for
// their one process. The ranks that it forks inherit them.
TEST(Launcher, ForkedRanksAreNumberedByThemselves) {
  const Environment job({{"SLURM_NTASKS", "1"},
                         {"SLURM_STEP_NUM_TASKS", "1"},
                         {"SLURM_PROCID", "0"},
                         {"SLURM_LOCALID", "0"},
                         {"OMPI_COMM_WORLD_SIZE", "1"},
                         {"OMPI_COMM_WORLD_RANK", "0"},
                         {"OMPI_COMM_WORLD_LOCAL_RANK", "0"}});
  EXPECT_EQ(mpi_processes(), 1);
  EXPECT_EQ(rank_on_host(0), 0);
  EXPECT_EQ(rank_on_host(2), 2);
}

TEST(Launcher, SeesTasksThatOpenMpiCannotConnect) {
  {
    const Environment srun({{"SLURM_NTASKS", "4"},
                            {"SLURM_STEP_NUM_TASKS", "4"},
                            {"SLURM_PROCID", "2"},
                            {"SLURM_LOCALID", "0"}});
    EXPECT_EQ(mpi_processes(), 1);
    EXPECT_EQ(tasks_without_pmix(), 4);
    EXPECT_EQ(task_without_pmix(), 2);
    EXPECT_EQ(rank_on_host(2), 2);
  }
  const Environment mpich({{"PMI_SIZE", "2"}, {"PMI_RANK", "1"}});
  EXPECT_EQ(tasks_without_pmix(), 2);
  EXPECT_EQ(task_without_pmix(), 1);
}

}  // namespace
}  // namespace ridge
