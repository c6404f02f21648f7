#include "serving/scheduler.h"

#include <algorithm>
#include <cassert>
#include <tuple>

#include "base/error.h"

namespace ridge {
namespace {

// A waiting request is held back while another computes a prefix of it, if that saves so many
// tokens.
constexpr int kMinSharedTokens = 32;

}  // namespace

struct Scheduler::Sequence {
  Sequence(Arrival&& from, PagePool& pool, uint64_t number)
      : id(from.id),
        tokens(std::move(from.prompt)),
        prompt(static_cast<int>(tokens.size())),
        max_length(from.max_length),
        priority(from.priority),
        salt(std::move(from.cache_salt)),
        all_prompt_rows(from.all_prompt_rows),
        arrival(number),
        kv(pool) {}

  RequestId id;
  std::vector<Token> tokens;  // prompt, then what was drawn
  int prompt, max_length, priority;
  std::string salt;
  bool all_prompt_rows;
  uint64_t arrival;
  int overtaken = 0;      // later arrivals that were admitted before
  bool promoted = false;  // goes before every priority
  bool admitted = false;  // has been running, perhaps until it was preempted
  int preemptions = 0;
  int prompt_rows = 0;  // rows of prompt tokens that steps have given

  KvSequence kv;
  PrefixTree::Node node = PrefixTree::kNone;  // end of the locked path in the tree
  int in_tree = 0;                            // pages along that path
  int in_flight = 0;                          // tokens that steps in flight draw
  int drawing_row = 0;                        // in_flight > 0: the row of the last such step
  bool verifying = false;     // the step in flight verifies drafts: how many tokens come is unknown
  std::vector<Token> drafts;  // of the step that is being composed

