#include "engine/ranks/leader_runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "engine/ranks/cut_weights.h"
#include "engine/sampling/merge_top_logits.h"
#include "engine/sampling/sampled_steps.h"
#include "ranks/packet.h"

namespace ridge {
namespace {

enum class Call : uint8_t { run, sample, logits, copy_pages, fill_cache, read_rate, end };

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
  void set_profile(Profile* profile) override { local_->set_profile(profile); }
  double repacked_bytes() const override { return repacked_; }
  Plan plan() const override { return local_->plan(); }
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
  // Ranks of one host read side by side: together they stream at the machine's rate.
  double read_rate() override {
    double rate = 0;
    together([&] {
      begin(Call::read_rate);
      tell(*links_->world, call_);
      rate = total(*links_->world, local_->read_rate());
    });
    return rate;
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
};

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
    tell(*links_->world, call_);
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
    tell(*links_->world, call_);
    if (links_->is_last_stage()) local_->sample(requests);
  });
}

// Of the last sample(), where that was not done.
void LeaderRunner::merge_answers() {
  if (asked_.empty()) return;
  const auto parts = static_cast<size_t>(links_->grid.tp);
  std::vector<std::vector<TopLogits>> of(asked_.size(), std::vector<TopLogits>(parts));
  for (size_t p = 0; p < parts; ++p) {
    const int rank = head_rank(static_cast<int>(p));
    if (rank == 0) {
      const std::span<const TopLogits> mine = local_->fetch();
      for (size_t row = 0; row < of.size(); ++row) of[row][p] = mine[row];
      continue;
    }
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
        total(world, local.read_rate());
        break;
      case Call::end:
        links.ending = true;
        return;
    }
  }
}

}  // namespace ridge
