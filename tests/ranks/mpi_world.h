// Tests of ranks that mpirun has started as processes of the test program, where it has.
#pragma once

#include <filesystem>
#include <memory>

#include "ranks/mpi.h"
#include "running_program.h"

namespace ridge {

// All processes of mpirun; null where the program was started without. MPI ends with the program.
inline Communicator* mpi_world() {
  struct World {
    std::unique_ptr<Communicator> ranks = make_mpi_world();
    ~World() { ranks->close(); }
  };
  if (mpi_processes() <= 1) return nullptr;
  static World world;
  return world.ranks.get();
}

// Another communicator, which stays open when this one is closed.
class BorrowedRanks final : public Communicator {
 public:
  explicit BorrowedRanks(Communicator& ranks) : ranks_(ranks) {}
  int rank() const override { return ranks_.rank(); }
  int size() const override { return ranks_.size(); }
  std::string name() const override { return ranks_.name(); }
  void barrier() override { ranks_.barrier(); }
  void broadcast(int root, std::span<std::byte> bytes) override { ranks_.broadcast(root, bytes); }
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) override {
    ranks_.all_gather(mine, all);
  }
  void all_to_all(std::span<const std::byte> from, std::span<std::byte> to) override {
    ranks_.all_to_all(from, to);
  }
  void send(int to, std::span<const std::byte> bytes) override { ranks_.send(to, bytes); }
  void receive(int from, std::span<std::byte> bytes) override { ranks_.receive(from, bytes); }
  void fail(const std::string& message) override { ranks_.fail(message); }
  std::string failure() const override { return ranks_.failure(); }

 private:
  Communicator& ranks_;
};

// This program again as `processes` ranks, with the tests of `filter` alone.
inline std::vector<std::string> this_under_mpi(const std::string& processes,
                                               const std::string& filter) {
  return under_mpi(processes, {std::filesystem::read_symlink("/proc/self/exe").string(),
                               "--gtest_color=no", "--gtest_filter=" + filter});
}

}  // namespace ridge
