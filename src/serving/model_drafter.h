// Drafts from a smaller model with the same vocabulary.
//
// It keeps its own KV cache. A draft is drawn with the request's own sampler at its position: equal
// seeds give both models the same Gumbel numbers, so that they agree as often as their
// distributions do. Tokens that were rejected are dropped by setting the length back.
#pragma once

#include <functional>
#include <memory>
#include <unordered_map>
#include <vector>

#include "engine/kv/pages.h"
#include "engine/runner/runner.h"
#include "engine/sampling/sampler.h"
#include "serving/draft_policy.h"
#include "serving/drafter.h"

namespace ridge {

class ModelDrafter final : public Drafter {
 public:
  // The sampler and the number of prompt tokens of a request.
  struct Sampling {
    const Sampler* sampler = nullptr;
    size_t prompt_tokens = 0;
  };
  using SamplingOf = std::function<Sampling(RequestId)>;

  // Throws Error where the vocabulary of `runner` is not of `vocab` tokens.
  ModelDrafter(std::unique_ptr<Runner> runner, int vocab, DraftPolicy& policy, SamplingOf sampling);

  void propose(std::span<const DraftRequest> requests) override;
  void verified(RequestId id, int proposed, int accepted) override {
    policy_->verified(id, proposed, accepted);
  }
  void remove(RequestId id) override;
  bool cost_was_typical() const override { return caught_up_; }
  const Runner& runner() const { return *runner_; }

 private:
  struct Cached {
    explicit Cached(PagePool& pool) : kv(pool) {}
    KvSequence kv;
    std::vector<Token> tokens;  // whose keys and values are in kv
  };
  struct Row {  // a request of the round
    const DraftRequest* request = nullptr;
    Cached* cached = nullptr;
    std::vector<Token> fresh;  // tokens to compute
  };
  bool run(std::span<Row> rows);
  void draw(std::span<Row> rows);

  std::unique_ptr<Runner> runner_;
  DraftPolicy* policy_;
  SamplingOf sampling_;
  PagePool pool_;
  std::unordered_map<RequestId, Cached> cached_;
  SamplerWorkspace workspace_;
  bool caught_up_ = true;
};

}  // namespace ridge
