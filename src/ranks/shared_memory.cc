#include "ranks/shared_memory.h"

#include <sched.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <new>
#include <thread>

#include "base/cpu_pause.h"
#include "base/error.h"
#include "cost/collective.h"
#include "ranks/local_copy.h"

namespace ridge {
namespace {

constexpr size_t kSlotBytes = 1 << 20;     // of one rank in one set; longer messages go in pieces
constexpr size_t kMailboxBytes = 2 << 20;  // of one pair of ranks
constexpr int kMaxRanks = 64;
constexpr size_t kMessageBytes = 512;

struct alignas(64) Counter {
  std::atomic<uint32_t> value{0};
};

// One sender, one receiver: the bytes are free while taken == filled.
struct alignas(64) Mailbox {
  Counter filled, taken;
  std::byte bytes[kMailboxBytes];
};

enum class Failure : uint32_t { none, writing, told };

struct Header {
  std::atomic<Failure> failure{Failure::none};
  char message[kMessageBytes] = {};
  Counter arrived[kMaxRanks];  // how many barriers this rank has entered
};
static_assert(std::atomic<uint32_t>::is_always_lock_free &&
              std::atomic<Failure>::is_always_lock_free);

}  // namespace

class SharedRegion {
 public:
  explicit SharedRegion(int ranks) : ranks_(ranks) {
    const auto count = static_cast<size_t>(ranks);
    bytes_ = sizeof(Header) + 2 * count * kSlotBytes + count * count * sizeof(Mailbox);
    // Pages that no message touches take no memory.
    void* memory = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) throw Error("no shared memory for {} ranks", ranks);
    memory_ = static_cast<std::byte*>(memory);
    new (memory_) Header;
    // The mailboxes' counters begin as the zeros of fresh memory.
  }
  ~SharedRegion() { munmap(memory_, bytes_); }
  SharedRegion(const SharedRegion&) = delete;
  SharedRegion& operator=(const SharedRegion&) = delete;

  int ranks() const { return ranks_; }
  Header& header() const { return *reinterpret_cast<Header*>(memory_); }
  std::byte* slot(int set, int rank) const {
    const auto index = static_cast<size_t>(set * ranks_ + rank);
    return memory_ + sizeof(Header) + index * kSlotBytes;
  }
  Mailbox& mailbox(int from, int to) const {
    std::byte* first = slot(2, 0);  // behind the two sets
    return reinterpret_cast<Mailbox*>(first)[from * ranks_ + to];
  }

 private:
  int ranks_;
  size_t bytes_ = 0;
  std::byte* memory_ = nullptr;
};

namespace {

class SharedCommunicator final : public Communicator {
 public:
  SharedCommunicator(std::shared_ptr<SharedRegion> region, int rank,
                     std::function<std::string()> lost, int first)
      : region_(std::move(region)), rank_(rank), lost_(std::move(lost)), first_(first) {}

  int rank() const override { return rank_; }
  int size() const override { return region_->ranks(); }
  std::string name() const override { return "shared memory"; }

  void barrier() override {
    Header& header = region_->header();
    const uint32_t mine = header.arrived[rank_].value.fetch_add(1, std::memory_order_acq_rel) + 1;
    for (int other = 0; other < size(); ++other) {
      const auto& theirs = header.arrived[other].value;
      // The difference is small, so it is right also after the counters wrap.
      wait(other, [&] { return int32_t(theirs.load(std::memory_order_acquire) - mine) >= 0; });
    }
  }

  void broadcast(int root, std::span<std::byte> bytes) override {
    for_pieces(bytes.size(), kSlotBytes, [&](size_t at, size_t count) {
      const int set = next_set();
      if (rank_ == root) std::memcpy(region_->slot(set, rank_), &bytes[at], count);
      barrier();
      if (rank_ != root) std::memcpy(&bytes[at], region_->slot(set, root), count);
    });
  }

  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) override {
    for_pieces(mine.size(), kSlotBytes, [&](size_t at, size_t count) {
      const int set = next_set();
      std::memcpy(region_->slot(set, rank_), &mine[at], count);
      barrier();
      for (int other = 0; other < size(); ++other) {
        std::byte* to = &all[size_t(other) * mine.size() + at];
        if (other == rank_) {
          copy_locally(to, &mine[at], count);
        } else {
          std::memcpy(to, region_->slot(set, other), count);
        }
      }
    });
  }

