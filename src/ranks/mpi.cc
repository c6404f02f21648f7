#include "ranks/mpi.h"

#include <dlfcn.h>
#include <sched.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <utility>

#include "base/cpu_pause.h"
#include "base/error.h"

namespace ridge {
namespace {

// Open MPI's binary interface: handles are addresses, constants as in its mpi.h since version 2.
using Handle = void*;
constexpr int kThreadSerialized = 2;
constexpr size_t kMaxPiece = 1 << 30;  // counts are ints

class MpiLibrary {
 public:
  static MpiLibrary& get() {
    static MpiLibrary library;
    return library;
  }

  int (*init_thread)(int*, char***, int, int*) = nullptr;
  int (*finalize)() = nullptr;
  int (*abort)(Handle, int) = nullptr;
  int (*comm_rank)(Handle, int*) = nullptr;
  int (*comm_size)(Handle, int*) = nullptr;
  int (*comm_split)(Handle, int, int, Handle*) = nullptr;
  int (*ibarrier)(Handle, Handle*) = nullptr;
  int (*ibcast)(void*, int, Handle, int, Handle, Handle*) = nullptr;
  int (*iallgather)(const void*, int, Handle, void*, int, Handle, Handle, Handle*) = nullptr;
  int (*ialltoall)(const void*, int, Handle, void*, int, Handle, Handle, Handle*) = nullptr;
  int (*isend)(const void*, int, Handle, int, int, Handle, Handle*) = nullptr;
  int (*irecv)(void*, int, Handle, int, int, Handle, Handle*) = nullptr;
  int (*test)(Handle*, int*, void*) = nullptr;
  Handle world = nullptr, byte = nullptr;

 private:
  MpiLibrary() {
    for (const char* name : {"libmpi.so.40", "libmpi.so"}) {
      // Its own plug-ins look for its symbols.
      library_ = dlopen(name, RTLD_NOW | RTLD_GLOBAL);
      if (library_ != nullptr) break;
    }
    if (library_ == nullptr) {
      throw Error(
          "libmpi.so.40 is not here: install openmpi-bin (Open MPI), or start without mpirun");
    }
    find(init_thread, "MPI_Init_thread");
    find(finalize, "MPI_Finalize");
    find(abort, "MPI_Abort");
    find(comm_rank, "MPI_Comm_rank");
    find(comm_size, "MPI_Comm_size");
    find(comm_split, "MPI_Comm_split");
    find(ibarrier, "MPI_Ibarrier");
    find(ibcast, "MPI_Ibcast");
    find(iallgather, "MPI_Iallgather");
    find(ialltoall, "MPI_Ialltoall");
    find(isend, "MPI_Isend");
    find(irecv, "MPI_Irecv");
    find(test, "MPI_Test");
    find(world, "ompi_mpi_comm_world");
    find(byte, "ompi_mpi_byte");
  }

  template <typename T>
  void find(T& to, const char* name) {
    void* symbol = dlsym(library_, name);
    if (symbol == nullptr) throw Error("libmpi has no {}: Open MPI 2 or newer is needed", name);
    to = reinterpret_cast<T>(symbol);
  }

  void* library_ = nullptr;
};

class MpiCommunicator final : public Communicator {
 public:
  explicit MpiCommunicator(Handle handle) : handle_(handle) {
    mpi_.comm_rank(handle_, &rank_);
    mpi_.comm_size(handle_, &size_);
  }
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string name() const override { return "MPI"; }
  Handle handle() const { return handle_; }

  void barrier() override {
    finish([&](Handle* request) { return mpi_.ibarrier(handle_, request); });
  }
  void broadcast(int root, std::span<std::byte> bytes) override {
    for_pieces(bytes.size(), kMaxPiece, [&](size_t at, int count) {
      finish([&](Handle* request) {
        return mpi_.ibcast(&bytes[at], count, mpi_.byte, root, handle_, request);
      });
    });
  }
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) override {
    const int count = one_piece(mine.size());
    finish([&](Handle* request) {
      return mpi_.iallgather(mine.data(), count, mpi_.byte, all.data(), count, mpi_.byte, handle_,
                             request);
    });
  }
  void all_to_all(std::span<const std::byte> from, std::span<std::byte> to) override {
    const int count = one_piece(from.size() / size_t(size_));
    finish([&](Handle* request) {
      return mpi_.ialltoall(from.data(), count, mpi_.byte, to.data(), count, mpi_.byte, handle_,
                            request);
    });
  }
  void send(int to, std::span<const std::byte> bytes) override {
    for_pieces(bytes.size(), kMaxPiece, [&](size_t at, int count) {
      finish([&](Handle* request) {
        return mpi_.isend(&bytes[at], count, mpi_.byte, to, 0, handle_, request);
      });
    });
  }
  void receive(int from, std::span<std::byte> bytes) override {
    for_pieces(bytes.size(), kMaxPiece, [&](size_t at, int count) {
      finish([&](Handle* request) {
        return mpi_.irecv(&bytes[at], count, mpi_.byte, from, 0, handle_, request);
      });
    });
  }

