// Verdicts, and the rules that argue for them. Each rule looks at the case on its own, collects
// what speaks for and against its verdict, and arrives at a confidence. The strongest wins, the
// second is the runner-up; where none is strong enough, the verdict is "unknown".
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "diagnose/reconstruct.h"

namespace ridge {

enum class Verdict : uint8_t {
  idle,
  under_batched,         // steps are as they should be, and carry too few sequences
  queue_capacity,        // requests arrive faster than the device can serve them
  admission_limit,       // requests wait while cache and device have room
  kv_full,               // no pages for more sequences; running ones are preempted
  prefill_interference,  // prompts of others stall the decode of everybody
  prefill_bound,         // the device spends its time on prompts
  host_bound,            // launches, Python, API process, tokenizer, CPU limit
  interconnect,          // collectives between devices
  slow_kernel,           // one operator is far slower than it should be
  prefix_miss,           // prompts are computed again that the cache could hold
  drafts_too_long,       // speculation costs more than it gains
  host_weights,          // weights stream from host memory
  power,                 // power or heat lowers the clocks
  memory_bound,
  compute_bound,
  impossible,  // faster than the roof, or contradictory: a number is wrong
  unknown,     // not enough evidence
  count_
};
std::string_view verdict_name(Verdict verdict);

enum class Bearing : uint8_t { supports, contradicts };

struct Finding {
  Bearing bearing = Bearing::supports;
  std::string text;
};

// What the counters of this device read when a ceiling is reached.
struct CounterRoofs {
  double dram, tensor;
};
CounterRoofs counter_roofs(const Machine* machine, std::string_view device_name);

// What the rules look at.
struct Case {
  const Observations& seen;
  const Reconstruction& run;
  CounterRoofs roofs;
  const Machine* machine;  // nullptr: not known

  bool dram_busy() const;
  bool dram_quiet() const;  // known, and far from its roof
  bool tensor_busy() const;
  bool tensor_quiet() const;
  bool waits() const;                // requests wait in the queue
  bool device_idles() const;         // utilisation is known and low
  bool single_user() const;          // a local engine with one request: a batch of 1 is meant so
  double running() const;            // requests running or sequences decoding; 0: not known
  double prompt_per_output() const;  // prompt tokens for each output token; 0: not known
};

// Confidence that grows with each independent piece of evidence (noisy or) and shrinks by a factor
// with each contradiction.
class Belief {
 public:
  void supports(double weight, std::string text);
  void contradicts(double factor, std::string text);
  double value() const { return value_; }
  std::vector<Finding> findings;

 private:
  double value_ = 0;
};

struct Hypothesis {
  Verdict verdict = Verdict::unknown;
  Belief belief;
  std::optional<Wall> wall;  // of the device, where the evidence names one
  std::string sentence;      // the answer in one line
  bool healthy = false;      // nothing is wrong
};

using Rule = std::optional<Hypothesis> (*)(const Case& c);
// In the order of judgement, which decides ties: is it sound, who asks, who waits, then the step.
std::span<const Rule> soundness_rules();  // impossible, idle
std::span<const Rule> scheduler_rules();  // under-batched, queueing, admission, KV
std::span<const Rule> prompt_rules();     // interference, prefill, prefix, drafts
std::span<const Rule> step_rules();       // host, links, kernels, power, memory, compute
std::span<const Rule> profile_rules();    // from traces and kernel profiles

}  // namespace ridge
