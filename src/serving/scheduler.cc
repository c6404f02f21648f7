#include "serving/scheduler.h"

#include <algorithm>
#include <cassert>

#include "base/error.h"

namespace ridge {

struct ScheduledSequence : QueuedSequence {
  ScheduledSequence(Arrival&& from, PagePool& pool)
      : id(from.id),
        tokens(std::move(from.prompt)),
        salt(std::move(from.cache_salt)),
        all_prompt_rows(from.all_prompt_rows),
        max_drafts(from.max_drafts),
        kv(pool) {
    prompt = static_cast<int>(tokens.size());
    max_length = from.max_length;
    priority = from.priority;
  }

  RequestId id;
  std::vector<Token> tokens;  // prompt, then what was drawn
  std::string salt;
  bool all_prompt_rows;
  int max_drafts;
  bool admitted = false;  // has been running, perhaps until it was preempted
  int prompt_rows = 0;    // rows of prompt tokens that steps have given

  KvSequence kv;
  PrefixTree::Node node = PrefixTree::kNone;  // end of the locked path in the tree
  int in_tree = 0;                            // pages along that path
  int in_flight = 0;                          // tokens that steps in flight draw
  int drawing_row = 0;                        // in_flight > 0: the row of the last such step
  bool verifying = false;     // the step in flight verifies drafts: how many tokens come is unknown
  std::vector<Token> drafts;  // of the step that is being composed

