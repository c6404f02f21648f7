// Continuous batching: which tokens of which sequences run in the next step.
//
// A state machine without threads, clock or sockets. Events go in (a request arrives, is removed, a
// step gave tokens), one step comes out. The engine executes that step; a simulation asks the
// predictor how long it takes. Both therefore run the same schedule.
//
// A sequence has tokens (prompt, then what was drawn) and a length: tokens whose keys and values
// are in the cache. A step gives each sequence some of the tokens it misses:
//   1. Running sequences that miss one token (decode), each with its drafts.
//   2. Running sequences that miss more (prefill, in chunks), in order, while the budget lasts.
//   3. Waiting ones, in order, while budget, pages and places last. The first that does not fit
//      stops the queue, so that large prompts are not passed by for ever.
//
// Order is (promoted, priority, arrival). A waiting request that kMaxOvertakes later arrivals have
// been admitted before is promoted: it goes before every priority. So a request is overtaken by at
// most kMaxOvertakes later ones.
//
// Pages. A sequence is admitted when its whole prompt fits, and gets the pages for it at once. A
// decode that finds no page evicts cached prefixes, then preempts the last running sequence of the
// order: its pages go to the prefix tree, it waits, and its tokens are computed again as a prompt.
// The first of the order is never preempted, and it fits the pool alone (add() requires it). So
// some sequence always advances, and every request ends.
//
// Steps may be planned ahead. A sequence whose next token is being drawn by a step in flight gets
// sampled_row() as its input. Pages that a removed sequence releases may be handed out while a step
// in flight still writes them: the device runs steps in order.
#pragma once

#include <limits>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/kv/pages.h"
#include "engine/runner.h"
#include "serving/drafter.h"
#include "serving/prefix_tree.h"
#include "serving/request.h"

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
  int preempted = 0;
  std::vector<std::pair<RequestId, int>> admitted;  // first admissions: id, tokens found cached

  bool empty() const { return slices.empty(); }
  std::span<const Token> tokens_of(const ScheduledSlice& slice) const {
    return std::span(tokens).subspan(size_t(slice.first), size_t(slice.count));
  }
};

class Scheduler {
 public:
  static constexpr int kMaxOvertakes = 64;

  // `pool` and `drafter` (null: no drafts) outlive the scheduler.
  Scheduler(const SchedulerOptions& options, PagePool& pool, Drafter* drafter = nullptr);
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

  int running() const { return static_cast<int>(running_.size()); }
  int waiting() const { return static_cast<int>(waiting_.size()); }
  bool idle() const { return running_.empty() && waiting_.empty(); }
  int preemptions(RequestId id) const;

  struct PageCounts {
    int free = 0, cached = 0, held = 0;  // cached: by the prefix tree alone; held: by sequences
  };
  PageCounts pages() const;
  // Counts every page anew. Throws Error where a page's references are not those of the tree and of
  // the sequences, so that free + cached + held = pool does not hold.
  void check_pages() const;

 private:
  struct Sequence;
  struct Order {
    bool operator()(const Sequence* a, const Sequence* b) const;
  };
  using Queue = std::set<Sequence*, Order>;

  void unlock_copied();
  void insert_full_pages();
  void insert_full_pages(Sequence& sequence);
  void release_pages(Sequence& sequence);
  int pages_for(int tokens) const;
  bool reserve_by_eviction(Sequence& sequence, int tokens, ScheduledStep& step);
  bool reserve(Sequence& sequence, int tokens, ScheduledStep& step);
  void preempt(Sequence& sequence, ScheduledStep& step);
  void plan_decodes(ScheduledStep& step);
  bool can_list(const Sequence& sequence) const;
  void draft(std::span<Sequence* const> ready);
  void plan_prefills(ScheduledStep& step);
  void plan_admissions(ScheduledStep& step);
  bool prefix_is_being_computed(const Sequence& waiting, int cached) const;
  bool admit(Sequence& sequence, ScheduledStep& step);
  void count_overtakes(const Sequence& admitted);
  void add_prefill(Sequence& sequence, ScheduledStep& step);
  void add_slice(Sequence& sequence, int count, int logits, ScheduledStep& step);

  SchedulerOptions options_;
  PagePool* pool_;
  Drafter* drafter_;
  PrefixTree tree_;
  std::unordered_map<RequestId, std::unique_ptr<Sequence>> sequences_;
  Queue running_, waiting_;
  std::vector<int> held_;                 // of the last insertion into the tree
  std::vector<PrefixTree::Node> copied_;  // sources of the last step's copies, locked
  uint64_t arrivals_ = 0, steps_ = 0;
  int budget_ = 0, rows_ = 0;  // left in the step that is being composed
  int listed_ = 0;             // pages that its slices list
};

}  // namespace ridge
