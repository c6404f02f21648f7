#include "engine/ranks/leader_runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "base/error.h"
#include "engine/ranks/cut_weights.h"
#include "engine/ranks/rank_calls.h"
#include "engine/ranks/rank_exchanges.h"
#include "engine/ranks/time_link.h"
#include "engine/runner/profile.h"
#include "engine/runner/sampled_steps.h"
#include "engine/sampling/merge_top_logits.h"

namespace ridge {
namespace {

class LeaderRunner final : public Runner {
 public:
  LeaderRunner(Weights whole, std::unique_ptr<Runner> local, std::shared_ptr<RankLinks> links)
      : whole_(std::move(whole)),
        local_(std::move(local)),
        links_(std::move(links)),
        options_(local_->options()),
        sampled_(options_.logit_rows()) {
    options_.ranks = nullptr;  // seen from outside it is one
    repacked_ = sum_when_loaded(*links_->world, local_->repacked_bytes());
  }
  ~LeaderRunner() override {
    if (!links_->world->failure().empty()) return;  // that was said, and nobody listens any more
    try {
      begin(Call::end);
      broadcast_call(*links_->world, call_);
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
      broadcast_call(*links_->world, call_);
      local_->copy_pages(copies);
    });
  }
  void fill_cache(uint64_t seed) override {
    together([&] {
      begin(Call::fill_cache);
      call_.put(seed);
      broadcast_call(*links_->world, call_);
      local_->fill_cache(seed);
    });
  }
  double read_rate() override {
    double rate = 0;
    together([&] {
      merge_answers();
      begin(Call::read_rate);
      broadcast_call(*links_->world, call_);
      rate = read_rate_of_all(*links_, *local_);
    });
    return rate;
  }
  RankPlacement place_ranks() override {
    RankPlacement placement{links_->grid.ranks(), most_ranks_of_a_host(*links_), {}};
    together([&] {
      merge_answers();
      begin(Call::time_link);
      broadcast_call(*links_->world, call_);
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
  void broadcast_timed(const char* name) {
    OperatorClock clock(profile_);
    clock.begin(name);
    broadcast_call(*links_->world, call_);
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
  std::vector<TopLogitsRequest> requested_;  // of the last sample(), until its answers are merged
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
      broadcast_call(*links_->world, call_);
      for (int stage = 1; stage < grid.pp; ++stage) {
        receive_packet(*links_->world, stage * grid.tp, answer_);
        if (ended != nullptr) add_operators(answer_, *ended);
      }
    });
  } catch (const Error&) {  // the group has failed, as its next call will say
  }
}

// Checked before anything is sent, so that a step that cannot be leaves all ranks as they were.
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
    broadcast_timed("step_broadcast");
    local_->run(slices_);
  });
  sampled_.begin_step();
}

void LeaderRunner::sample(std::span<const TopLogitsRequest> requests) {
  together([&] { merge_answers(); });
  answers_ = sampled_.sample(requests.size(), logit_rows_);
  requested_.assign(requests.begin(), requests.end());
  together([&] {
    begin(Call::sample);
    call_.put(requests.size());
    for (const TopLogitsRequest& request : requests) put(call_, request);
    broadcast_timed("sample_broadcast");
    if (links_->is_last_stage()) local_->sample(requests);
  });
}

// Of the last sample(), where that was not done.
void LeaderRunner::merge_answers() {
  if (requested_.empty()) return;
  const auto parts = static_cast<size_t>(links_->grid.tp);
  std::vector<std::vector<TopLogits>> of(requested_.size(), std::vector<TopLogits>(parts));
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
    answers_[row] = merge_top_logits(of[row], requested_[row]);
  }
  requested_.clear();
}

void LeaderRunner::gather_logits() {
  merge_answers();
  begin(Call::logits);
  broadcast_call(*links_->world, call_);
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

}  // namespace

std::unique_ptr<Runner> make_leader_runner(Weights whole, std::unique_ptr<Runner> local,
                                           std::shared_ptr<RankLinks> links) {
  return std::make_unique<LeaderRunner>(std::move(whole), std::move(local), std::move(links));
}

}  // namespace ridge
