// Continuous batching: the rules that say which sequences run in the next step.
//
// The rules know lengths, not tokens, and ask `Book` for pages. Scheduler keeps the real book:
// pages, tokens and a prefix tree. SimulatedScheduler counts. So what is simulated is what is
// served, and other engines are policies of the same rules (policy.h).
//
// A sequence has known tokens (prompt, then what was drawn) and a length: tokens whose keys and
// values are in the cache. A step gives each sequence some of the tokens it misses:
//   1. Running sequences that miss only the token drawn last (decode).
//   2. Running sequences whose prompt is not computed yet (prefill, in chunks), in order, while the
//      budget lasts.
//   3. Waiting ones, in order, while budget, pages and places last. The first that does not fit
//      stops the queue, so that large prompts are not passed by for ever.
// A policy that does not mix runs 2 and 3, and 1 only in steps where those gave nothing.
//
// Order is (promoted, priority, arrival). A waiting request that kMaxOvertakes later arrivals have
// been admitted before is promoted: it goes before every priority. So a request is overtaken by at
// most kMaxOvertakes later ones, and by those of one step more.
//
// Pages. A sequence is admitted when its whole prompt and what the policy reserves fit, and gets
// the pages of its prompt at once. A decode that finds no page evicts cached prefixes, then
// preempts the policy's victim: its pages go to the prefix cache, it waits, and its tokens are
// computed again as a prompt. One sequence always stays, and it fits the pool alone. So some
// sequence always advances, and every request ends.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <set>
#include <tuple>
#include <vector>

#include "serving/policy.h"

namespace ridge {

// A waiting request is held back while another computes a prefix of it, if that saves so many
// tokens.
inline constexpr int kMinSharedTokens = 32;

// What the rules keep of a sequence.
struct QueuedSequence {
  int prompt = 0, max_length = 0;  // tokens; max_length: of prompt and output together
  int priority = 0;
  uint64_t arrival = 0;     // its number in order of arrival
  int overtaken = 0;        // later arrivals that were admitted before
  bool promoted = false;    // goes before every priority
  bool running = false;     // otherwise waiting
  bool prefilling = false;  // running, and not all known tokens are scheduled yet
  int preemptions = 0;
};

// `Sequence` derives from QueuedSequence and has known(): tokens that are known; length(): tokens
// in the cache; missing(): tokens, known or being drawn, that are not in the cache. `Book` derives
// from the rules (CRTP: the calls of the inner loops are direct) and has
//   bool decode_all()                       a token for every running sequence with a finished
//                                           prompt, at once; false: the rules go through them
//   void draft(ready)                       before decode() of each of `ready`
//   void decode(sequence)                   adds its next token to the step; may call reserve()
//   bool can_schedule(sequence)             limits of the runner
//   void compute(sequence, count)           adds its next `count` tokens to the step
//   int find_prefix(sequence)               tokens of whole pages that the prefix cache holds
//   bool prefix_is_being_computed(sequence, found)
//   bool acquire_prompt_pages(sequence, spare)  those of its known tokens, if `spare` are left
//   bool reserve_by_eviction(sequence, tokens)
//   void release_pages(sequence)
//   int available_pages()                   free ones and those that eviction would free
//   int pages_to_decode()                   by all running sequences for a token each
//   int pages_held(sequence)
template <class Book, class Sequence>
class SchedulingRules {
 public:
  static constexpr int kMaxOvertakes = 64;

  int running() const { return static_cast<int>(running_.size()); }
  int waiting() const { return static_cast<int>(waiting_.size()); }
  bool idle() const { return running_.empty() && waiting_.empty(); }

 protected:
  using Key = std::tuple<bool, int, uint64_t>;
  static Key key(const Sequence& s) { return {!s.promoted, s.priority, s.arrival}; }
  struct Order {
    using is_transparent = void;
    bool operator()(const Sequence* a, const Sequence* b) const { return key(*a) < key(*b); }
    bool operator()(const Sequence* a, const Key& b) const { return key(*a) < b; }
    bool operator()(const Key& a, const Sequence* b) const { return a < key(*b); }
  };

  explicit SchedulingRules(const ServingPolicy& policy) : policy_(policy) {}

  void enqueue(Sequence& s) {
    if (idle()) set_output_ratio(kFirstRatio);
    s.arrival = arrivals_++;
    waiting_.insert(waiting_.end(), &s);
  }
  // Its pages are released before.
  void withdraw(Sequence& s) {
    if (s.running) {
      leave_running(s);
    } else {
      waiting_.erase(&s);
    }
  }

