#include "engine/ranks/leader_runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <numeric>
#include <set>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "engine/account/profile.h"
#include "engine/ranks/cut_weights.h"
#include "engine/ranks/time_link.h"
#include "engine/sampling/merge_top_logits.h"
#include "engine/sampling/sampled_steps.h"
#include "ranks/packet.h"

namespace ridge {
namespace {

enum class Call : uint8_t {
  run,
  sample,
  logits,
  copy_pages,
  fill_cache,
  read_rate,
  time_link,
  profile,
  end
};

// A call travels as a first piece of fixed length, which holds most of them whole, and the rest.
constexpr size_t kFirstPiece = 2048;

struct FirstPiece {
  uint64_t bytes = 0;
  std::byte begin[kFirstPiece];
};

void tell(Communicator& world, Packet& call) {
  FirstPiece first;
  first.bytes = call.bytes().size();
  std::copy_n(call.bytes().begin(), std::min(call.bytes().size(), kFirstPiece), first.begin);
  world.broadcast(0, std::as_writable_bytes(std::span(&first, 1)));
  if (first.bytes > kFirstPiece) world.broadcast(0, call.bytes().subspan(kFirstPiece));
}

void hear(Communicator& world, Packet& call) {
  FirstPiece first;
  // The next call comes when a user wants something.
  const Communicator::Deadline usual = world.deadline();
  world.set_deadline(Communicator::kNoDeadline);
  world.broadcast(0, std::as_writable_bytes(std::span(&first, 1)));
  world.set_deadline(usual);
  call.reset(first.bytes);
  std::copy_n(first.begin, std::min<size_t>(first.bytes, kFirstPiece), call.bytes().begin());
  if (first.bytes > kFirstPiece) world.broadcast(0, call.bytes().subspan(kFirstPiece));
}

void send_packet(Communicator& world, int to, Packet& packet) {
  const uint64_t bytes = packet.bytes().size();
  world.send(to, std::as_bytes(std::span(&bytes, 1)));
  world.send(to, packet.bytes());
}

void receive_packet(Communicator& world, int from, Packet& packet) {
  uint64_t bytes = 0;
  world.receive(from, std::as_writable_bytes(std::span(&bytes, 1)));
  packet.reset(bytes);
  world.receive(from, packet.bytes());
}

void put(Packet& to, const TopLogitsRequest& request) {
  to.put(request.count);
  to.put(request.scale);
  to.put_list(std::span(request.tokens));
  to.put(request.draw);
  to.put(request.key);
}
TopLogitsRequest get_request(Packet& from) {
  TopLogitsRequest request;
  request.count = from.get<int>();
  request.scale = from.get<float>();
  from.get_list(request.tokens);
  request.draw = from.get<bool>();
  request.key = from.get<uint64_t>();
  return request;
}

void put(Packet& to, const TopLogits& row) {
  to.put(row.broken);
  to.put(row.log_sum);
  to.put(row.scaled_sum);
  to.put_list(std::span(row.candidates));
  to.put_list(std::span(row.requested));
  to.put(row.chosen);
}
TopLogits get_top_logits(Packet& from) {
  TopLogits row;
  row.broken = from.get<bool>();
  row.log_sum = from.get<double>();
  row.scaled_sum = from.get<double>();
  from.get_list(row.candidates);
  from.get_list(row.requested);
  row.chosen = from.get<Candidate>();
  return row;
}

double total(Communicator& world, double mine) {
  std::vector<double> all(static_cast<size_t>(world.size()));
  world.all_gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)));
  return std::accumulate(all.begin(), all.end(), 0.0);
}

// Bytes/s at which the ranks read their weights: those of a stage side by side, the stages one
// after the other, as in a step.
double read_rate_of_all(RankLinks& links, Runner& local) {
  struct Reads {
    double rate = 0, bytes = 0;
  };
  Communicator& world = *links.world;
  Reads mine{0, local.weights().bytes};
  for (int stage = 0; stage < links.grid.pp; ++stage) {
    world.barrier();
    if (stage == links.stage()) mine.rate = local.read_rate();
  }
  std::vector<Reads> all(size_t(world.size()));
  world.all_gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)));
  double bytes = 0, seconds = 0;
  for (int stage = 0; stage < links.grid.pp; ++stage) {
    Reads sum;
    for (int part = 0; part < links.grid.tp; ++part) {
      const Reads& rank = all[size_t(stage * links.grid.tp + part)];
      sum.rate += rank.rate, sum.bytes += rank.bytes;
    }
    if (sum.rate <= 0) return 0;
    bytes += sum.bytes, seconds += sum.bytes / sum.rate;
  }
  return bytes / seconds;
}

