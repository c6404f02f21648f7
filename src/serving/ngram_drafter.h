// Drafts from the sequence's own text (prompt lookup): where its last tokens stood before, what
// followed there is proposed. Costs next to nothing, and pays where a text repeats its prompt or
// itself: edits, extraction, code.
#pragma once

#include <unordered_map>
#include <vector>

#include "serving/draft_policy.h"
#include "serving/drafter.h"

namespace ridge {

class NgramDrafter final : public Drafter {
 public:
  explicit NgramDrafter(DraftPolicy& policy) : policy_(&policy) {}
  void propose(std::span<const DraftRequest> requests) override;
  void verified(RequestId id, int proposed, int accepted) override {
    policy_->verified(id, proposed, accepted);
  }
  void remove(RequestId id) override;

 private:
  // Where the tokens after each n-gram begin, by the hash of the n-gram: its last occurrence.
  struct Index {
    std::unordered_map<uint64_t, int> after;
    int indexed = 0;  // tokens
  };
  void look_up(Index& index, const DraftRequest& request) const;

  DraftPolicy* policy_;
  std::unordered_map<RequestId, Index> indices_;
};

}  // namespace ridge