  void plan_step() {
    budget_ = policy_.max_tokens;
    prompts_ = 0;
    steady_steps_ = 0;
    if (policy_.mixed) {
      plan_decodes();
      plan_prefills();
      // Who was preempted must not come back at once: the next decodes need its pages.
      if (preempted_ == 0) plan_admissions();
    } else {
      plan_prefills();
      plan_admissions();
      if (prompts_ == 0) plan_decodes();
    }
  }

  // Room for `tokens` more of a running sequence, by eviction and preemption. False where it was
  // itself the last in order, and is preempted now.
  bool reserve(Sequence& s, int tokens) {
    while (!book().reserve_by_eviction(s, tokens)) {
      Sequence& victim = *running_.back();
      preempt(victim);
      if (&victim == &s) return false;
    }
    return true;
  }

  void preempt(Sequence& s) {
    book().release_pages(s);
    leave_running(s);
    ++s.preemptions;
    ++preempted_;
    waiting_.insert(&s);
  }

  int pages_for(int tokens) const {
    return (tokens + policy_.page_tokens - 1) / policy_.page_tokens;
  }

  // `steps` more steps like the one planned last were taken: at most steady_steps_.
  void repeat_step(int steps) {
    if (!waiting_.empty()) waited_ += steps;
    decodes_since_ratio_ += steps;
  }

  ServingPolicy policy_;
  std::vector<Sequence*> running_, prefilling_;  // in order; prefilling_ is a part of running_
  std::set<Sequence*, Order> waiting_;
  int budget_ = 0;        // tokens left in the step that is being composed
  int preempted_ = 0;     // in it; the book sets it to 0
  int prompts_ = 0;       // sequences that compute prompt tokens in it
  int steady_steps_ = 0;  // so many more steps would be the same if nobody arrives or ends

 private:
  // SGLang's estimate of outputs (new_token_ratio): what share of the tokens that a request may
  // still draw it will draw. It falls linearly over 600 decode steps, and is measured anew where
  // the estimate was too low.
  static constexpr double kFirstRatio = 0.7, kLeastRatio = 0.098, kRatioSteps = 600;
  static constexpr int kMostEstimated = 4096;  // tokens of one output
  static constexpr int kRetractTokens = 20;    // for each sequence, after a retraction

  Book& book() { return static_cast<Book&>(*this); }

  void set_output_ratio(double ratio) {
    ratio_ = ratio;
    decodes_since_ratio_ = 0;
  }
  double output_ratio() const {
    constexpr double kFall = (kFirstRatio - kLeastRatio) / kRatioSteps;
    return std::max(ratio_ - kFall * double(decodes_since_ratio_), kLeastRatio);
  }

  void insert(std::vector<Sequence*>& into, Sequence& s) {
    into.insert(std::lower_bound(into.begin(), into.end(), &s, Order()), &s);
  }
  void leave_running(Sequence& s) {
    running_.erase(std::lower_bound(running_.begin(), running_.end(), &s, Order()));
    if (s.prefilling) prefilling_.erase(std::find(prefilling_.begin(), prefilling_.end(), &s));
    s.running = s.prefilling = false;
  }

  void plan_decodes() {
    if (policy_.victim == ServingPolicy::Victim::kFewestOutputs) retract();
    ++decodes_since_ratio_;
    if (book().decode_all()) return;
    ready_.clear();
    for (Sequence* s : running_) {
      if (!s->prefilling && s->missing() == 1) ready_.push_back(s);
    }
    book().draft(ready_);
    for (Sequence* s : ready_) {
      if (s->running) book().decode(*s);  // otherwise preempted for one before it
    }
  }

  // Where the decodes need more pages than there are: preempts who has drawn the fewest tokens (of
  // those the longest prompt) until each of the others has room for some more steps.
  void retract() {
    int need = book().pages_to_decode();
    if (book().available_pages() >= need) return;
    do {
      Sequence* victim = running_.front();
      for (Sequence* s : running_) {
        const auto rank = [](const Sequence& each) {
          return std::tuple(each.known() - each.prompt, -each.prompt);
        };
        if (rank(*s) <= rank(*victim)) victim = s;
      }
      preempt(*victim);
      need = std::max(book().pages_to_decode(), pages_for(kRetractTokens * running()));
    } while (running() > 1 && book().available_pages() < need);
    double drawn = 0, most = 1;
    for (const Sequence* s : running_) {
      drawn += s->known() - s->prompt + kRetractTokens;
      most += s->max_length - s->prompt;
    }
    set_output_ratio(std::min(drawn / most, 1.0));
  }

  void plan_prefills() {
    for (size_t i = 0; i < prefilling_.size();) {
      Sequence& s = *prefilling_[i];
      if (budget_ <= 0) return;
      if (book().can_schedule(s)) compute(s);
      if (s.prefilling) ++i;  // otherwise it left the list
    }
  }