  void all_to_all(std::span<const std::byte> from, std::span<std::byte> to) override {
    const auto ranks = static_cast<size_t>(size());
    const size_t part = from.size() / ranks, room = kSlotBytes / ranks;
    for_pieces(part, room, [&](size_t at, size_t count) {
      const int set = next_set();
      for (size_t other = 0; other < ranks; ++other) {
        const std::byte* theirs = &from[other * part + at];
        if (int(other) == rank_) {
          copy_locally(&to[other * part + at], theirs, count);
        } else {
          std::memcpy(region_->slot(set, rank_) + other * count, theirs, count);
        }
      }
      barrier();
      for (size_t other = 0; other < ranks; ++other) {
        if (int(other) == rank_) continue;
        std::memcpy(&to[other * part + at], region_->slot(set, int(other)) + size_t(rank_) * count,
                    count);
      }
    });
  }

  // One-shot: every rank adds up all of it. Two-shot: every rank adds up one part, then all take
  // all parts, which is less to read where more than two share the work.
  void all_reduce(std::span<float> values) override {
    if (size() == 1) return;
    const bool one_shot = all_reduce_is_one_shot(double(values.size_bytes()), size());
    for_pieces(values.size(), kSlotBytes / sizeof(float), [&](size_t at, size_t count) {
      const std::span<float> piece = values.subspan(at, count);
      const int set = next_set();
      std::memcpy(slot_floats(set, rank_), piece.data(), piece.size_bytes());
      barrier();
      if (one_shot) {
        add_slots(set, 0, piece);
        return;
      }
      const SharedPart mine = part_of(count, rank_);
      add_slots(set, mine.first, piece.subspan(mine.first, mine.count));
      const int sums = next_set();
      std::memcpy(slot_floats(sums, rank_), piece.data() + mine.first, mine.count * sizeof(float));
      barrier();
      for (int other = 0; other < size(); ++other) {
        if (other == rank_) continue;
        const SharedPart theirs = part_of(count, other);
        std::memcpy(piece.data() + theirs.first, slot_floats(sums, other),
                    theirs.count * sizeof(float));
      }
    });
  }

  void reduce_scatter(std::span<const float> values, std::span<float> part) override {
    const auto ranks = static_cast<size_t>(size());
    if (ranks == 1) {
      std::copy(values.begin(), values.end(), part.begin());
      return;
    }
    const size_t room = kSlotBytes / sizeof(float) / ranks;
    for_pieces(part.size(), room, [&](size_t at, size_t count) {
      const int set = next_set();
      for (size_t other = 0; other < ranks; ++other) {
        std::memcpy(slot_floats(set, rank_) + other * count, &values[other * part.size() + at],
                    count * sizeof(float));
      }
      barrier();
      add_slots(set, size_t(rank_) * count, part.subspan(at, count));
    });
  }

  void send(int to, std::span<const std::byte> bytes) override {
    Mailbox& box = region_->mailbox(rank_, to);
    for_pieces(bytes.size(), kMailboxBytes, [&](size_t at, size_t count) {
      const uint32_t before = box.filled.value.load(std::memory_order_relaxed);
      wait(to, [&] { return box.taken.value.load(std::memory_order_acquire) == before; });
      std::memcpy(box.bytes, &bytes[at], count);
      box.filled.value.store(before + 1, std::memory_order_release);
    });
  }
  void receive(int from, std::span<std::byte> bytes) override {
    Mailbox& box = region_->mailbox(from, rank_);
    for_pieces(bytes.size(), kMailboxBytes, [&](size_t at, size_t count) {
      const uint32_t before = box.taken.value.load(std::memory_order_relaxed);
      wait(from, [&] { return box.filled.value.load(std::memory_order_acquire) != before; });
      std::memcpy(&bytes[at], box.bytes, count);
      box.taken.value.store(before + 1, std::memory_order_release);
    });
  }