// Operators of one stage, in a message.
void put(Packet& to, const Profile& profile) {
  to.put(profile.entries().size());
  for (const Profile::Entry& entry : profile.entries()) {
    to.put_list(std::span(std::string_view(entry.name)));
    to.put(entry.seconds);
    to.put(entry.calls);
  }
}
// `receive` is the wait for the stage before, whose operators count.
void add_operators(Packet& from, Profile& to) {
  static std::set<std::string> names;  // those of a profile must outlive it
  for (auto left = from.get<size_t>(); left > 0; --left) {
    std::vector<char> name;
    from.get_list(name);
    const auto seconds = from.get<double>();
    const auto calls = from.get<long>();
    const std::string text(name.begin(), name.end());
    if (text != "receive") to.add(names.insert(text).first->c_str(), seconds, calls);
  }
}

// The first exchange: some ranks may load for minutes after others are ready.
double total_when_loaded(Communicator& world, double mine) {
  const Communicator::Deadline usual = world.deadline();
  world.set_deadline(Communicator::kNoDeadline);
  const double sum = total(world, mine);
  world.set_deadline(usual);
  return sum;
}

class LeaderRunner final : public Runner {
 public:
  LeaderRunner(Weights whole, std::unique_ptr<Runner> local, std::shared_ptr<RankLinks> links)
      : whole_(std::move(whole)),
        local_(std::move(local)),
        links_(std::move(links)),
        options_(local_->options()),
        sampled_(options_.logit_rows()) {
    options_.ranks = nullptr;  // seen from outside it is one
    repacked_ = total_when_loaded(*links_->world, local_->repacked_bytes());
  }
  ~LeaderRunner() override {
    if (!links_->world->failure().empty()) return;  // that was said, and nobody listens any more
    try {
      begin(Call::end);
      tell(*links_->world, call_);
      links_->ending = true;
      local_.reset();  // while the ranks can still talk
      links_->world->close();
    } catch (const Error& error) {  // the run is done, but mpirun will complain
      std::fprintf(stderr, "ridge: at the end of the run: %s\n", error.what());
    }
  }
  LeaderRunner(const LeaderRunner&) = delete;
  LeaderRunner& operator=(const LeaderRunner&) = delete;

  const Weights& weights() const override { return whole_; }
  const RunnerOptions& options() const override { return options_; }
  void set_profile(Profile* profile) override;
  double repacked_bytes() const override { return repacked_; }
  Plan plan() const override {
    const RankGrid& grid = links_->grid;
    Plan plan = local_->plan();
    plan.tp = grid.tp, plan.pp = grid.pp;
    if (grid.whole_experts) plan.ep = grid.tp;
    plan.sums = DType::fp32;
    plan.led = true;
    return plan;
  }
  std::string device() const override {
    const RankGrid& grid = links_->grid;
    return fmt::format("{} ranks over {} (tp {}, pp {}), each {}", grid.ranks(),
                       links_->world->name(), grid.tp, grid.pp, local_->device());
  }

  void run(std::span<const Slice> batch) override;
  std::span<const float> logits() override {
    together([&] { gather_logits(); });
    return logits_;
  }
  void sample(std::span<const TopLogitsRequest> requests) override;
  // The answers are taken here, not in sample(), where other stages may still be at the step.
  std::span<const TopLogits> fetch() override {
    together([&] { merge_answers(); });
    return sampled_.fetch();
  }
  void copy_pages(std::span<const PageCopy> copies) override {
    together([&] {
      begin(Call::copy_pages);
      call_.put_list(copies);
      tell(*links_->world, call_);
      local_->copy_pages(copies);
    });
  }
  void fill_cache(uint64_t seed) override {
    together([&] {
      begin(Call::fill_cache);
      call_.put(seed);
      tell(*links_->world, call_);
      local_->fill_cache(seed);
    });
  }
  double read_rate() override {
    double rate = 0;
    together([&] {
      merge_answers();
      begin(Call::read_rate);
      tell(*links_->world, call_);
      rate = read_rate_of_all(*links_, *local_);
    });
    return rate;
  }
  RankPlacement place_ranks() override {
    RankPlacement placement{links_->grid.ranks(), most_ranks_of_a_host(*links_), {}};
    together([&] {
      merge_answers();
      begin(Call::time_link);
      tell(*links_->world, call_);
      placement.link = time_link(*links_);
    });
    return placement;
  }