  // As much of a sequence's missing tokens as the budget allows. Its pages are reserved.
  void compute(Sequence& s) {
    book().compute(s, policy_.chunked ? std::min(s.missing(), budget_) : s.missing());
    ++prompts_;
    const bool prefilling = s.length() < s.known();
    if (prefilling && !s.prefilling) insert(prefilling_, s);
    if (!prefilling && s.prefilling) {
      prefilling_.erase(std::find(prefilling_.begin(), prefilling_.end(), &s));
    }
    s.prefilling = prefilling;
  }

  void plan_admissions() {
    steady_steps_ = std::numeric_limits<int>::max();
    if (waiting_.empty()) return;
    if (waits_for_more_prompts()) {
      steady_steps_ = policy_.wait - static_cast<int>(++waited_);
      return;
    }
    promoted_.clear();
    for (auto next = waiting_.begin(); next != waiting_.end();) {
      Sequence& s = **next;
      if (budget_ <= 0 || running() >= policy_.max_sequences) break;
      const Admission admission = admit(s);
      if (admission == Admission::kStops) break;
      steady_steps_ = 0;
      if (admission == Admission::kPassedBy) {
        ++next;
        continue;
      }
      next = waiting_.erase(next);
      insert(running_, s);
      s.running = true;
      waited_ = 0;
      count_overtakes(s);
      compute(s);
    }
    for (Sequence* s : promoted_) {
      if (s->running || s->promoted) continue;
      waiting_.erase(s);
      s->promoted = true;
      waiting_.insert(s);
    }
  }

  bool waits_for_more_prompts() const {
    if (waited_ >= policy_.wait || running_.empty()) return false;
    int64_t tokens = 0;
    for (const Sequence* s : waiting_) {
      if (policy_.wait_tokens == 0) break;
      tokens += s->missing();
      if (tokens >= policy_.wait_tokens) return false;
    }
    return true;
  }

  enum class Admission { kAdmitted, kStops, kPassedBy };

  Admission admit(Sequence& s) {
    if (!book().can_schedule(s)) {
      steady_steps_ = 0;
      return Admission::kStops;
    }
    const int found = book().find_prefix(s);
    if (policy_.awaits_prefix && !s.promoted && book().prefix_is_being_computed(s, found)) {
      return Admission::kPassedBy;
    }
    if (!policy_.chunked && prompts_ > 0 && s.known() - found > budget_) return Admission::kStops;
    if (!book().acquire_prompt_pages(s, spare_pages(s))) {
      // An estimate falls from step to step. Other reservations change with events only.
      if (policy_.reservation == ServingPolicy::Reservation::kEstimate) steady_steps_ = 0;
      return Admission::kStops;
    }
    return Admission::kAdmitted;
  }

  // Pages that must be left when `s` has got those of its known tokens.
  int spare_pages(const Sequence& s) {
    using Reservation = ServingPolicy::Reservation;
    if (policy_.reservation == Reservation::kOutput) {
      int pages = pages_for(s.max_length) - pages_for(s.known());
      for (const Sequence* other : running_) {
        pages += pages_for(other->max_length) - book().pages_held(*other);
      }
      return pages;
    }
    if (policy_.reservation == Reservation::kEstimate && !running_.empty()) {
      const auto left = [](const Sequence& each) {
        return std::min(each.max_length - each.known(), kMostEstimated);
      };
      int64_t tokens = 0;
      for (const Sequence* other : running_) tokens += left(*other);
      return pages_for(int(std::ceil(output_ratio() * double(tokens))) + left(s));
    }
    // Every running sequence finds a page for its next tokens, or the new one would soon be
    // preempted again.
    return policy_.headroom * running();
  }

  // Earlier arrivals that wait are overtaken by `admitted`. They come first in each priority.
  void count_overtakes(const Sequence& admitted) {
    for (auto it = waiting_.begin(); it != waiting_.end();) {
      Sequence& s = **it;
      if (s.promoted) {
        ++it;
      } else if (s.arrival < admitted.arrival) {
        if (++s.overtaken >= kMaxOvertakes) promoted_.push_back(&s);
        ++it;
      } else {
        if (s.priority == (*waiting_.rbegin())->priority) return;
        it = waiting_.upper_bound(Key(true, s.priority, std::numeric_limits<uint64_t>::max()));
      }
    }
  }

  std::vector<Sequence*> ready_, promoted_;
  uint64_t arrivals_ = 0;
  int64_t waited_ = 0;  // steps for which prompts have been held back
  double ratio_ = kFirstRatio;
  int64_t decodes_since_ratio_ = 0;
};

}  // namespace ridge
