// Runners for tests that need a GPU, and steps on them.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "engine/runner/runner.h"

namespace ridge {

// Whether an error says that nothing could run: a build without CUDA, no device, one before Ampere.
inline bool says_no_device(const std::string& error) {
  for (const char* absence : {"no CUDA device", "without the CUDA toolkit", "needs 8.0 (Ampere)"}) {
    if (error.find(absence) != std::string::npos) return true;
  }
  return false;
}

// Null, with the reason, where no device could run it. Any other error is the test's failure.
inline std::unique_ptr<Runner> on_device(Weights weights, const RunnerOptions& options,
                                         std::string& why) {
  try {
    return make_cuda_runner(std::move(weights), options);
  } catch (const Error& error) {
    why = error.what();
    if (says_no_device(why)) return nullptr;
    throw;
  }
}

inline PagePool pool_of(const Runner& runner) {
  return PagePool(runner.page_count(), runner.options().page_tokens);
}

// Gathers the slices of a step, runs it and commits its tokens.
class StepOf {
 public:
  explicit StepOf(Runner& runner) : runner_(runner) {}
  // `tokens` must live until run().
  void add(KvSequence& sequence, std::span<const Token> tokens, int logits) {
    if (!sequence.reserve(int(tokens.size()), copies_)) throw Error("the pool has no pages left");
    parts_.push_back({&sequence, tokens, logits});
  }
  const std::vector<PageCopy>& copies() const { return copies_; }
  void run() {
    runner_.copy_pages(copies_);
    slices_.clear();
    for (const Part& part : parts_) {
      slices_.push_back(
          {part.tokens, part.sequence->length(), part.sequence->pages(), part.logits});
    }
    runner_.run(slices_);
    for (const Part& part : parts_) part.sequence->commit(int(part.tokens.size()));
    parts_.clear(), copies_.clear();
  }
  std::vector<float> logits() {
    run();
    const std::span<const float> found = runner_.logits();
    return {found.begin(), found.end()};
  }

 private:
  struct Part {
    KvSequence* sequence;
    std::span<const Token> tokens;
    int logits;
  };
  Runner& runner_;
  std::vector<Part> parts_;
  std::vector<Slice> slices_;
  std::vector<PageCopy> copies_;
};

// Logits of the last `logits` of `tokens`, which continue the sequence.
inline std::vector<float> logits_of(Runner& runner, KvSequence& sequence,
                                    std::span<const Token> tokens, int logits) {
  StepOf step(runner);
  step.add(sequence, tokens, logits);
  return step.logits();
}

}  // namespace ridge
