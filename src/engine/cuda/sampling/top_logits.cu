#include <algorithm>
#include <cmath>

#include "engine/cuda/sampling/top_logits.cuh"

namespace ridge::cuda {

TopLogitsFinder::Buffers::Buffers(Workspace& workspace, int max_rows, int vocab) {
  const size_t rows = size_t(max_rows), parts = rows * size_t(top_logits_parts(vocab));
  requests = workspace.take<TopLogitsRequestRow>(rows);
  this->parts = workspace.take<TopLogitsPart>(parts);
  groups = workspace.take<unsigned long long>(parts * (kTopLogitsPart / kTopLogitsGroup));
  chosen = workspace.take<int>(rows);
}

size_t TopLogitsFinder::memory_bytes(int max_rows, int vocab) {
  Workspace counted;
  Buffers(counted, max_rows, vocab);
  return counted.bytes();
}

TopLogitsFinder::TopLogitsFinder(int max_rows, int vocab, int first)
    : max_rows_(max_rows),
      vocab_(vocab),
      first_(first),
      memory_(memory_bytes(max_rows, vocab)),
      buffers_([&] {
        Workspace memory(memory_.data());
        return Buffers(memory, max_rows, vocab);
      }()),
      top_logits_(size_t(max_rows)) {
  const size_t rows = size_t(max_rows);
  for (Answer& answer : answers_) {
    check(cudaMallocHost(&answer.requests, rows * sizeof(TopLogitsRequestRow)), "pinning memory");
    check(cudaMallocHost(&answer.rows, rows * sizeof(TopLogitsRow)), "pinning memory");
    check(cudaEventCreateWithFlags(&answer.done, cudaEventDisableTiming), "making an event");
    answer.counts.resize(rows);
  }
}

TopLogitsFinder::~TopLogitsFinder() {
  for (Answer& answer : answers_) {
    cudaEventDestroy(answer.done);
    cudaFreeHost(answer.rows);
    cudaFreeHost(answer.requests);
  }
}

void TopLogitsFinder::write_request(const TopLogitsRequest& request,
                                    TopLogitsRequestRow& to) const {
  // Without a draw the chosen token is the first candidate.
  const int least = request.draw ? 0 : 1;
  to.key = request.key, to.scale = request.scale, to.draw = request.draw;
  to.count = std::clamp(request.count, least, kMaxCandidates);
  to.token_count = std::min(int(request.tokens.size()), kMaxRequestedTokens);
  std::copy_n(request.tokens.begin(), to.token_count, to.tokens);
}

TopLogitsArgs TopLogitsFinder::args(const Answer& answer, const float* logits, int rows) const {
  return {logits,         vocab_,          first_,      rows,           buffers_.requests,
          buffers_.parts, buffers_.groups, answer.rows, buffers_.chosen};
}

void TopLogitsFinder::queue_kernels(cudaStream_t stream, const float* logits, int rows) {
  find_top_logits(stream, args(answers_[(queued_ + kInFlight - 1) % kInFlight], logits, rows));
}

void TopLogitsFinder::queue(cudaStream_t stream, const float* logits, const int* argmax,
                            const TopLogitsRequest* requests, int count) {
  if (queued_ - fetched_ == kInFlight) {
    throw Error("{} samples are in flight: fetch one first", kInFlight);
  }
  if (count > max_rows_) throw Error("{} rows are sampled of at most {}", count, max_rows_);
  const bool argmax_only =
      argmax != nullptr && std::all_of(requests, requests + count, [](const TopLogitsRequest& r) {
        return r.count == 0 && !r.draw && r.tokens.empty();
      });
  if (!argmax_only && vocab_ > kTopLogitsMaxVocab) {
    throw Error("CUDA samples from at most {} tokens; the vocabulary has {}", kTopLogitsMaxVocab,
                vocab_);
  }
  Answer& answer = answers_[queued_ % kInFlight];
  answer.row_count = chosen_count_ = count, answer.argmax_only = argmax_only;
  ++queued_;
  if (argmax_only && count > 0) {
    pass_on_argmax(stream, args(answer, logits, count), argmax);
  } else if (count > 0) {
    for (int row = 0; row < count; ++row) {
      write_request(requests[row], answer.requests[row]);
      answer.counts[size_t(row)] = requests[row].count;
    }
    check(cudaMemcpyAsync(buffers_.requests, answer.requests,
                          size_t(count) * sizeof(TopLogitsRequestRow), cudaMemcpyHostToDevice,
                          stream),
          "copying requests");
    queue_kernels(stream, logits, count);
  }
  check(cudaEventRecord(answer.done, stream), "recording an answer");
}

void TopLogitsFinder::read_row(const Answer& answer, int row, TopLogits& to) const {
  const TopLogitsRow& from = answer.rows[row];
  to.broken = from.broken != 0;
  to.candidates.clear(), to.requested.clear();
  to.log_sum = to.scaled_sum = 0;
  to.chosen = to.broken ? Candidate{0, 0} : from.chosen;
  if (to.broken || answer.argmax_only) return;
  to.requested.assign(from.requested, from.requested + answer.requests[row].token_count);
  if (answer.counts[size_t(row)] == 0) return;
  to.candidates.assign(from.candidates, from.candidates + from.count);
  to.log_sum = double(to.candidates[0].logit) + std::log(from.sums[0]);
  to.scaled_sum = from.sums[1];
}

const TopLogits* TopLogitsFinder::fetch(int& count) {
  if (queued_ == fetched_) throw Error("no sample is in flight");
  const Answer& answer = answers_[fetched_ % kInFlight];
  check(cudaEventSynchronize(answer.done), "sampling");
  ++fetched_;
  count = answer.row_count;
  for (int row = 0; row < count; ++row) read_row(answer, row, top_logits_[size_t(row)]);
  return top_logits_.data();
}

}  // namespace ridge::cuda