 private:
  // After an error in the middle of a call the ranks are no longer at the same place: the group has
  // failed, whichever communicator noticed.
  template <typename Work>
  void together(const Work& work) {
    try {
      work();
    } catch (const Error& error) {
      links_->world->fail(error.what());
      throw;
    }
  }
  void gather_logits();
  void merge_answers();
  void tell_timed(const char* name) {
    OperatorClock clock(profile_);
    clock.begin(name);
    tell(*links_->world, call_);
  }
  void begin(Call call) {
    call_.reset();
    call_.put(call);
  }
  // The ranks that hold the head, in the order of their parts of the vocabulary.
  int head_rank(int part) const { return (links_->grid.pp - 1) * links_->grid.tp + part; }

  Weights whole_;
  std::unique_ptr<Runner> local_;
  std::shared_ptr<RankLinks> links_;
  RunnerOptions options_;
  SampledSteps sampled_;
  Packet call_, answer_;
  std::vector<Token> tokens_;
  std::vector<Slice> slices_;
  std::vector<float> logits_, part_;
  int logit_rows_ = 0;
  std::vector<TopLogitsRequest> asked_;  // of the last sample(), until its answers are taken
  std::span<TopLogits> answers_;
  double repacked_ = 0;
  Profile* profile_ = nullptr;
};

// Ranks of a stage do the same at the same time, so rank 0 stands for its own. The operators of
// other stages come from the first rank of each, when the profile ends. Is called by destructors.
void LeaderRunner::set_profile(Profile* profile) {
  local_->set_profile(profile);
  Profile* const ended = std::exchange(profile_, profile);
  const RankGrid& grid = links_->grid;
  if (grid.pp == 1 || ended == profile || !links_->world->failure().empty()) return;
  try {
    together([&] {
      merge_answers();
      begin(Call::profile);
      call_.put(profile != nullptr);
      tell(*links_->world, call_);
      for (int stage = 1; stage < grid.pp; ++stage) {
        receive_packet(*links_->world, stage * grid.tp, answer_);
        if (ended != nullptr) add_operators(answer_, *ended);
      }
    });
  } catch (const Error&) {  // the group has failed, as its next call will say
  }
}

// Checked before anything is told, so that a step that cannot be leaves all ranks as they were.
void LeaderRunner::run(std::span<const Slice> batch) {
  check_step(batch, options(), whole_.architecture.vocab);
  together([&] { merge_answers(); });  // tokens may be those of the step before
  tokens_.clear();
  for (const Slice& slice : batch) {
    for (const Token token : slice.tokens) tokens_.push_back(sampled_.token_id(token));
  }
  begin(Call::run);
  call_.put(batch.size());
  slices_.assign(batch.begin(), batch.end());
  size_t at = 0;
  logit_rows_ = 0;
  for (Slice& slice : slices_) {
    slice.tokens = std::span(tokens_).subspan(at, slice.tokens.size());
    at += slice.tokens.size();
    logit_rows_ += slice.logits;
    call_.put_list(slice.tokens);
    call_.put(slice.past);
    call_.put_list(slice.pages);
    call_.put(slice.logits);
  }
  together([&] {
    tell_timed("step_broadcast");
    local_->run(slices_);
  });
  sampled_.begin_step();
}

void LeaderRunner::sample(std::span<const TopLogitsRequest> requests) {
  together([&] { merge_answers(); });
  answers_ = sampled_.sample(requests.size(), logit_rows_);
  asked_.assign(requests.begin(), requests.end());
  together([&] {
    begin(Call::sample);
    call_.put(requests.size());
    for (const TopLogitsRequest& request : requests) put(call_, request);
    tell_timed("sample_broadcast");
    if (links_->is_last_stage()) local_->sample(requests);
  });
}

