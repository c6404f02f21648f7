// The scheduler of a simulated replica: the rules of scheduling_rules.h over counted pages.
//
// All sequences with a finished prompt advance together: a decode step adds one token to each of
// them. So the batch keeps a number of decode steps, and a sequence its length less that number. A
// decode step then costs no work per sequence: the pages that it needs are counted by the remainder
// of the lengths, and who ends is the top of a heap.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <queue>
#include <span>
#include <vector>

#include "predict/step_clock.h"
#include "serving/block_cache.h"
#include "serving/scheduling_rules.h"
#include "serving/simulation.h"

namespace ridge {

struct SimulatedSequence : QueuedSequence {
  size_t request = 0;
  RequestTimes times;
  std::vector<int64_t> blocks;                // ids of whole pages of its prompt
  int known_outside = 0, length_outside = 0;  // tokens, where it does not decode
  bool admitted = false;                      // has been running
  bool decoding = false;                      // is in the batch
  int64_t base = 0;                           // decoding: its length less the batch's decode steps
  int computed = 0;                           // prompt tokens in the step that is being composed
  const int64_t* decode_steps = nullptr;      // the batch's
  BlockCache::Node node = BlockCache::kNone;  // end of the locked path
  int in_tree = 0;                            // blocks along that path
  BlockCache::Node run = BlockCache::kNone;   // waiting: the pages behind its blocks

  int length() const { return decoding ? int(base + *decode_steps) : length_outside; }
  int known() const { return decoding ? length() + 1 : known_outside; }
  int missing() const { return known() - length(); }
};

class SimulatedScheduler : private SchedulingRules<SimulatedScheduler, SimulatedSequence> {
 public:
  using Sequence = SimulatedSequence;
  using SchedulingRules::idle;
  using SchedulingRules::running;
  using SchedulingRules::waiting;

  SimulatedScheduler(const ServingPolicy& policy, int pages);

  // A sequence for a request, which add() makes wait.
  Sequence& make(size_t request, const SimulatedRequest& r);
  void add(Sequence& sequence) { enqueue(sequence); }

  // Plans a step. Its decodes, their context and its chunks are those below.
  void plan();
  int decodes() const { return decodes_; }
  double context() const { return context_; }  // tokens that the decoding sequences hold
  std::span<const PromptChunk> chunks() const { return chunks_; }
  std::span<Sequence* const> first_scheduled() const { return first_scheduled_; }
  int preempted() const { return preempted_; }

  // How many steps, the planned one included, are the same if nobody arrives: at most `most`, and
  // not past the end of a sequence.
  int equal_steps(int most) const;
  // Takes the pages of `steps` equal steps, of which the first is planned.
  void repeat(int steps);
  // Sequences that have drawn a token and are not done, and the tokens that they hold.
  int decoding() const { return decoding_; }
  double decoding_context() const { return double(base_sum_ + decoding_ * decode_steps_); }
  // Decode steps to the next end of one of them.
  int steps_to_finish() const;

  // The planned steps have run: tokens are drawn. Sequences that drew their first token, and that
  // ended, in order. The latter are gone after the next call of make().
  void finish_steps(std::vector<Sequence*>& first_tokens, std::vector<Sequence*>& ended);

  double outstanding_tokens() const;
  const BlockCache& cache() const { return cache_; }
  // Tokens of a prompt with these blocks that are cached.
  int cached_tokens(std::span<const int64_t> blocks) const {
    return policy_.prefix_cache ? cache_.match(blocks).blocks * policy_.page_tokens : 0;
  }

 private:
  friend SchedulingRules<SimulatedScheduler, SimulatedSequence>;

  // What the rules call.
  bool decode_all();
  void draft(std::span<Sequence* const>) {}
  void decode(Sequence& s) { budget_ -= reserve(s, 1) ? 1 : 0; }
  bool can_schedule(const Sequence&) const { return true; }
  void compute(Sequence& s, int count);
  int find_prefix(Sequence& s);
  bool prefix_is_being_computed(const Sequence& s, int found) const;
  bool acquire_prompt_pages(Sequence& s, int spare);
  bool reserve_by_eviction(Sequence& s, int) { return !enters_page(s) || cache_.acquire(1); }
  void release_pages(Sequence& s);
  int available_pages() const { return cache_.available(); }
  int pages_to_decode() const { return entering(decode_steps_); }
  int pages_held(const Sequence& s) const;

  // Whether the next token of a decoding sequence is the first of a page.
  bool enters_page(const Sequence& s) const { return s.length() % policy_.page_tokens == 0; }
  // Sequences that enter a page in the decode step behind so many others.
  int entering(int64_t steps) const {
    return entering_[static_cast<size_t>(steps % policy_.page_tokens)];
  }
  size_t phase(const Sequence& s) const;
  void start_decoding(Sequence& s);
  void stop_decoding(Sequence& s);
  void insert_blocks(Sequence& s);
  void unlock_copied();

  struct Finish {
    int64_t at = 0;
    uint64_t arrival = 0;
    int preemptions = 0;
    Sequence* sequence = nullptr;
    bool operator>(const Finish& other) const { return at > other.at; }
    // The sequence may have been preempted since.
    bool valid() const {
      return sequence->decoding && sequence->arrival == arrival &&
             sequence->preemptions == preemptions;
    }
  };
  void drop_invalid_finishes();

  BlockCache cache_;
  std::deque<Sequence> sequences_;
  std::vector<Sequence*> unused_, ended_;

  // The batch of sequences that decode.
  int64_t decode_steps_ = 0;
  int decoding_ = 0;
  int64_t base_sum_ = 0, max_length_sum_ = 0;  // over them
  std::vector<int> entering_;  // of them, by the decode step (modulo a page) that enters a page
  std::priority_queue<Finish, std::vector<Finish>, std::greater<>> finishes_;
  int64_t outside_ = 0;  // tokens to compute and to draw by sequences that do not decode

  // The step.
  bool decodes_planned_ = false;  // in this step
  bool decodes_run_ = false;      // and all of them have their pages
  int decodes_ = 0, steps_ = 0;
  double context_ = 0;
  std::vector<PromptChunk> chunks_;
  std::vector<Sequence*> computing_;  // whose chunks these are
  std::vector<Sequence*> first_scheduled_;
  // Of the sequence that is being admitted: blocks and pages of its run that are cached, where
  // those blocks end, and a block of which all but the last token match.
  int matched_ = 0, run_ = 0;
  BlockCache::Node match_end_ = BlockCache::kNone, partial_ = BlockCache::kNone;
  std::vector<BlockCache::Node> copied_;  // locked until the step has run
};

}  // namespace ridge
