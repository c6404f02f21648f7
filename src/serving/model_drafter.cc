#include "serving/model_drafter.h"

#include <algorithm>

#include "base/error.h"

namespace ridge {

ModelDrafter::ModelDrafter(std::unique_ptr<Runner> runner, int vocab, DraftPolicy& policy,
                           SamplingOf sampling)
    : runner_(std::move(runner)),
      policy_(&policy),
      sampling_(std::move(sampling)),
      pool_(runner_->page_count(), runner_->options().page_tokens) {
  const int own = runner_->weights().architecture.vocab;
  if (own != vocab) {
    throw Error("the draft model has a vocabulary of {} tokens, the model one of {}", own, vocab);
  }
}

void ModelDrafter::remove(RequestId id) {
  cached_.erase(id);
  policy_->remove(id);
}

void ModelDrafter::propose(std::span<const DraftRequest> requests) {
  std::vector<int> available;
  for (const DraftRequest& request : requests) available.push_back(request.most);
  const int chosen = policy_->choose(requests, available);
  caught_up_ = true;
  if (chosen == 0) return;
  std::vector<Row> rows;
  for (const DraftRequest& request : requests) {
    if (int(rows.size()) == runner_->options().max_sequences) break;
    Cached& cached = cached_.try_emplace(request.id, pool_).first->second;
    const auto different = std::mismatch(cached.tokens.begin(), cached.tokens.end(),
                                         request.tokens.begin(), request.tokens.end())
                               .first;
    // The last token is always computed: its logits draw the first draft.
    const size_t common =
        std::min(size_t(different - cached.tokens.begin()), request.tokens.size() - 1);
    // After drafts that were all accepted, the last draft and the token behind it are new.
    if (request.tokens.size() - common > 2) caught_up_ = false;
    cached.tokens.resize(common);
    cached.kv.truncate(static_cast<int>(common));
    rows.push_back(
        {&request, &cached, {request.tokens.begin() + long(common), request.tokens.end()}});
  }
  for (int i = 0; i < chosen && !rows.empty(); ++i) {
    if (!run(rows)) return;
    try {
      draw(rows);
    } catch (const Error&) {  // a draft model without an answer costs drafts, not the request
      for (const DraftRequest& request : requests) request.drafts->clear();
      return;
    }
    std::erase_if(rows, [&](Row& row) {
      row.fresh = {row.request->drafts->back()};
      return int(row.request->drafts->size()) == std::min(chosen, row.request->most);
    });
  }
}

// Computes all fresh tokens, in steps of the runner's size. The last of these has one row of logits
// for each request. False where the cache is full: then no more drafts are made.
bool ModelDrafter::run(std::span<Row> rows) {
  std::vector<PageCopy> copies;
  for (Row& row : rows) {
    if (row.cached->kv.reserve(int(row.fresh.size()), copies)) continue;
    // Prefixes are not shared here, so that this cache may be full before the model's own is.
    for (Row& each : rows) each.cached->kv.truncate(0), each.cached->tokens.clear();
    cached_.clear();
    return false;
  }
  const int budget = runner_->options().max_tokens;
  std::vector<size_t> done(rows.size(), 0);
  const auto left = [&](size_t i, size_t keep) { return rows[i].fresh.size() - done[i] - keep; };
  std::vector<Slice> slices;
  const auto step = [&](size_t keep) {  // all but the last `keep` tokens of each request
    slices.clear();
    int room = budget;
    for (size_t i = 0; i < rows.size() && room > 0; ++i) {
      const size_t count = std::min(left(i, keep), size_t(room));
      if (count == 0) continue;
      Cached& cached = *rows[i].cached;
      slices.push_back({std::span(rows[i].fresh).subspan(done[i], count), cached.kv.length(),
                        cached.kv.pages(), keep == 0 ? 1 : 0});
      room -= static_cast<int>(count);
    }
    if (slices.empty()) return false;
    runner_->run(slices);
    room = budget;
    for (size_t i = 0; i < rows.size() && room > 0; ++i) {
      const size_t count = std::min(left(i, keep), size_t(room));
      Cached& cached = *rows[i].cached;
      cached.tokens.insert(cached.tokens.end(), rows[i].fresh.begin() + long(done[i]),
                           rows[i].fresh.begin() + long(done[i] + count));
      cached.kv.commit(static_cast<int>(count));
      done[i] += count;
      room -= static_cast<int>(count);
    }
    return true;
  };
  while (step(1)) {
  }
  step(0);
  return true;
}

void ModelDrafter::draw(std::span<Row> rows) {
  std::vector<TopLogitsRequest> requests(rows.size());
  std::vector<SampleContext> contexts;
  std::vector<Sampling> samplings;
  std::vector<bool> whole_row(rows.size(), false);
  for (size_t i = 0; i < rows.size(); ++i) {
    samplings.push_back(sampling_(rows[i].request->id));
    contexts.push_back({rows[i].cached->tokens, samplings[i].prompt_tokens});
    whole_row[i] = !samplings[i].sampler->request(contexts[i], workspace_, requests[i]);
    if (whole_row[i]) requests[i] = {};
  }
  const std::span<const TopLogits> tops = runner_->top_logits(requests);
  const auto vocab = static_cast<size_t>(runner_->weights().architecture.vocab);
  Sampled sampled;
  for (size_t i = 0; i < rows.size(); ++i) {
    const Sampler& sampler = *samplings[i].sampler;
    if (whole_row[i] || !sampler.sample(tops[i], requests[i], contexts[i], workspace_, sampled)) {
      sampler.sample(runner_->logits().subspan(i * vocab, vocab), contexts[i], workspace_, sampled);
    }
    rows[i].request->drafts->push_back(sampled.token);
  }
}

}  // namespace ridge
