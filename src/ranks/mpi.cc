#include "ranks/mpi.h"

#include <fmt/ranges.h>
#include <sched.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <set>
#include <thread>
#include <utility>

#include "base/cpu_pause.h"
#include "base/error.h"
#include "ranks/local_copy.h"
#include "ranks/mpi_failures.h"
#include "ranks/mpi_library.h"

namespace ridge {
namespace {

class MpiCommunicator final : public Communicator {
 public:
  // All processes of the run.
  explicit MpiCommunicator(MpiHandle world) : handle_(world) {
    find_place();
    for (int rank = 0; rank < size_; ++rank) world_ranks_.push_back(rank);
    failures_ = std::make_shared<MpiFailures>(rank_, int(Tag::report));
  }
  // Some of them.
  MpiCommunicator(MpiHandle part, const MpiCommunicator& world)
      : handle_(part), failures_(world.failures_) {
    find_place();
    world_ranks_.assign(size_t(size_), world.rank());  // until the others' numbers are known
    const int mine = world.rank();
    std::vector<int> all(world_ranks_.size());
    all_gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)));
    world_ranks_ = std::move(all);
  }
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string name() const override { return "MPI"; }
  MpiHandle handle() const { return handle_; }

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

  void fail(const std::string& message) override {
    failures_->fail({world_rank(rank_), RankReport::kNobody, message});
  }
  std::string failure() const override { return failures_->failure(); }
  // MPI_Finalize waits for all ranks, for ever: so they meet before it. A process that ends without
  // it is an error to mpirun, which then ends the others.
  void close() override {
    if (!failure().empty()) return;
    if (deadline() != kNoDeadline) set_deadline(std::max<Deadline>(deadline(), kShortestClose));
    barrier();
    failures_->close();
    mpi_.finalize();
  }

 private:
  // Messages of a caller and of a collective may be on their way at the same time.
  enum class Tag : uint8_t { message, collective, report };
  // A message that has begun, and the rank at its other end.
  struct Pending {
    MpiHandle request = nullptr;
    int peer = 0;
  };
  // Some ranks first free their weights.
  static constexpr std::chrono::seconds kShortestClose{30};

  void find_place() {
    mpi_.comm_rank(handle_, &rank_);
    mpi_.comm_size(handle_, &size_);
    mpi_.return_errors(handle_);
  }
  int world_rank(int rank) const { return world_ranks_[size_t(rank)]; }

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
    for (size_t at = 0; at < bytes.size(); at += kMpiMaxPiece) {
      const auto count = static_cast<int>(std::min(kMpiMaxPiece, bytes.size() - at));
      MpiHandle* request = add(to);
      check(to, mpi_.isend(bytes.data() + at, count, mpi_.byte, to, int(tag), handle_, request));
    }
  }
  void post_receive(int from, std::span<std::byte> bytes, Tag tag) {
    for (size_t at = 0; at < bytes.size(); at += kMpiMaxPiece) {
      const auto count = static_cast<int>(std::min(kMpiMaxPiece, bytes.size() - at));
      MpiHandle* request = add(from);
      check(from,
            mpi_.irecv(bytes.data() + at, count, mpi_.byte, from, int(tag), handle_, request));
    }
  }
  MpiHandle* add(int peer) {
    if (const std::string& why = failures_->failure_so_far(); !why.empty()) throw Error("{}", why);
    return &pending_.emplace_back(Pending{nullptr, peer}).request;
  }
  void check(int peer, int result) {
    if (result == 0) return;
    fail(fmt::format("rank {}: a message from or to rank {} failed: {}", world_rank(rank_),
                     world_rank(peer), mpi_.error_text(result)));
    throw Error("{}", failure());
  }

  bool is_done(Pending& message) {
    int done = 0;
    check(message.peer, mpi_.test(&message.request, &done, nullptr));
    return done != 0;
  }
  bool all_done() {
    while (!pending_.empty()) {
      if (!is_done(pending_.back())) return false;
      pending_.pop_back();
    }
    return true;
  }

  // Waits for the end of what was begun, or for the deadline.
  void finish() {
    using std::chrono::steady_clock;
    const steady_clock::time_point start = steady_clock::now();
    steady_clock::time_point looked = start;
    for (int looks = 0; !all_done(); ++looks) {
      if (looks < 1000) {
        cpu_pause();
        continue;
      }
      const steady_clock::time_point now = steady_clock::now();
      if (now - looked > std::chrono::milliseconds(5)) {
        looked = now;
        if (deadline() != kNoDeadline && now - start > deadline()) fail_at_deadline();
        if (const std::string why = failure(); !why.empty()) throw Error("{}", why);
      }
      // As in shared memory: ranks that work arrive together, those of an idle server sleep.
      if (now - start > std::chrono::milliseconds(200)) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      } else {
        sched_yield();
      }
    }
  }

  void fail_at_deadline() {
    std::set<int> missing;
    for (Pending& message : pending_) {
      if (!is_done(message)) missing.insert(world_rank(message.peer));
    }
    if (missing.empty()) return;  // the last message came just now
    const double seconds = std::chrono::duration<double>(deadline()).count();
    failures_->fail(
        {world_rank(rank_), *missing.begin(),
         fmt::format("rank {} waited {:g} s for rank{} {}, or for one that {} for",
                     world_rank(rank_), seconds, missing.size() > 1 ? "s" : "",
                     fmt::join(missing, ", "), missing.size() > 1 ? "these wait" : "this waits")});
  }

  MpiLibrary& mpi_ = MpiLibrary::get();
  MpiHandle handle_;
  int rank_ = 0, size_ = 1;
  std::vector<int> world_ranks_;  // of this communicator's ranks
  std::shared_ptr<MpiFailures> failures_;
  std::deque<Pending> pending_;  // MPI keeps the addresses of the requests until they are done
};

}  // namespace

std::unique_ptr<Communicator> make_mpi_world() {
  MpiLibrary& mpi = MpiLibrary::get();
  int given = 0;
  if (mpi.init_thread(nullptr, nullptr, kMpiThreadSerialized, &given) != 0) {
    throw Error("MPI could not be started");
  }
  if (given < kMpiThreadSerialized) throw Error("this MPI was built without threads");
  return std::make_unique<MpiCommunicator>(mpi.world);
}

void end_unless_leader(const Communicator& world) {
  if (world.rank() != 0) end_with_leader();
}

std::unique_ptr<Communicator> split_mpi(Communicator& world, int group) {
  const auto& all = dynamic_cast<const MpiCommunicator&>(world);
  MpiHandle part = nullptr;
  MpiLibrary& mpi = MpiLibrary::get();
  if (const int result = mpi.comm_split(all.handle(), group, all.rank(), &part); result != 0) {
    throw Error("MPI could not group the ranks: {}", mpi.error_text(result));
  }
  return std::make_unique<MpiCommunicator>(part, all);
}

}  // namespace ridge
