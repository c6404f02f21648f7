// Times of single steps: one prompt, and generation over a batch.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "engine/account/ledger.h"
#include "engine/account/roof_system.h"
#include "engine/runner/runner.h"

namespace ridge {

struct BenchRow {
  const char* test;
  int batch, context, tokens;   // tokens of one step, all sequences
  std::vector<double> seconds;  // of each step
  std::vector<double> rates;    // plain reads of the weights between the steps, bytes/s
  Account account;              // of one step at the median

  double median() const { return quantile(0.5); }
  double quantile(double q) const { return quantile_of(seconds, q); }
  static double quantile_of(std::vector<double> values, double q) {
    std::sort(values.begin(), values.end());
    return values[size_t(std::lround(q * double(values.size() - 1)))];
  }
};

// Token ids that look random and are not all the same.
std::vector<Token> some_tokens(int count, int vocab, uint32_t salt);

// One prompt of so many tokens; the median of `repeats`.
BenchRow bench_prompt(Runner& runner, const System& system, int tokens, int repeats);
// `steps` steps of `batch` sequences that hold `context` tokens each.
BenchRow bench_generate(Runner& runner, const System& system, int batch, int context, int steps);

}  // namespace ridge