  int known() const { return static_cast<int>(tokens.size()); }
  int missing() const { return known() + in_flight - kv.length(); }
};

bool Scheduler::Order::operator()(const Sequence* a, const Sequence* b) const {
  return std::tuple(!a->promoted, a->priority, a->arrival) <
         std::tuple(!b->promoted, b->priority, b->arrival);
}

Scheduler::Scheduler(const SchedulerOptions& options, PagePool& pool, Drafter* drafter)
    : options_(options), pool_(&pool), drafter_(drafter), tree_(pool) {
  assert(options.max_sequences > 0 && options.max_sequences <= options.max_tokens);
  assert(options.max_logit_rows >= options.max_sequences);
}

Scheduler::~Scheduler() = default;

// Events.

void Scheduler::add(Arrival arrival) {
  assert(!arrival.prompt.empty());
  assert(arrival.max_length > int(arrival.prompt.size()));
  assert(arrival.max_length <= pool_->total() * pool_->page_tokens());
  auto sequence = std::make_unique<Sequence>(std::move(arrival), *pool_, arrivals_++);
  waiting_.insert(sequence.get());
  sequences_.emplace(sequence->id, std::move(sequence));
}

void Scheduler::remove(RequestId id) {
  unlock_copied();
  const auto found = sequences_.find(id);
  if (found == sequences_.end()) return;
  Sequence& sequence = *found->second;
  running_.erase(&sequence);
  waiting_.erase(&sequence);
  release_pages(sequence);
  if (drafter_ != nullptr) drafter_->remove(id);
  sequences_.erase(found);
}

void Scheduler::accept(const ScheduledSlice& slice, std::span<const Token> tokens) {
  unlock_copied();
  const auto found = sequences_.find(slice.id);
  if (found == sequences_.end()) return;
  Sequence& sequence = *found->second;
  assert(slice.samples && !tokens.empty() && int(tokens.size()) <= 1 + slice.drafts);
  sequence.tokens.insert(sequence.tokens.end(), tokens.begin(), tokens.end());
  if (slice.drafts > 0) {
    const int rejected = slice.drafts + 1 - static_cast<int>(tokens.size());
    if (sequence.kv.length() > 0) sequence.kv.truncate(sequence.kv.length() - rejected);
    if (drafter_ != nullptr) {
      drafter_->verified(slice.id, slice.drafts, static_cast<int>(tokens.size()) - 1);
    }
  }
  sequence.verifying = false;
  --sequence.in_flight;
}

int Scheduler::preemptions(RequestId id) const {
  const auto found = sequences_.find(id);
  return found == sequences_.end() ? 0 : found->second->preemptions;
}

// Pages.

// Pages whose tokens are all known and computed. The last token of a sequence may be in flight.
void Scheduler::insert_full_pages(Sequence& s) {
  if (!options_.prefix_cache) return;
  const int page_tokens = pool_->page_tokens();
  const int full = std::min(s.kv.length(), s.known()) / page_tokens;
  if (full <= s.in_tree) return;
  const auto begin = static_cast<size_t>(s.in_tree), count = static_cast<size_t>(full - s.in_tree);
  s.node = tree_.insert(
      s.salt, s.node,
      std::span(s.tokens).subspan(begin * size_t(page_tokens), count * size_t(page_tokens)),
      s.kv.pages().subspan(begin, count), held_);
  for (size_t i = 0; i < count; ++i) {
    const int index = s.in_tree + static_cast<int>(i);
    if (s.kv.pages()[size_t(index)] != held_[i]) s.kv.replace_page(index, held_[i]);
  }
  s.in_tree = full;
}

void Scheduler::insert_full_pages() {
  for (Sequence* sequence : running_) {
    if (!sequence->verifying) insert_full_pages(*sequence);
  }
}

void Scheduler::release_pages(Sequence& s) {
  if (!s.verifying) insert_full_pages(s);
  tree_.unlock(s.node);
  s.node = PrefixTree::kNone;
  s.in_tree = 0;
  s.kv.truncate(0);
}

int Scheduler::pages_for(int tokens) const {
  return (tokens + pool_->page_tokens() - 1) / pool_->page_tokens();
}

bool Scheduler::reserve_by_eviction(Sequence& sequence, int tokens, ScheduledStep& step) {
  while (!sequence.kv.reserve(tokens, step.copies)) {
    if (tree_.evict(1) == 0) return false;
  }
  return true;
}

// Room for `tokens` more of a running sequence, by eviction and preemption. False where it was
// itself the last in order, and is preempted now.
bool Scheduler::reserve(Sequence& sequence, int tokens, ScheduledStep& step) {
  while (!reserve_by_eviction(sequence, tokens, step)) {
    Sequence& victim = **running_.rbegin();
    preempt(victim, step);
    if (&victim == &sequence) return false;
  }
  return true;
}

void Scheduler::preempt(Sequence& sequence, ScheduledStep& step) {
  running_.erase(&sequence);
  release_pages(sequence);
  ++sequence.preemptions;
  ++step.preempted;
  waiting_.insert(&sequence);
}

Scheduler::PageCounts Scheduler::pages() const {
  PageCounts counts;
  counts.free = pool_->free();
  counts.cached = tree_.evictable();
  counts.held = pool_->total() - counts.free - counts.cached;
  return counts;
}

void Scheduler::check_pages() const {
  std::vector<int> references(static_cast<size_t>(pool_->total()), 0);
  int held = 0, cached = 0, unused = 0;
  for (const auto& [id, sequence] : sequences_) {
    for (const int page : sequence->kv.pages()) {
      if (references[static_cast<size_t>(page)]++ == 0) ++held;
    }
  }
  tree_.for_each_page([&](int page) {
    if (references[static_cast<size_t>(page)]++ == 0) ++cached;
  });
  for (int page = 0; page < pool_->total(); ++page) {
    const int counted = references[static_cast<size_t>(page)];
    if (counted != pool_->references(page)) {
      throw Error("page {} has {} references, but {} are known", page, pool_->references(page),
                  counted);
    }
    if (counted == 0) ++unused;
  }
  if (unused != pool_->free() || unused + cached + held != pool_->total()) {
    throw Error("{} free, {} cached and {} held pages are not the pool's {}", pool_->free(), cached,
                held, pool_->total());
  }
}

// The step that copies from these pages was launched: what writes them now comes behind it.
void Scheduler::unlock_copied() {
  for (const PrefixTree::Node node : copied_) tree_.unlock(node);
  copied_.clear();
}

// The next step.

void Scheduler::next(ScheduledStep& step) {
  step.slices.clear();
  step.tokens.clear();
  step.copies.clear();
  step.admitted.clear();
  step.preempted = 0;
  unlock_copied();
  budget_ = options_.max_tokens;
  rows_ = options_.max_logit_rows;
  listed_ = 0;
  insert_full_pages();
  ++steps_;
  if (options_.preempt_every > 0 && steps_ % uint64_t(options_.preempt_every) == 0 &&
      running_.size() > 1) {
    preempt(**running_.rbegin(), step);
  }
  plan_decodes(step);
  plan_prefills(step);
  if (step.preempted == 0) plan_admissions(step);
}

void Scheduler::add_slice(Sequence& s, int count, int logits, ScheduledStep& step) {
  ScheduledSlice slice;
  slice.id = s.id;
  slice.first = static_cast<int>(step.tokens.size());
  slice.count = count;
  slice.past = s.kv.length();
  slice.logits = logits;
  slice.pages = s.kv.pages();
  const int end = slice.past + count - static_cast<int>(s.drafts.size());
  for (int i = slice.past; i < end; ++i) {
    step.tokens.push_back(i < s.known() ? s.tokens[size_t(i)] : sampled_row(s.drawing_row));
  }
  step.tokens.insert(step.tokens.end(), s.drafts.begin(), s.drafts.end());
  slice.drafts = static_cast<int>(s.drafts.size());
  slice.samples = end == s.known() + s.in_flight;
  slice.decodes = slice.past >= s.prompt && end == slice.past + 1;
  budget_ -= count;
  if (slice.samples) {
    ++s.in_flight;
    s.drawing_row = options_.max_logit_rows - rows_ + logits - 1;
  }
  listed_ += pages_for(slice.past + count);
  s.verifying = slice.drafts > 0;
  rows_ -= logits;
  s.kv.commit(count);
  s.drafts.clear();
  step.slices.push_back(slice);
}

void Scheduler::plan_decodes(ScheduledStep& step) {
  std::vector<Sequence*> ready;
  for (Sequence* sequence : running_) {
    if (sequence->missing() == 1 && !sequence->verifying) ready.push_back(sequence);
  }
  draft(ready);
  for (Sequence* sequence : ready) {
    // Preempted for one before it, or for the next step.
    if (!running_.contains(sequence) || !can_list(*sequence)) {
      sequence->drafts.clear();
      continue;
    }
    const int drafts = static_cast<int>(sequence->drafts.size());
    // Drafts are not worth a preemption.
    if (drafts > 0 && !reserve_by_eviction(*sequence, 1 + drafts, step)) sequence->drafts.clear();
    if (!reserve(*sequence, 1 + int(sequence->drafts.size()), step)) {
      sequence->drafts.clear();
      continue;
    }
    const int tokens = 1 + static_cast<int>(sequence->drafts.size());
    add_slice(*sequence, tokens, tokens, step);
  }
}

// Whether the step can list the pages of one more sequence. Its drafts may enter one more page.
bool Scheduler::can_list(const Sequence& sequence) const {
  const int tokens = std::max(sequence.kv.length(), sequence.known()) + 1 + options_.max_drafts;
  return listed_ == 0 || listed_ + pages_for(tokens) <= options_.max_listed_pages;
}

// Drafts for the sequences that decode, within the step's tokens and rows.
void Scheduler::draft(std::span<Sequence* const> ready) {
  if (drafter_ == nullptr || ready.empty()) return;
  const int sequences = static_cast<int>(ready.size());
  const int room = std::min(budget_ / 2, rows_) - sequences;  // half is left for prompts
  const int most = std::min(options_.max_drafts, room / sequences);
  if (most <= 0) return;
  std::vector<DraftRequest> requests;
  for (Sequence* s : ready) {
    const int left = s->max_length - s->known() - 1;  // the last token needs no draft behind it
    if (s->in_flight > 0 || left <= 0) continue;
    requests.push_back({s->id, s->tokens, std::min(most, left), &s->drafts});
  }
  if (!requests.empty()) drafter_->propose(requests);
}

void Scheduler::plan_prefills(ScheduledStep& step) {
  for (Sequence* sequence : running_) {
    if (budget_ <= 0 || rows_ <= 0) return;
    if (sequence->missing() > 1 && can_list(*sequence)) add_prefill(*sequence, step);
  }
}

// As much of a sequence's missing tokens as the budget allows. Its pages are reserved.
void Scheduler::add_prefill(Sequence& s, ScheduledStep& step) {
  int count = std::min(s.missing(), budget_);
  const int past = s.kv.length();
  int logits = 0;
  if (s.all_prompt_rows && s.prompt_rows < s.prompt) {
    // One row for each token that has not given one yet.
    const int fresh = past + count - std::max(past, s.prompt_rows);
    if (fresh > rows_) count -= fresh - rows_;
    logits = past + count - std::max(past, s.prompt_rows);
    s.prompt_rows = std::max(s.prompt_rows, past + count);
  }
  if (count <= 0) return;
  if (past + count == s.known()) logits = std::max(logits, 1);
  add_slice(s, count, logits, step);
}

void Scheduler::plan_admissions(ScheduledStep& step) {
  const std::vector<Sequence*> in_order(waiting_.begin(), waiting_.end());
  for (Sequence* sequence : in_order) {
    if (budget_ <= 0 || rows_ <= 0 || running() >= options_.max_sequences) return;
    if (sequence->in_flight > 0) return;  // it was preempted, and its last token is not known yet
    if (!can_list(*sequence)) return;
    const size_t before = running_.size();
    if (!admit(*sequence, step)) return;
    if (running_.size() == before) continue;
    count_overtakes(*sequence);
    add_prefill(*sequence, step);
  }
}

// Whether a running sequence is about to compute tokens that `waiting` could then find cached.
bool Scheduler::prefix_is_being_computed(const Sequence& waiting, int cached) const {
  const int page_tokens = pool_->page_tokens();
  for (const Sequence* other : running_) {
    const int full = other->known() / page_tokens;
    if (other->in_tree >= full || other->salt != waiting.salt) continue;
    const size_t most = std::min(other->tokens.size(), waiting.tokens.size() - 1);
    const auto first = waiting.tokens.begin();
    const auto different =
        std::mismatch(first, first + static_cast<long>(most), other->tokens.begin()).first;
    const int shared = static_cast<int>(different - first) / page_tokens * page_tokens;
    if (shared - cached >= kMinSharedTokens && other->in_tree * page_tokens < shared) return true;
  }
  return false;
}

// False where the queue stops here. A sequence that waits for a shared prefix is passed by.
bool Scheduler::admit(Sequence& s, ScheduledStep& step) {
  const int page_tokens = pool_->page_tokens();
  PrefixTree::Match match;
  if (options_.prefix_cache && !(s.all_prompt_rows && s.prompt_rows < s.prompt)) {
    // The last token is always computed: its logits are wanted.
    match = tree_.match(s.salt, std::span(s.tokens).first(s.tokens.size() - 1));
    const int cached = static_cast<int>(match.pages.size()) * page_tokens;
    if (!s.promoted && prefix_is_being_computed(s, cached)) return true;
  }
  tree_.lock(match.node);
  tree_.lock(match.partial_node);
  const int fresh = pages_for(s.known()) - static_cast<int>(match.pages.size());
  // Every running sequence finds a page for its next tokens, or the new one would soon be preempted
  // again.
  const int headroom = running();
  const auto fits = [&] { return pool_->free() + tree_.evictable() >= fresh + headroom; };
  if (!fits() && match.partial_tokens > 0) {
    // The page to copy from may be the one that is missing.
    tree_.unlock(match.partial_node);
    match.partial_node = PrefixTree::kNone;
    match.partial_tokens = 0;
  }
  if (!fits()) {
    tree_.unlock(match.partial_node);
    tree_.unlock(match.node);
    return false;
  }
  tree_.evict(fresh - pool_->free());
  s.node = match.node;
  s.in_tree = static_cast<int>(match.pages.size());
  s.kv.append_shared(match.pages, s.in_tree * page_tokens);
  const bool reserved = s.kv.reserve(s.known() - s.kv.length(), step.copies);
  assert(reserved);
  (void)reserved;
  if (match.partial_tokens > 0) {
    step.copies.push_back(
        {match.partial_page, s.kv.pages()[match.pages.size()], match.partial_tokens});
    s.kv.commit(match.partial_tokens);
    copied_.push_back(match.partial_node);  // locked until the copy is queued
  }
  if (!s.admitted) step.admitted.emplace_back(s.id, s.kv.length());
  s.admitted = true;
  waiting_.erase(&s);
  running_.insert(&s);
  return true;
}

void Scheduler::count_overtakes(const Sequence& admitted) {
  std::vector<Sequence*> promoted;
  for (Sequence* sequence : waiting_) {
    if (sequence->arrival >= admitted.arrival || sequence->promoted) continue;
    if (++sequence->overtaken >= kMaxOvertakes) promoted.push_back(sequence);
  }
  for (Sequence* sequence : promoted) {
    waiting_.erase(sequence);
    sequence->promoted = true;
    waiting_.insert(sequence);
  }
}

}  // namespace ridge