  // The others wait inside MPI and can be told by nothing but the end of the run.
  void fail(const std::string& message) override {
    if (!failure_.empty()) return;
    failure_ = message;
    if (rank_ == 0) return;  // the leader's error is the program's
    std::fprintf(stderr, "ridge: %s\n", message.c_str());
    mpi_.abort(mpi_.world, 2);
  }
  std::string failure() const override { return failure_; }
  // A process that ends without is an error to mpirun, which then ends the others.
  void close() override {
    if (failure_.empty()) mpi_.finalize();
  }

 private:
  template <typename Move>
  static void for_pieces(size_t bytes, size_t room, const Move& move) {
    for (size_t at = 0; at < bytes; at += room) {
      move(at, static_cast<int>(std::min(room, bytes - at)));
    }
  }
  static int one_piece(size_t bytes) {
    if (bytes > kMaxPiece) throw Error("a message of {} bytes is too long for MPI", bytes);
    return static_cast<int>(bytes);
  }

  // Begins an operation and waits for its end, or for the deadline.
  template <typename Begin>
  void finish(const Begin& begin) {
    if (!failure_.empty()) throw Error(failure_);
    Handle request = nullptr;
    if (begin(&request) != 0) throw Error("MPI refused a message between ranks");
    using Clock = std::chrono::steady_clock;
    const Clock::time_point start = Clock::now();
    for (int looks = 0;; ++looks) {
      int done = 0;
      if (mpi_.test(&request, &done, nullptr) != 0) throw Error("a message between ranks was lost");
      if (done != 0) return;
      if (looks < 1000) {
        cpu_pause();
        continue;
      }
      const Clock::duration waited = Clock::now() - start;
      if (deadline() != kNoDeadline && waited > deadline()) {
        fail(fmt::format("rank {} waited {:g} s for the others", rank_,
                         std::chrono::duration<double>(deadline()).count()));
        throw Error(failure_);
      }
      // As in shared memory: ranks that work arrive together, those of an idle server sleep.
      if (waited > std::chrono::milliseconds(200)) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      } else {
        sched_yield();
      }
    }
  }

  MpiLibrary& mpi_ = MpiLibrary::get();
  Handle handle_;
  int rank_ = 0, size_ = 1;
  std::string failure_;
};

}  // namespace

int mpi_processes() {
  const auto number = [](const char* name) {
    const char* text = std::getenv(name);
    return text == nullptr ? 0 : std::atoi(text);
  };
  if (const int processes = number("OMPI_COMM_WORLD_SIZE"); processes > 0) return processes;
  const bool by_pmix = std::getenv("PMIX_RANK") != nullptr;
  return by_pmix ? std::max(1, number("SLURM_NTASKS")) : 1;
}

std::unique_ptr<Communicator> make_mpi_world() {
  MpiLibrary& mpi = MpiLibrary::get();
  int given = 0;
  if (mpi.init_thread(nullptr, nullptr, kThreadSerialized, &given) != 0) {
    throw Error("MPI could not be started");
  }
  if (given < kThreadSerialized) throw Error("this MPI was built without threads");
  return std::make_unique<MpiCommunicator>(mpi.world);
}

std::unique_ptr<Communicator> split_mpi(Communicator& world, int group) {
  const auto& all = dynamic_cast<const MpiCommunicator&>(world);
  Handle part = nullptr;
  MpiLibrary::get().comm_split(all.handle(), group, all.rank(), &part);
  return std::make_unique<MpiCommunicator>(part);
}

}  // namespace ridge