  int known() const { return static_cast<int>(tokens.size()); }
  int length() const { return kv.length(); }
  int missing() const { return known() + in_flight - length(); }
};

namespace {

ServingPolicy rules_of(const SchedulerOptions& options, const PagePool& pool) {
  ServingPolicy policy = policy_of("ridge");
  policy.max_tokens = options.max_tokens;
  policy.max_sequences = options.max_sequences;
  policy.page_tokens = pool.page_tokens();
  policy.prefix_cache = options.prefix_cache;
  return policy;
}

}  // namespace

Scheduler::Scheduler(const SchedulerOptions& options, PagePool& pool, Drafter* drafter)
    : SchedulingRules(rules_of(options, pool)),
      options_(options),
      pool_(&pool),
      drafter_(drafter),
      tree_(pool) {
  assert(options.max_sequences > 0 && options.max_sequences <= options.max_tokens);
  assert(options.max_logit_rows >= options.max_sequences);
}

Scheduler::Scheduler(const ServingPolicy& policy, PagePool& pool)
    : SchedulingRules(policy), pool_(&pool), drafter_(nullptr), tree_(pool) {
  assert(policy.page_tokens == pool.page_tokens());
  options_.max_logit_rows = policy.max_sequences;
}

Scheduler::~Scheduler() = default;

// Events.

void Scheduler::add(Arrival arrival) {
  assert(!arrival.prompt.empty());
  assert(arrival.max_length > int(arrival.prompt.size()));
  assert(arrival.max_length <= pool_->total() * pool_->page_tokens());
  auto sequence = std::make_unique<Sequence>(std::move(arrival), *pool_);
  enqueue(*sequence);
  sequences_.emplace(sequence->id, std::move(sequence));
}

void Scheduler::remove(RequestId id) {
  unlock_copied();
  const auto found = sequences_.find(id);
  if (found == sequences_.end()) return;
  Sequence& sequence = *found->second;
  drop_pages(sequence);
  withdraw(sequence);
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
  if (!policy_.prefix_cache) return;
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

void Scheduler::release_pages(Sequence& s) {
  step_->preempted.push_back(s.id);
  drop_pages(s);
}

void Scheduler::drop_pages(Sequence& s) {
  if (!s.verifying) insert_full_pages(s);
  tree_.unlock(s.node);
  s.node = PrefixTree::kNone;
  s.in_tree = 0;
  s.kv.truncate(0);
  s.drafts.clear();
}

bool Scheduler::reserve_by_eviction(Sequence& sequence, int tokens) {
  while (!sequence.kv.reserve(tokens, step_->copies)) {
    if (tree_.evict(1) == 0) return false;
  }
  return true;
}

int Scheduler::pages_to_decode() const {
  int pages = 0;
  for (const Sequence* s : running_) {
    pages += !s->prefilling && s->missing() == 1 && s->kv.capacity() == s->length() ? 1 : 0;
  }
  return pages;
}

int Scheduler::pages_held(const Sequence& sequence) const {
  return static_cast<int>(sequence.kv.pages().size());
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
  tree_.for_each_page([&](int page, int) {
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

void Scheduler::copy_pages_to(CacheSnapshot& to) const {
  to.pages.assign(size_t(pool_->total()), {});
  for (const auto& [id, sequence] : sequences_) {
    for (const int page : sequence->kv.pages()) {
      CacheSnapshot::Page& entry = to.pages[size_t(page)];
      const auto owner = static_cast<int64_t>(id);
      entry.owner = entry.sharers++ == 0 ? owner : std::min(entry.owner, owner);
    }
  }
  tree_.for_each_page([&](int page, int locks) {
    CacheSnapshot::Page& entry = to.pages[size_t(page)];
    if (entry.sharers == 0) entry = {CacheSnapshot::kCached, locks};
  });
  const PageCounts counts = pages();
  to.free = counts.free;
  to.cached = counts.cached;
  to.held = counts.held;
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
  step.preempted.clear();
  unlock_copied();
  step_ = &step;
  preempted_ = 0;
  rows_ = options_.max_logit_rows;
  listed_ = 0;
  for (Sequence* sequence : running_) {
    if (!sequence->verifying) insert_full_pages(*sequence);
  }
  ++steps_;
  if (options_.preempt_every > 0 && steps_ % uint64_t(options_.preempt_every) == 0 &&
      running() > 1) {
    preempt(*running_.back());
  }
  plan_step();
}

void Scheduler::add_slice(Sequence& s, int count, int logits) {
  ScheduledStep& step = *step_;
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

void Scheduler::decode(Sequence& s) {
  assert(!s.verifying);
  if (!can_list(s)) {
    s.drafts.clear();
    return;
  }
  const int drafts = static_cast<int>(s.drafts.size());
  // Drafts are not worth a preemption.
  if (drafts > 0 && !reserve_by_eviction(s, 1 + drafts)) s.drafts.clear();
  const int tokens = 1 + static_cast<int>(s.drafts.size());
  if (reserve(s, tokens)) add_slice(s, tokens, tokens);
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
    const int drafts = std::min({most, left, s->max_drafts});
    if (s->in_flight > 0 || drafts <= 0) continue;
    requests.push_back({s->id, s->tokens, drafts, &s->drafts});
  }
  if (!requests.empty()) drafter_->propose(requests);
}

bool Scheduler::can_schedule(const Sequence& s) const {
  // in_flight > 0: it was preempted, and its last token is not known yet.
  return rows_ > 0 && s.in_flight == 0 && can_list(s);
}

void Scheduler::compute(Sequence& s, int count) {
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
  add_slice(s, count, logits);
}

// Whether a running sequence is about to compute tokens that `waiting` could then find cached.
bool Scheduler::prefix_is_being_computed(const Sequence& waiting, int found) const {
  if (!reads_prefix_cache(waiting)) return false;
  const int page_tokens = pool_->page_tokens();
  for (const Sequence* other : running_) {
    const int full = other->known() / page_tokens;
    if (other->in_tree >= full || other->salt != waiting.salt) continue;
    const size_t most = std::min(other->tokens.size(), waiting.tokens.size() - 1);
    const auto first = waiting.tokens.begin();
    const auto different =
        std::mismatch(first, first + static_cast<long>(most), other->tokens.begin()).first;
    const int shared = static_cast<int>(different - first) / page_tokens * page_tokens;
    if (shared - found >= kMinSharedTokens && other->in_tree * page_tokens < shared) return true;
  }
  return false;
}

bool Scheduler::reads_prefix_cache(const Sequence& s) const {
  return policy_.prefix_cache && !(s.all_prompt_rows && s.prompt_rows < s.prompt);
}

int Scheduler::find_prefix(Sequence& s) {
  match_ = {};
  if (reads_prefix_cache(s)) {
    // The last token is always computed: its logits are wanted.
    match_ = tree_.match(s.salt, std::span(s.tokens).first(s.tokens.size() - 1));
  }
  return static_cast<int>(match_.pages.size()) * pool_->page_tokens();
}

bool Scheduler::acquire_prompt_pages(Sequence& s, int spare) {
  PrefixTree::Match& match = match_;
  if (!policy_.copies_partial_pages) {
    match.partial_node = PrefixTree::kNone;
    match.partial_tokens = 0;
  }
  tree_.lock(match.node);
  tree_.lock(match.partial_node);
  const int fresh = pages_for(s.known()) - static_cast<int>(match.pages.size());
  const auto fits = [&] { return available_pages() >= fresh + spare; };
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
  s.kv.append_shared(match.pages, s.in_tree * pool_->page_tokens());
  const bool reserved = s.kv.reserve(s.known() - s.kv.length(), step_->copies);
  assert(reserved);
  (void)reserved;
  if (match.partial_tokens > 0) {
    step_->copies.push_back(
        {match.partial_page, s.kv.pages()[match.pages.size()], match.partial_tokens});
    s.kv.commit(match.partial_tokens);
    copied_.push_back(match.partial_node);  // locked until the copy is queued
  }
  if (!s.admitted) step_->admitted.emplace_back(s.id, s.kv.length());
  s.admitted = true;
  return true;
}

}  // namespace ridge
