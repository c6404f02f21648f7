#include "ranks/mpi.h"

#include <dlfcn.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <thread>
#include <utility>

#include "base/cpu_pause.h"
#include "base/error.h"
#include "ranks/local_copy.h"
#include "ranks/rank_processes.h"

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

  // Dissemination: after round k a rank knows of the 2^(k+1) ranks before it.
  void barrier() override {
    const std::byte here{};
    std::byte there{};
    for (int step = 1; step < size_; step *= 2) {
      post_receive((rank_ - step + size_) % size_, {&there, 1}, Tag::collective);
      post_send((rank_ + step) % size_, {&here, 1}, Tag::collective);
      finish();
    }
  }
  // A binomial tree: who has the bytes sends them half of the remaining way on.
  void broadcast(int root, std::span<std::byte> bytes) override {
    const int place = (rank_ - root + size_) % size_;
    int step = 1;
    for (; step < size_; step *= 2) {
      if ((place & step) == 0) continue;
      post_receive((place - step + root) % size_, bytes, Tag::collective);
      finish();
      break;
    }
    for (step /= 2; step > 0; step /= 2) {
      if (place + step < size_) post_send((place + step + root) % size_, bytes, Tag::collective);
    }
    finish();
  }
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) override {
    exchange([&](int) { return mine; },
             [&](int other) { return all.subspan(size_t(other) * mine.size(), mine.size()); });
  }
  void all_to_all(std::span<const std::byte> from, std::span<std::byte> to) override {
    const size_t part = from.size() / size_t(size_);
    exchange([&](int other) { return from.subspan(size_t(other) * part, part); },
             [&](int other) { return to.subspan(size_t(other) * part, part); });
  }
  void send(int to, std::span<const std::byte> bytes) override {
    post_send(to, bytes, Tag::message);
    finish();
  }
  void receive(int from, std::span<std::byte> bytes) override {
    post_receive(from, bytes, Tag::message);
    finish();
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
  // Messages of a caller and of a collective may be on their way at the same time.
  enum class Tag : uint8_t { message, collective };

  // Every rank with every other at once. Open MPI's own non-blocking gather and broadcast take two
  // to three times as long here (docs/ranks.md).
  template <typename From, typename To>
  void exchange(const From& from, const To& to) {
    for (int other = 0; other < size_; ++other) {
      if (other != rank_) post_receive(other, to(other), Tag::collective);
    }
    for (int step = 1; step < size_; ++step) {  // not all to rank 0 first
      const int other = (rank_ + step) % size_;
      post_send(other, from(other), Tag::collective);
    }
    copy_locally(to(rank_).data(), from(rank_).data(), to(rank_).size());
    finish();
  }

  // Counts are ints: longer messages go in pieces.
  void post_send(int to, std::span<const std::byte> bytes, Tag tag) {
    for (size_t at = 0; at < bytes.size(); at += kMaxPiece) {
      const auto count = static_cast<int>(std::min(kMaxPiece, bytes.size() - at));
      check_begun(mpi_.isend(bytes.data() + at, count, mpi_.byte, to, int(tag), handle_, add()));
    }
  }
  void post_receive(int from, std::span<std::byte> bytes, Tag tag) {
    for (size_t at = 0; at < bytes.size(); at += kMaxPiece) {
      const auto count = static_cast<int>(std::min(kMaxPiece, bytes.size() - at));
      check_begun(mpi_.irecv(bytes.data() + at, count, mpi_.byte, from, int(tag), handle_, add()));
    }
  }
  Handle* add() {
    if (!failure_.empty()) throw Error(failure_);
    return &pending_.emplace_back(nullptr);
  }
  static void check_begun(int result) {
    if (result != 0) throw Error("MPI refused a message between ranks");
  }

  bool all_done() {
    while (!pending_.empty()) {
      int done = 0;
      if (mpi_.test(&pending_.back(), &done, nullptr) != 0) {
        throw Error("a message between ranks was lost");
      }
      if (done == 0) return false;
      pending_.pop_back();
    }
    return true;
  }

  // Waits for the end of what was begun, or for the deadline.
  void finish() {
    using Clock = std::chrono::steady_clock;
    const Clock::time_point start = Clock::now();
    for (int looks = 0; !all_done(); ++looks) {
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
  std::deque<Handle> pending_;  // requests; MPI keeps their addresses until they are done
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

void end_unless_leader(const Communicator& world) {
  if (world.rank() == 0) return;
  std::this_thread::sleep_for(std::chrono::seconds(5));
  _exit(kFailedRankExitCode);
}

std::unique_ptr<Communicator> split_mpi(Communicator& world, int group) {
  const auto& all = dynamic_cast<const MpiCommunicator&>(world);
  Handle part = nullptr;
  MpiLibrary::get().comm_split(all.handle(), group, all.rank(), &part);
  return std::make_unique<MpiCommunicator>(part);
}

}  // namespace ridge
