// The experts of one token, chosen by one warp, and their weights. Lane l has experts l + 32 i.
#pragma once

#include "engine/cuda/device/scalar.cuh"
#include "engine/cuda/moe/experts.cuh"

namespace ridge::cuda {

constexpr int kMaxPerLane = kMaxExperts / 32;

// Scores as keys, which are ordered as the scores are. 0: no expert, or one already selected.
__device__ inline uint32_t score_key(float score) { return logit_key(score, 0) >> 32; }
__device__ inline float key_score(uint32_t key) {
  return key_logit(static_cast<unsigned long long>(key) << 32);
}

struct Selected {
  uint32_t key;
  unsigned index;
};
// Takes the largest of `count` keys, of equal ones that with the lowest index: its key becomes 0.
template <int kPerLane>
__device__ __forceinline__ Selected take_largest(uint32_t (&key)[kPerLane], int count, int lane) {
  uint32_t best = 0;
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) best = max(best, key[i]);
  best = __reduce_max_sync(0xffffffffu, best);
  unsigned which = count - 1;
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    if (key[i] == best) which = min(which, lane + 32 * i);
  }
  which = __reduce_min_sync(0xffffffffu, which);
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    if (which == lane + 32 * i) key[i] = 0;
  }
  return {best, which};
}

template <int kPerLane>
__device__ __forceinline__ uint32_t largest_of_lane(const uint32_t (&key)[kPerLane]) {
  uint32_t best = 0;
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) best = max(best, key[i]);
  return best;
}
// take_largest() with fewer instructions. `best`: largest_of_lane(key), kept from call to call.
// Most often a single lane has the largest of all.
template <int kPerLane>
__device__ __forceinline__ Selected take_next_largest(uint32_t (&key)[kPerLane], uint32_t& best,
                                                      int lane) {
  const uint32_t largest = __reduce_max_sync(0xffffffffu, best);
  const unsigned owners = __ballot_sync(0xffffffffu, best == largest);
  int i = kPerLane - 1;  // the first of the lane's that is the largest, if one is
#pragma unroll
  for (int j = kPerLane - 2; j >= 0; --j) {
    if (key[j] == largest) i = j;
  }
  unsigned which = lane + 32 * i;
  if ((owners & (owners - 1)) == 0) {
    which = __shfl_sync(0xffffffffu, which, __ffs(owners) - 1);
  } else {
    which = __reduce_min_sync(0xffffffffu, best == largest ? which : ~0u);
  }
  if (which % 32 == lane) {
#pragma unroll
    for (int j = 0; j < kPerLane; ++j) {
      if (j == i) key[j] = 0;
    }
    best = largest_of_lane(key);
  }
  return {largest, which};
}

__device__ inline float warp_sum(float value) {
  for (int offset = 16; offset; offset /= 2) value += __shfl_xor_sync(0xffffffffu, value, offset);
  return value;
}

// Logits that other blocks of the kernel wrote: from L2.
struct LoadFromL2 {
  __device__ float operator()(const float* from) const { return __ldcg(from); }
};

// Softmax over all experts, then the top_k largest.
template <int kPerLane, typename Load = LoadFromL2>
__device__ void select_top_k(const ExpertRouting& r, int token, int lane, const Load& load = {}) {
  const float* logits = r.logits + size_t(token) * r.experts;
  uint32_t key[kPerLane];
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    const int e = lane + 32 * i;
    key[i] = e < r.experts ? score_key(load(logits + e)) : 0;
  }
  uint32_t best = largest_of_lane(key);
  const float maximum = key_score(__reduce_max_sync(0xffffffffu, best));
  float total = 0;
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    if (lane + 32 * i < r.experts) total += expf(key_score(key[i]) - maximum);
  }
  total = warp_sum(total);
  Selected assigned = {};  // lane k holds the k-th assignment
  for (int k = 0; k < r.top_k; ++k) {
    const Selected selected = take_next_largest(key, best, lane);
    if (lane == k) assigned = selected;
  }
  float weight = lane < r.top_k ? expf(key_score(assigned.key) - maximum) / total : 0;
  if (r.normalize) weight /= warp_sum(weight);
  if (lane >= r.top_k) return;
  r.expert[token * r.top_k + lane] = assigned.index;
  r.weight[token * r.top_k + lane] = weight;
}

// Removes the experts outside the best groups. Lane g has the score of group g.
template <int kPerLane>
__device__ void keep_best_groups(const ExpertRouting& r, uint32_t (&key)[kPerLane], int lane) {
  const int each = r.experts / r.rules.groups;
  uint32_t group_key[1] = {0};
  for (int g = 0; g < r.rules.groups; ++g) {
    uint32_t members[kPerLane];
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) members[i] = (lane + 32 * i) / each == g ? key[i] : 0;
    float score = key_score(take_largest(members, r.experts, lane).key);
    if (r.rules.correction && each > 1) {
      score += key_score(take_largest(members, r.experts, lane).key);
    }
    if (lane == g) group_key[0] = score_key(score);
  }
  unsigned kept = 0;
  for (int k = 0; k < r.rules.top_groups; ++k) {
    kept |= 1u << take_largest(group_key, r.rules.groups, lane).index;
  }
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    const int group = min((lane + 32 * i) / each, kMaxRoutingGroups - 1);
    if ((kept >> group & 1) == 0) key[i] = 0;
  }
}

// The choice and the weights of RouterRules.
template <int kPerLane>
__device__ void select_by_rules(const ExpertRouting& r, int token, int lane) {
  const auto sigmoid = [](float x) { return 1 / (1 + expf(-x)); };
  const float* logits = r.logits + size_t(token) * r.experts;
  uint32_t key[kPerLane];
  float maximum = -INFINITY, total = 0;
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    const int e = lane + 32 * i;
    const float logit = e < r.experts ? __ldcg(logits + e) : -INFINITY;
    maximum = fmaxf(maximum, logit);
    const float score =
        r.rules.correction && e < r.experts ? sigmoid(logit) + r.correction[e] : logit;
    key[i] = e < r.experts ? score_key(score) : 0;
  }
  if (!r.rules.sigmoid) {
    maximum = key_score(__reduce_max_sync(0xffffffffu, score_key(maximum)));
    for (int e = lane; e < r.experts; e += 32) total += expf(__ldcg(logits + e) - maximum);
    total = warp_sum(total);
  }
  if (r.rules.top_groups < r.rules.groups) keep_best_groups(r, key, lane);
  unsigned assigned = 0;  // lane k holds the k-th assignment
  for (int k = 0; k < r.top_k; ++k) {
    const Selected selected = take_largest(key, r.experts, lane);
    if (lane == k) assigned = selected.index;
  }
  const float logit = __ldcg(logits + assigned);
  const float share = r.rules.sigmoid ? sigmoid(logit) : expf(logit - maximum) / total;
  float weight = lane < r.top_k ? share : 0;
  if (r.normalize) weight /= warp_sum(weight);
  weight *= r.rules.scale;
  if (lane >= r.top_k) return;
  const int at = token * r.top_k + lane;
  r.expert[at] = assigned;
  r.weight[at] = r.rules.scales_input ? 1 : weight;
  if (r.rules.scales_input) r.input_weight[at] = weight;
}

template <bool kByRules>
__device__ void select_experts(const ExpertRouting& r, int token, int lane) {
  if constexpr (kByRules) {
    select_by_rules<kMaxPerLane>(r, token, lane);
  } else {
    r.experts <= 128 ? select_top_k<4>(r, token, lane) : select_top_k<kMaxPerLane>(r, token, lane);
  }
}

}  // namespace ridge::cuda
