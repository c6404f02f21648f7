// Attention of a step over the paged KV cache: planned once per step, launched in every layer. The
// kernels are Hopper's (attention.cuh) or those of every card since Ampere
// (portable/attention.cuh).
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "engine/cuda/attention/attention_args.cuh"
#include "engine/cuda/device/step_inputs.cuh"

namespace ridge::cuda {

// The largest step of a run. All memory is allocated from these bounds.
struct AttentionBounds {
  int tokens = 0, sequences = 0;  // of one step
  int cache_pages = 0;            // of the KV cache
  // Pages that the sequences of one step see together; a shared page counts for each of them.
  int context_pages = 0;
};

class StepAttention {
 public:
  virtual ~StepAttention() = default;
  // Adds the work lists to the step's inputs. `pages`: page numbers of the sequences, on the host.
  virtual void plan(StepInputs& inputs, const std::vector<AttentionSequence>& sequences,
                    const int* pages) = 0;
  // Whether launch() can write its outputs in E4M3 (AttentionArgs::fp8_out).
  virtual bool can_write_fp8() const { return false; }
  // q and k norm, RoPE, the append to the cache, and the pages of prefill sequences as bf16 where
  // the cache has another format. Only if needs_rope().
  virtual bool needs_rope() const = 0;
  virtual void rope_and_append(cudaStream_t stream, const AttentionArgs& args) = 0;
  // Attention of all sequences. Both functions queue dependent launches (device.cuh).
  virtual void launch(cudaStream_t stream, const AttentionArgs& args) = 0;
};

// Chunked attention (Llama 4): a token attends to the keys of its own chunk. So each chunk is a
// sequence of its own, whose pages begin at the chunk's: `chunk` is a multiple of kPageTokens.
inline void cut_into_chunks(const std::vector<AttentionSequence>& sequences, int chunk,
                            std::vector<AttentionSequence>& to) {
  to.clear();
  for (const AttentionSequence& s : sequences) {
    for (int done = 0; done < s.rows;) {
      const int past = s.past + done, first = past / chunk * chunk;
      const int rows = std::min(s.rows - done, first + chunk - past);
      to.push_back({s.row + done, rows, past - first, s.pages + first / kPageTokens, first});
      done += rows;
    }
  }
}
// n tokens of a sequence touch at most n / chunk + 2 chunks.
inline AttentionBounds bounds_of_chunks(AttentionBounds bounds, int chunk) {
  bounds.sequences = 2 * bounds.sequences + bounds.tokens / chunk;
  return bounds;
}

// Parts of the plans that both have.

template <typename T>
T* add_list(StepInputs& inputs, const std::vector<T>& values) {
  const StepInput<T> list = inputs.add<T>(values.size());
  std::copy(values.begin(), values.end(), list.host);
  return list.device;
}

// Appends the tokens of a sequence, cut at half pages.
inline void append_rope_runs(std::vector<RopeRun>& runs, const AttentionSequence& s) {
  constexpr int kHalfPage = kPageTokens / 2;
  for (int i = 0; i < s.rows;) {
    const int count = std::min(s.rows - i, kHalfPage - (s.past + i) % kHalfPage);
    runs.push_back({s.row + i, count});
    i += count;
  }
}
// The first and the last run of a sequence may be shorter than half a page.
inline size_t max_rope_runs(const AttentionBounds& b) {
  return size_t(b.tokens) / (kPageTokens / 2) + 2 * size_t(b.sequences);
}

// The pages that prefill sequences see, each once.
class PrefillPages {
 public:
  explicit PrefillPages(int cache_pages) : last_plan_(size_t(cache_pages)) {}
  const std::vector<int>& of(const std::vector<AttentionSequence>& prefill, const int* pages) {
    found_.clear(), ++plan_;
    for (const AttentionSequence& s : prefill) {
      const int count = (s.past + s.rows + kPageTokens - 1) / kPageTokens;
      for (int i = 0; i < count; ++i) {
        const int page = pages[s.pages + i];
        if (std::exchange(last_plan_[size_t(page)], plan_) != plan_) found_.push_back(page);
      }
    }
    return found_;
  }

 private:
  std::vector<int> found_;           // kept for its memory
  std::vector<unsigned> last_plan_;  // [page]: the last plan that has it
  unsigned plan_ = 0;
};

}  // namespace ridge::cuda
