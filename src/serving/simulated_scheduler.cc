#include "serving/simulated_scheduler.h"

#include <algorithm>
#include <cassert>

namespace ridge {

SimulatedScheduler::SimulatedScheduler(const ServingPolicy& policy, int pages)
    : SchedulingRules(policy), cache_(pages), entering_(size_t(policy.page_tokens), 0) {}

SimulatedScheduler::Sequence& SimulatedScheduler::make(size_t request, const SimulatedRequest& r) {
  unused_.insert(unused_.end(), ended_.begin(), ended_.end());
  ended_.clear();
  Sequence* s = nullptr;
  if (unused_.empty()) {
    s = &sequences_.emplace_back();
  } else {
    s = unused_.back();
    unused_.pop_back();
    std::vector<int64_t> blocks = std::move(s->blocks);  // keeps its memory
    *s = {};
    s->blocks = std::move(blocks);
  }
  s->request = request;
  s->prompt = s->known_outside = r.prompt;
  s->max_length = r.prompt + r.output;
  s->priority = r.priority;
  s->decode_steps = &decode_steps_;
  s->times.arrival_s = r.arrival_s;
  const size_t whole = static_cast<size_t>(r.prompt / policy_.page_tokens);
  const auto first = r.blocks.begin();
  s->blocks.assign(first, first + static_cast<long>(std::min(whole, r.blocks.size())));
  if (!policy_.prefix_cache) s->blocks.clear();
  outside_ += s->max_length;
  return *s;
}

double SimulatedScheduler::outstanding_tokens() const {
  return double(outside_ + max_length_sum_ - base_sum_ - decoding_ * decode_steps_);
}

// The batch of sequences that decode.

size_t SimulatedScheduler::phase(const Sequence& s) const {
  const int64_t page = policy_.page_tokens;
  return static_cast<size_t>(((-s.base) % page + page) % page);
}

void SimulatedScheduler::start_decoding(Sequence& s) {
  outside_ -= s.max_length - s.length_outside;
  s.base = s.length_outside - decode_steps_;
  s.decoding = true;
  ++decoding_;
  base_sum_ += s.base;
  max_length_sum_ += s.max_length;
  ++entering_[phase(s)];
  finishes_.push({decode_steps_ + s.max_length - s.known_outside, s.arrival, s.preemptions, &s});
}

void SimulatedScheduler::stop_decoding(Sequence& s) {
  s.length_outside = s.length();
  s.known_outside = s.known();
  outside_ += s.max_length - s.length_outside;
  --entering_[phase(s)];
  base_sum_ -= s.base;
  max_length_sum_ -= s.max_length;
  --decoding_;
  s.decoding = false;
}

void SimulatedScheduler::drop_invalid_finishes() {
  while (!finishes_.empty() && !finishes_.top().valid()) finishes_.pop();
}

int SimulatedScheduler::steps_to_finish() const {
  // plan() and finish_steps() leave a valid end on top.
  return finishes_.empty() ? 0 : int(finishes_.top().at - decode_steps_);
}

// Pages.

// The blocks that are computed.
void SimulatedScheduler::insert_blocks(Sequence& s) {
  const int whole = std::min(s.length() / policy_.page_tokens, static_cast<int>(s.blocks.size()));
  if (whole <= s.in_tree) return;
  const auto first = static_cast<size_t>(s.in_tree), count = static_cast<size_t>(whole) - first;
  s.node = cache_.insert(s.node, std::span(s.blocks).subspan(first, count));
  s.in_tree = whole;
}

void SimulatedScheduler::release_pages(Sequence& s) {
  const int pages = pages_held(s);
  if (s.decoding) stop_decoding(s);
  int private_pages = 0;
  if (policy_.prefix_cache) {
    insert_blocks(s);
    if (s.in_tree == static_cast<int>(s.blocks.size())) {
      private_pages = s.length_outside / policy_.page_tokens - s.in_tree;
    }
    if (private_pages > 0) cache_.add_run(s.node, private_pages, &s.run);
    cache_.unlock(s.node);
  }
  cache_.release(pages - s.in_tree - private_pages);
  s.node = BlockCache::kNone;
  s.in_tree = 0;
  outside_ += s.length_outside;
  s.length_outside = 0;
}

int SimulatedScheduler::pages_held(const Sequence& s) const {
  return pages_for(s.decoding ? s.length() + (decodes_run_ ? 1 : 0) : s.known_outside);
}

void SimulatedScheduler::unlock_copied() {
  for (const BlockCache::Node node : copied_) cache_.unlock(node);
  copied_.clear();
}

// Admission.

int SimulatedScheduler::find_prefix(Sequence& s) {
  matched_ = run_ = 0;
  match_end_ = partial_ = BlockCache::kNone;
  if (!policy_.prefix_cache) return 0;
  const size_t all = s.blocks.size();
  // The last token is always computed: its logits are wanted.
  const size_t most = std::min(all, size_t((s.known_outside - 1) / policy_.page_tokens));
  const BlockCache::Match found = cache_.match(std::span(s.blocks).first(most));
  matched_ = found.blocks;
  match_end_ = cache_.end_of(found);
  if (matched_ == static_cast<int>(all)) run_ = cache_.run_pages(s.run);
  if (policy_.copies_partial_pages && matched_ == static_cast<int>(most) && most < all) {
    const BlockCache::Node last = cache_.find(match_end_, s.blocks[most]);
    if (last != BlockCache::kNone) partial_ = cache_.end_of({.node = last, .in_node = 1});
  }
  return (matched_ + run_) * policy_.page_tokens;
}

// Whether a sequence computes in this step, or is about to, what `s` could then find cached.
bool SimulatedScheduler::prefix_is_being_computed(const Sequence& s, int found) const {
  if (s.blocks.empty()) return false;
  const auto computes = [&](const Sequence& other) {
    if (other.in_tree >= static_cast<int>(other.blocks.size()) || &other == &s) return false;
    const size_t most = std::min({other.blocks.size(), s.blocks.size(),
                                  size_t((s.known_outside - 1) / policy_.page_tokens)});
    const auto first = s.blocks.begin();
    const auto different =
        std::mismatch(first, first + static_cast<long>(most), other.blocks.begin()).first;
    const int shared = static_cast<int>(different - first);
    return shared * policy_.page_tokens - found >= kMinSharedTokens && other.in_tree < shared;
  };
  const auto any = [&](std::span<Sequence* const> list) {
    return std::any_of(list.begin(), list.end(),
                       [&](const Sequence* each) { return computes(*each); });
  };
  return any(computing_) || any(prefilling_);
}

bool SimulatedScheduler::acquire_prompt_pages(Sequence& s, int spare) {
  const int fresh = pages_for(s.known_outside) - matched_ - run_;
  cache_.lock(match_end_);
  cache_.lock(partial_);
  const auto fits = [&] { return cache_.available() - run_ >= fresh + spare; };
  if (!fits() && partial_ != BlockCache::kNone) {
    // The page to copy from may be the one that is missing.
    cache_.unlock(partial_);
    partial_ = BlockCache::kNone;
  }
  if (!fits()) {
    if (run_ > 0) cache_.use_run(s.run);
    cache_.unlock(match_end_);
    return false;
  }
  if (run_ > 0) cache_.acquire_run(s.run);
  const bool acquired = cache_.acquire(fresh);
  assert(acquired);
  (void)acquired;
  s.node = match_end_;
  s.in_tree = matched_;
  s.length_outside = (matched_ + run_) * policy_.page_tokens;
  if (partial_ != BlockCache::kNone) {
    s.length_outside = s.known_outside - 1;
    copied_.push_back(partial_);  // locked until the copy has run
  }
  outside_ -= s.length_outside;
  if (!s.admitted) {
    s.times.cached_tokens = s.length_outside;
    first_scheduled_.push_back(&s);
  }
  s.admitted = true;
  return true;
}

// The step.

void SimulatedScheduler::plan() {
  for (Sequence* s : computing_) {
    if (policy_.prefix_cache && s->running) insert_blocks(*s);
  }
  computing_.clear();
  chunks_.clear();
  first_scheduled_.clear();
  preempted_ = 0;
  decodes_planned_ = decodes_run_ = false;
  steps_ = 1;
  plan_step();
  decodes_run_ = decodes_planned_;
  drop_invalid_finishes();
  decodes_ = decodes_run_ ? decoding_ : 0;
  context_ = decodes_run_ ? decoding_context() : 0;
}

bool SimulatedScheduler::decode_all() {
  decodes_planned_ = true;
  decodes_run_ = cache_.acquire(entering(decode_steps_));
  if (decodes_run_) budget_ -= decoding_;
  return decodes_run_;
}

void SimulatedScheduler::compute(Sequence& s, int count) {
  chunks_.push_back({double(count), double(s.length_outside)});
  computing_.push_back(&s);
  s.length_outside += count;
  outside_ -= count;
  budget_ -= count;
}

int SimulatedScheduler::equal_steps(int most) const {
  if (!chunks_.empty() || preempted_ > 0 || !prefilling_.empty() || decodes_ == 0) return 1;
  most = std::min(most, steps_to_finish());
  if (steady_steps_ < most) most = 1 + steady_steps_;
  // Every page_tokens steps, each sequence enters one page.
  const int available = cache_.available();
  if (available / decodes_ > most / policy_.page_tokens) return most;
  int steps = 1;
  for (int need = 0; steps < most; ++steps) {
    need += entering(decode_steps_ + steps);
    if (need > available) break;
  }
  return steps;
}

void SimulatedScheduler::repeat(int steps) {
  const int more = steps - 1;
  int need = more / policy_.page_tokens * decodes_;
  for (int i = 0; i < more % policy_.page_tokens; ++i) need += entering(decode_steps_ + 1 + i);
  const bool acquired = cache_.acquire(need);
  assert(acquired);
  (void)acquired;
  repeat_step(more);
  steps_ = steps;
}

void SimulatedScheduler::finish_steps(std::vector<Sequence*>& first_tokens,
                                      std::vector<Sequence*>& ended) {
  first_tokens.clear();
  ended.clear();
  unlock_copied();
  if (decodes_run_) decode_steps_ += steps_;
  decodes_run_ = false;  // what was planned is counted in the lengths
  while (!finishes_.empty() && finishes_.top().at == decode_steps_) {
    ended.push_back(finishes_.top().sequence);
    finishes_.pop();
    drop_invalid_finishes();
  }
  std::sort(ended.begin(), ended.end(), Order());
  for (Sequence* s : computing_) {
    if (s->length_outside < s->known_outside) continue;
    if (s->known_outside == s->prompt) first_tokens.push_back(s);
    if (s->known_outside + 1 == s->max_length) {
      ended.push_back(s);
    } else {
      ++s->known_outside;
      start_decoding(*s);
    }
  }
  for (Sequence* s : ended) {
    release_pages(*s);
    if (s->run != BlockCache::kNone) cache_.disown_run(s->run);
    s->run = BlockCache::kNone;
    withdraw(*s);
    outside_ -= s->max_length;
    ended_.push_back(s);
  }
  if (!ended.empty()) {
    std::erase_if(computing_, [](const Sequence* s) { return !s->running; });
  }
}

}  // namespace ridge
