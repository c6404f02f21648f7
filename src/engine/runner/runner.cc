#include "engine/runner/runner.h"

#include <algorithm>
#include <cassert>

#include "base/error.h"

namespace ridge {
namespace {

int length_of(const Slice& slice) { return slice.past + static_cast<int>(slice.tokens.size()); }

// The pages that a slice writes, and with those before them all that it reads.
std::span<const int> written_pages(const Slice& slice, int page_tokens) {
  const int first = slice.past / page_tokens;
  const int end = (length_of(slice) + page_tokens - 1) / page_tokens;
  return slice.pages.subspan(static_cast<size_t>(first), static_cast<size_t>(end - first));
}
std::span<const int> read_pages(const Slice& slice, int page_tokens) {
  const int end = (length_of(slice) + page_tokens - 1) / page_tokens;
  return slice.pages.first(static_cast<size_t>(end));
}

void check_slice(const Slice& slice, const RunnerOptions& options, int vocab) {
  const int fresh = static_cast<int>(slice.tokens.size());
  if (fresh == 0) throw Error("a slice of a step has no tokens");
  if (slice.past < 0) throw Error("a slice continues {} tokens", slice.past);
  if (slice.logits < 0 || slice.logits > fresh) {
    throw Error("a slice of {} tokens has no {} rows of logits", fresh, slice.logits);
  }
  const int64_t room = int64_t(slice.pages.size()) * options.page_tokens;
  if (room < length_of(slice)) {
    throw Error("a slice of {} tokens has pages for {}", length_of(slice), room);
  }
  const int pages = (options.cache_tokens + options.page_tokens - 1) / options.page_tokens;
  for (const int page : slice.pages) {
    if (page < 0 || page >= pages) throw Error("page {} is none of the cache's {}", page, pages);
  }
  for (const Token token : slice.tokens) {
    if (token >= vocab) throw Error("token {} is outside the vocabulary of {}", token, vocab);
    if (token < sampled_row(options.logit_rows() - 1)) {
      throw Error("token {} is outside the vocabulary and names no row of the step before", token);
    }
  }
}

}  // namespace

std::vector<double> token_counts(std::span<const Slice> batch) {
  std::vector<double> counts;
  for (const Slice& slice : batch) counts.push_back(double(slice.tokens.size()));
  return counts;
}

bool slices_are_independent(std::span<const Slice> batch, int page_tokens) {
  for (const Slice& writer : batch) {
    for (const int page : written_pages(writer, page_tokens)) {
      for (const Slice& reader : batch) {
        if (&reader == &writer) continue;
        const std::span<const int> read = read_pages(reader, page_tokens);
        if (std::find(read.begin(), read.end(), page) != read.end()) return false;
      }
    }
  }
  return true;
}

void check_step(std::span<const Slice> batch, const RunnerOptions& options, int vocab) {
  if (batch.empty()) throw Error("a step has no slices");
  if (batch.size() > static_cast<size_t>(options.max_sequences)) {
    throw Error("a step of {} sequences; the runner was made for {}", batch.size(),
                options.max_sequences);
  }
  size_t tokens = 0, rows = 0;
  for (const Slice& slice : batch) {
    check_slice(slice, options, vocab);
    tokens += slice.tokens.size();
    rows += static_cast<size_t>(slice.logits);
  }
  if (tokens > static_cast<size_t>(options.max_tokens)) {
    throw Error("a step of {} tokens; the runner was made for {}", tokens, options.max_tokens);
  }
  if (rows > static_cast<size_t>(options.logit_rows())) {
    throw Error("a step with {} rows of logits; the runner was made for {}", rows,
                options.logit_rows());
  }
  assert(slices_are_independent(batch, options.page_tokens));
}

}  // namespace ridge