  void fail(const std::string& message) override {
    Header& header = region_->header();
    Failure none = Failure::none;
    if (!header.failure.compare_exchange_strong(none, Failure::writing))
      return;  // the first counts
    const size_t count = std::min(message.size(), kMessageBytes - 1);
    std::memcpy(header.message, message.data(), count);
    header.failure.store(Failure::told, std::memory_order_release);
  }
  std::string failure() const override {
    const Header& header = region_->header();
    const bool told = header.failure.load(std::memory_order_acquire) == Failure::told;
    return told ? header.message : "";
  }

 private:
  // Messages longer than a slot go piece by piece.
  template <typename Move>
  static void for_pieces(size_t bytes, size_t room, const Move& move) {
    for (size_t at = 0; at < bytes; at += room) move(at, std::min(room, bytes - at));
  }

  int next_set() {
    set_ ^= 1;
    return set_;
  }

  float* slot_floats(int set, int rank) const {
    return reinterpret_cast<float*>(region_->slot(set, rank));
  }

  struct SharedPart {
    size_t first, count;
  };
  // Of `count` floats the part that `rank` adds up; the last ones may be shorter or empty.
  SharedPart part_of(size_t count, int rank) const {
    const size_t each = (count + size_t(size()) - 1) / size_t(size());
    const size_t first = std::min(count, each * size_t(rank));
    return {first, std::min(each, count - first)};
  }

  // to[i] = the sum over the ranks, in their order, of what their slots hold at first + i.
  void add_slots(int set, size_t first, std::span<float> to) const {
    const float* zero = slot_floats(set, 0) + first;
    const float* one = slot_floats(set, 1) + first;
    for (size_t i = 0; i < to.size(); ++i) to[i] = zero[i] + one[i];
    for (int rank = 2; rank < size(); ++rank) {
      const float* more = slot_floats(set, rank) + first;
      for (size_t i = 0; i < to.size(); ++i) to[i] += more[i];
    }
  }

  // Spins for about 50 us, as ranks that work side by side arrive together; then yields; a rank
  // that waits for long (an idle server's) sleeps.
  template <typename Done>
  void wait(int on, const Done& done) {
    for (int i = 0; i < 1000; ++i) {
      if (done()) return;
      cpu_pause();
    }
    using std::chrono::steady_clock;
    const steady_clock::time_point start = steady_clock::now();
    steady_clock::time_point looked = start;
    for (;;) {
      if (done()) return;
      const steady_clock::time_point now = steady_clock::now();
      if (now - looked > std::chrono::milliseconds(5)) {
        looked = now;
        const std::string why = why_lost(on, now - start);
        if (done()) return;  // who had nothing more to do may have ended by now
        if (!why.empty()) fail(why);
        // The first failure counts; it is not there yet if its rank ended while it wrote it.
        if (const std::string told = failure(); !told.empty()) throw Error("{}", told);
        if (!why.empty()) throw Error("{}", why);
      }
      if (now - start > std::chrono::milliseconds(200)) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      } else {
        sched_yield();
      }
    }
  }

  // Why rank `on` cannot be waited for any longer; empty: it can.
  std::string why_lost(int on, std::chrono::steady_clock::duration waited) {
    std::string why = lost_ ? lost_() : std::string();
    if (why.empty() && deadline() != kNoDeadline && waited > deadline()) {
      why = fmt::format("rank {} waited {:g} s for rank {}, or for one that this waits for",
                        first_ + rank_, std::chrono::duration<double>(deadline()).count(),
                        first_ + on);
    }
    return why;
  }

  std::shared_ptr<SharedRegion> region_;
  int rank_;
  std::function<std::string()> lost_;
  int first_;
  int set_ = 0;
};

}  // namespace

std::shared_ptr<SharedRegion> make_shared_region(int ranks) {
  if (ranks < 1 || ranks > kMaxRanks) throw Error("{} ranks: from 1 to {}", ranks, kMaxRanks);
  return std::make_shared<SharedRegion>(ranks);
}

std::unique_ptr<Communicator> join_shared_region(std::shared_ptr<SharedRegion> region, int rank,
                                                 std::function<std::string()> lost, int first) {
  return std::make_unique<SharedCommunicator>(std::move(region), rank, std::move(lost), first);
}

}  // namespace ridge
