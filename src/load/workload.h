// What a load generator sends and when: a pure function of its options and its seed.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "load/trace.h"

namespace ridge {

// A length in tokens.
struct LengthSpec {
  enum class Kind : uint8_t { fixed, uniform, lognormal };
  Kind kind = Kind::fixed;
  double low = 1, high = 1;  // uniform: both included; lognormal: the range that is kept
  double median = 1, sigma = 0;

  int draw(double uniform, double normal) const;  // uniform in [0, 1), normal: standard normal
  int longest() const { return static_cast<int>(high); }
};
// "512", "100..900" (uniform), "lognormal:512,0.8" (median, sigma of the logarithm; draws are kept
// within 3 sigma). Throws OptionError naming `option`.
LengthSpec parse_length(std::string_view text, std::string_view option);

struct WorkloadOptions {
  uint64_t seed = 1;
  int requests = 100;
  LengthSpec prompt, output;
  // A conversation has this many requests; each sends the whole history and a new prompt.
  int turns = 1;
  // Prompts of a group begin with the same tokens, which are not part of `prompt`.
  int prefix_groups = 0, prefix_tokens = 0;
  std::vector<TraceRow> trace;  // not empty: the lengths, and without a rate the arrivals
  // Conversations arrive at `rate` a second, with gaps of a gamma distribution of shape
  // `burstiness`: 1 is Poisson, less comes in bursts, more is even. 0: as in the trace.
  double rate = 0;
  double burstiness = 1;
};

class Workload {
 public:
  explicit Workload(WorkloadOptions options);

  int requests() const { return options_.requests; }
  int conversations() const;
  int turns(int conversation) const;  // the last conversation may have fewer
  // Seconds after the start, in order. As in vLLM's benchmark the times are scaled so that the last
  // comes at conversations / rate.
  const std::vector<double>& arrivals() const { return arrivals_; }
  int prompt_tokens(int conversation, int turn) const;  // without the prefix
  int output_tokens(int conversation, int turn) const;
  int prefix_tokens() const { return options_.prefix_groups > 0 ? options_.prefix_tokens : 0; }
  int longest_request() const;  // prefix, prompt and output of the longest request without history

  // The prompt as numbers below `symbols`: indices of words or of token ids. The prefix is part of
  // the first turn's.
  std::vector<uint32_t> prefix(int conversation, uint32_t symbols) const;
  std::vector<uint32_t> prompt(int conversation, int turn, uint32_t symbols) const;

 private:
  const TraceRow* trace_row(int conversation, int turn) const;

  WorkloadOptions options_;
  std::vector<double> arrivals_;
};

// Common English words, most of which are one token each in most vocabularies.
const std::vector<std::string_view>& load_words();

}  // namespace ridge
