// Continuous batching: which tokens of which sequences run in the next step.
//
// A state machine without threads, clock or sockets. Events go in (a request arrives, is removed, a
// step gave tokens), one step comes out. Which sequences run is said by scheduling_rules.h, which a
// simulation runs too; this is the real book: tokens, pages, the prefix tree and drafts.
//
// Steps may be planned ahead. A sequence whose next token is being drawn by a step in flight gets
// sampled_row() as its input. Pages that a removed sequence releases may be handed out while a step
// in flight still writes them: the device runs steps in order.
#pragma once

#include <limits>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/kv/pages.h"
#include "engine/runner/runner.h"
#include "serving/cache_snapshot.h"
#include "serving/drafter.h"
#include "serving/prefix_tree.h"
#include "serving/request.h"
#include "serving/scheduling_rules.h"

namespace ridge {

struct SchedulerOptions {
  int max_tokens = 512;     // of one step: the token budget
  int max_sequences = 64;   // running at once; at most max_tokens
  int max_logit_rows = 64;  // of one step; at least max_sequences
  int max_drafts = 0;       // of one sequence in one step
  // The sequences of a step list at most so many pages together, shared ones several times.
  int max_listed_pages = std::numeric_limits<int>::max();
  bool prefix_cache = true;
  int preempt_every = 0;  // for tests: preempts the last running sequence every so many steps
};

struct Arrival {
  RequestId id = 0;
  std::vector<Token> prompt;
  int max_length = 0;  // of prompt and generated tokens together; at most the pool's tokens
  int priority = 0;    // the lower number goes first
  std::string cache_salt;
  bool all_prompt_rows = false;  // logits of every prompt token; does not read the prefix cache
  int max_drafts = std::numeric_limits<int>::max();  // its own bound, beside the scheduler's
};

// A sequence's part of a step.
struct ScheduledSlice {
  RequestId id = 0;
  int first = 0, count = 0;  // its tokens in ScheduledStep::tokens
  int past = 0;
  int logits = 0;              // rows of its last tokens
  int drafts = 0;              // the last so many of its tokens are drafts
  bool samples = false;        // the last 1 + drafts rows are drawn from
  bool decodes = false;        // continues a sequence; otherwise computes a prompt's tokens
  std::span<const int> pages;  // valid until the next event
};

struct ScheduledStep {
  std::vector<ScheduledSlice> slices;
  std::vector<Token> tokens;
  std::vector<PageCopy> copies;  // run before the step
  std::vector<RequestId> preempted;
  std::vector<std::pair<RequestId, int>> admitted;  // first admissions: id, tokens found cached

  bool empty() const { return slices.empty(); }
  std::span<const Token> tokens_of(const ScheduledSlice& slice) const {
    return std::span(tokens).subspan(size_t(slice.first), size_t(slice.count));
  }
};

struct ScheduledSequence;

class Scheduler : private SchedulingRules<Scheduler, ScheduledSequence> {
 public:
  using SchedulingRules::idle;
  using SchedulingRules::kMaxOvertakes;
  using SchedulingRules::running;
  using SchedulingRules::waiting;

  // `pool` and `drafter` (null: no drafts) outlive the scheduler.
  Scheduler(const SchedulerOptions& options, PagePool& pool, Drafter* drafter = nullptr);
  // With another engine's rules. The policy's page_tokens are the pool's.
  Scheduler(const ServingPolicy& policy, PagePool& pool);
  ~Scheduler();

  // Events.
  void add(Arrival arrival);
  void remove(RequestId id);  // ended or cancelled; unknown ids are ignored
  // What a slice with `samples` gave: at least one token, of which all but the last equal its
  // drafts. Of a removed sequence: ignored.
  void accept(const ScheduledSlice& slice, std::span<const Token> tokens);

  // The next step, in `step`; empty where nothing can run until a step in flight gives its tokens
  // or a request arrives. It must be launched before the next event.
  void next(ScheduledStep& step);

  int preemptions(RequestId id) const;

  struct PageCounts {
    int free = 0, cached = 0, held = 0;  // cached: by the prefix tree alone; held: by sequences
  };
  PageCounts pages() const;
  // Counts every page anew. Throws Error where a page's references are not those of the tree and of
  // the sequences, so that free + cached + held = pool does not hold.
  void check_pages() const;
  // What the cache holds now. Allocates nothing once `to` has its sizes.
  void copy_pages_to(CacheSnapshot& to) const;
  void copy_tree_to(CacheSnapshot& to) const { tree_.copy_nodes(to.nodes); }

 private:
  using Sequence = ScheduledSequence;
  friend SchedulingRules<Scheduler, ScheduledSequence>;

  // What the rules call.
  bool decode_all() { return false; }
  void draft(std::span<Sequence* const> ready);
  void decode(Sequence& sequence);
  bool can_schedule(const Sequence& sequence) const;
  void compute(Sequence& sequence, int count);
  int find_prefix(Sequence& sequence);
  bool prefix_is_being_computed(const Sequence& waiting, int found) const;
  bool acquire_prompt_pages(Sequence& sequence, int spare);
  bool reserve_by_eviction(Sequence& sequence, int tokens);
  void release_pages(Sequence& sequence);  // called for preemptions only
  int available_pages() const { return pool_->free() + tree_.evictable(); }
  int pages_to_decode() const;
  int pages_held(const Sequence& sequence) const;

  void drop_pages(Sequence& sequence);
  void unlock_copied();
  void insert_full_pages(Sequence& sequence);
  bool can_list(const Sequence& sequence) const;
  bool reads_prefix_cache(const Sequence& sequence) const;
  void add_slice(Sequence& sequence, int count, int logits);

  SchedulerOptions options_;
  PagePool* pool_;
  Drafter* drafter_;
  PrefixTree tree_;
  std::unordered_map<RequestId, std::unique_ptr<Sequence>> sequences_;
  ScheduledStep* step_ = nullptr;         // the one that is being composed
  PrefixTree::Match match_;               // of the sequence that is being admitted
  std::vector<int> held_;                 // of the last insertion into the tree
  std::vector<PrefixTree::Node> copied_;  // sources of the last step's copies, locked
  uint64_t steps_ = 0;
  int rows_ = 0;    // left in the step that is being composed
  int listed_ = 0;  // pages that its slices list
};

}  // namespace ridge
