// The seam between generation and a backend: a step takes tokens of some sequences and gives
// logits.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/weight_format.h"
#include "engine/kv/pages.h"
#include "engine/sampling/top_logits.h"
#include "engine/weights/weights.h"
#include "machine/machine.h"
#include "step/step.h"
#include "text/tokenizer/tokenizer.h"

namespace ridge {

class Profile;
class ThreadTeam;
struct RankLinks;

// int8, fp8: a scale per token and head. The CPU keeps no fp8, CUDA no f32.
enum class KvStorage : uint8_t { f32, f16, bf16, int8, fp8 };

// Everything a run may need is allocated at construction from these bounds; a step that exceeds one
// throws Error and changes nothing.
struct RunnerOptions {
  int threads = 0;  // CPU; 0: one per core
  // CUDA; the CPU keeps the file's. None: released_device_format().
  std::optional<cuda::WeightFormat> device_format = {};
  KvStorage kv = KvStorage::f16;
  int page_tokens = 16;
  int cache_tokens = 4096;  // capacity of the KV cache, all sequences together
  int max_context = 0;      // of a sequence; 0: cache_tokens
  int max_tokens = 512;     // of one step: longer prompts come in chunks
  int max_sequences = 1;    // slices of one step; on CUDA they list at most 4 x the cache in pages
  int max_logit_rows = 0;   // rows of logits of one step; 0: one per sequence
  // CPU: a token's result depends on its own sequence alone, whatever shares its steps. Without it
  // that holds too, except on a CPU with AMX: larger steps of block formats round otherwise, and so
  // does attention of chunks of 16 tokens and more, unless the weights are f32 or f16.
  bool invariant = false;
  // CPU: runners that take turns on the same cores share a team, because the threads of an idle one
  // would spin there. Null: one of its own.
  std::shared_ptr<ThreadTeam> team = nullptr;
  // This runner is one rank of several, and its weights are its part (engine/ranks/). It takes
  // every step that the others take. Null: it is alone.
  std::shared_ptr<RankLinks> ranks = nullptr;

  int longest() const { return max_context > 0 ? max_context : cache_tokens; }
  int logit_rows() const { return max_logit_rows > 0 ? max_logit_rows : max_sequences; }
};

// The ranks behind a runner, as a prediction needs them.
struct RankPlacement {
  int ranks = 1;
  int per_host = 1;          // on the host that has most of them
  std::optional<Link> link;  // that CPU ranks talk through, timed among them now
};

// The token that the step before drew or chose in row `row` of its logits (Runner::sample), as an
// input of the next step. The id need not have reached the host.
constexpr Token sampled_row(int row) { return -1 - row; }

// One sequence's part of a step: `tokens` after `past` cached ones, in pages that cover both.
// Within one step no slice may read a page that another slice writes: slices run side by side. A
// slice writes the pages of its tokens and reads those of everything before them. Shared pages are
// therefore full ones, or copied first (KvSequence::reserve). Debug builds check it.
struct Slice {
  std::span<const Token> tokens;  // ids, or sampled_row() of the step before
  int past = 0;
  std::span<const int> pages;
  int logits = 1;  // rows wanted: of the last `logits` tokens
};

// A step is run(), then for its rows any of: logits(), or sample() and fetch().
//
// On CUDA run() and sample() only queue work. Up to kMaxStepsInFlight steps may be queued before
// the first is fetched, so the host prepares step n + 1 while the device runs step n: its input
// tokens are sampled_row()s.
class Runner {
 public:
  static constexpr int kMaxStepsInFlight = 2;

  virtual ~Runner() = default;
  virtual const Weights& weights() const = 0;
  virtual const RunnerOptions& options() const = 0;
  int page_count() const {  // of the KV cache: the size of the caller's PagePool
    return (options().cache_tokens + options().page_tokens - 1) / options().page_tokens;
  }

  // Runs all layers for all slices and writes their keys and values.
  // On the CPU each token's result depends only on its own sequence (RunnerOptions::invariant): not
  // on the batch, the chunking or the threads. On CUDA equal steps give equal bits, and so does
  // every step of at most 8 tokens (of models with a decode kernel) whatever else is in it; of int8
  // and int4 weights every step of 2 to 8, and every step of one. Larger steps split their GEMMs by
  // how many tokens there are, so sums may round differently in a step of another size.
  virtual void run(std::span<const Slice> batch) = 0;
  // Logits of the wanted rows of the last step, in the order of the slices: [rows][vocab]. Waits.
  // Valid until the next run().
  virtual std::span<const float> logits() = 0;
  // Queues the search for each wanted row's top logits and its draw; one request per row.
  virtual void sample(std::span<const TopLogitsRequest> requests) = 0;
  // Waits for the oldest sample() that was not fetched. Valid until the next fetch().
  virtual std::span<const TopLogits> fetch() = 0;
  std::span<const TopLogits> top_logits(std::span<const TopLogitsRequest> requests) {
    sample(requests);
    return fetch();
  }
  // Copies pages of the KV cache, after what is queued and before the next step.
  virtual void copy_pages(std::span<const PageCopy> copies) = 0;

  // Whether run() and sample() only queue work, so that planning the next step meanwhile pays.
  virtual bool queues_steps() const { return false; }
  // Pages that the sequences of one step may list together: a shared page counts for each of them.
  virtual int max_listed_pages() const { return std::numeric_limits<int>::max(); }
  virtual void set_profile(Profile* profile) = 0;  // null: none
  virtual void fill_cache(uint64_t seed) = 0;      // random keys and values, for benchmarks
  virtual std::string device() const = 0;          // "CPU, 2 threads, AVX-512"
  // Bytes/s at which plain reads stream these very weights, by one pass over them now; 0: not
  // known. Memory is not equally fast everywhere and always: other guests of a host, pages, caches.
  // Where ranks share the model: of all of them, side by side within a stage, stage after stage.
  virtual double read_rate() { return 0; }
  virtual RankPlacement place_ranks() { return {}; }
  virtual double repacked_bytes() const = 0;  // copied into another layout on loading
  virtual Plan plan() const = 0;              // what the predictor must assume to describe this run
};

std::vector<double> token_counts(std::span<const Slice> batch);  // of each slice
// Whether no slice reads or writes a page that another slice writes: the rule of Slice.
bool slices_are_independent(std::span<const Slice> batch, int page_tokens);
// Throws Error where a step exceeds the runner's bounds or names a token outside the vocabulary.
// In debug builds also asserts that the slices are independent.
void check_step(std::span<const Slice> batch, const RunnerOptions& options, int vocab);

std::unique_ptr<Runner> make_cpu_runner(Weights weights, const RunnerOptions& options);
// Without a device, or in a build without CUDA, throws Error with the reason.
std::unique_ptr<Runner> make_cuda_runner(Weights weights, const RunnerOptions& options);

}  // namespace ridge