// Of the last sample(), where that was not done.
void LeaderRunner::merge_answers() {
  if (asked_.empty()) return;
  const auto parts = static_cast<size_t>(links_->grid.tp);
  std::vector<std::vector<TopLogits>> of(asked_.size(), std::vector<TopLogits>(parts));
  OperatorClock clock(profile_);
  for (size_t p = 0; p < parts; ++p) {
    const int rank = head_rank(static_cast<int>(p));
    if (rank == 0) {
      const std::span<const TopLogits> mine = local_->fetch();
      for (size_t row = 0; row < of.size(); ++row) of[row][p] = mine[row];
      continue;
    }
    clock.begin("top_logits");
    receive_packet(*links_->world, rank, answer_);
    for (std::vector<TopLogits>& row : of) row[p] = get_top_logits(answer_);
  }
  for (size_t row = 0; row < of.size(); ++row) {
    answers_[row] = merge_top_logits(of[row], asked_[row]);
  }
  asked_.clear();
}

void LeaderRunner::gather_logits() {
  merge_answers();
  begin(Call::logits);
  tell(*links_->world, call_);
  const int vocab = whole_.architecture.vocab, parts = links_->grid.tp;
  const auto rows = static_cast<size_t>(logit_rows_);
  logits_.resize(rows * size_t(vocab));
  for (int p = 0; p < parts; ++p) {
    const RankPart range = vocabulary_part(vocab, p, parts);
    const auto columns = size_t(range.end - range.first);
    std::span<const float> part;
    if (const int rank = head_rank(p); rank == 0) {
      part = local_->logits();
    } else {
      part_.resize(rows * columns);
      links_->world->receive(rank, std::as_writable_bytes(std::span(part_)));
      part = part_;
    }
    for (size_t row = 0; row < rows; ++row) {
      std::copy_n(part.begin() + ptrdiff_t(row * columns), columns,
                  logits_.begin() + ptrdiff_t(row * size_t(vocab) + size_t(range.first)));
    }
  }
}

// Followers.

void run_heard(Runner& local, Packet& call) {
  const auto count = call.get<size_t>();
  std::vector<std::vector<Token>> tokens(count);
  std::vector<std::vector<int>> pages(count);
  std::vector<Slice> batch(count);
  for (size_t s = 0; s < count; ++s) {
    call.get_list(tokens[s]);
    batch[s].past = call.get<int>();
    call.get_list(pages[s]);
    batch[s].logits = call.get<int>();
    batch[s].tokens = tokens[s];
    batch[s].pages = pages[s];
  }
  local.run(batch);
}

void sample_heard(Runner& local, RankLinks& links, Packet& call) {
  std::vector<TopLogitsRequest> requests(call.get<size_t>());
  for (TopLogitsRequest& request : requests) request = get_request(call);
  if (!links.is_last_stage()) return;
  Packet answer;
  for (const TopLogits& row : local.top_logits(requests)) put(answer, row);
  send_packet(*links.world, 0, answer);
}

}  // namespace

std::unique_ptr<Runner> make_leader_runner(Weights whole, std::unique_ptr<Runner> local,
                                           std::shared_ptr<RankLinks> links) {
  return std::make_unique<LeaderRunner>(std::move(whole), std::move(local), std::move(links));
}

void follow(Runner& local, RankLinks& links) {
  Communicator& world = *links.world;
  total_when_loaded(world, local.repacked_bytes());
  Packet call;
  Profile profile;
  for (;;) {
    hear(world, call);
    switch (call.get<Call>()) {
      case Call::run:
        run_heard(local, call);
        break;
      case Call::sample:
        sample_heard(local, links, call);
        break;
      case Call::logits:
        if (links.is_last_stage()) world.send(0, std::as_bytes(local.logits()));
        break;
      case Call::copy_pages: {
        std::vector<PageCopy> copies;
        call.get_list(copies);
        local.copy_pages(copies);
        break;
      }
      case Call::fill_cache:
        local.fill_cache(call.get<uint64_t>());
        break;
      case Call::read_rate:
        read_rate_of_all(links, local);
        break;
      case Call::time_link:
        time_link(links);
        break;
      case Call::profile: {
        local.set_profile(call.get<bool>() ? &profile : nullptr);
        if (!links.is_first_stage() && links.rank() == links.first_of_stage()) {
          Packet operators;
          put(operators, profile);
          send_packet(world, 0, operators);
        }
        profile.clear();
        break;
      }
      case Call::end:
        links.ending = true;
        return;
    }
  }
}

}  // namespace ridge
