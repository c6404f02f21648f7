// Steps 5 to 7 of a draw (sampler.h): top-k, top-p and min-p. Each keeps the head of the order by
// logit, so together they keep the shortest of the heads.
#pragma once

#include <span>
#include <vector>

#include "engine/sampling/sampler_options.h"
#include "engine/sampling/top_logits.h"

namespace ridge {

// What is known of a row besides its first candidates.
struct RowTail {
  bool empty = false;      // every token that can be drawn is a candidate
  float largest = 0;       // otherwise: no logit of the tail is larger
  double total = 0;        // sum of the weights exp(scale (logit - largest of the row)), all tokens
  double total_error = 0;  // how far a sum over the whole row may be from `total`
};

class Cuts {
 public:
  Cuts(const SamplerOptions& options, float scale);
  bool any() const { return top_k_ > 0 || top_p_ < 1 || min_p_ > 0; }

  // The candidates of the row that all cuts keep, in no particular order. `max`: its largest logit.
  void keep(std::span<const float> logits, float max, std::vector<Candidate>& kept) const;
  // The same from the head of the row: `candidates` are its first, in order. False where the tail
  // leaves the cut in doubt.
  bool keep(const RowTail& tail, std::vector<Candidate>& candidates) const;

 private:
  double weight(float logit, float max) const;
  bool below_min_p(double weight) const;
  void remove_below_min_p(float max, std::vector<Candidate>& candidates) const;
  double sum(std::span<const Candidate> candidates, float max) const;
  void collect(std::span<const float> logits, float max, double total,
               std::vector<Candidate>& to) const;
  size_t top_p_count(double wanted, float max, std::vector<Candidate>& candidates) const;

  size_t top_k_;
  double top_p_, min_p_;
  float scale_;
};

}  // namespace ridge
