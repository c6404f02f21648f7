#include "serving/routing.h"

#include <algorithm>
#include <limits>
#include <tuple>

namespace ridge {

bool is_too_loaded(int requests, int least) {
  constexpr int kSlack = 4;
  return requests > least + std::max(kSlack, least / 2);
}

std::vector<size_t> route_request(std::span<const ReplicaState> replicas) {
  std::vector<size_t> order;
  int least = std::numeric_limits<int>::max();
  for (size_t r = 0; r < replicas.size(); ++r) {
    if (!replicas[r].serves) continue;
    order.push_back(r);
    least = std::min(least, replicas[r].requests);
  }
  const auto key = [&](size_t r) {
    const ReplicaState& replica = replicas[r];
    const bool passed_over = is_too_loaded(replica.requests, least);
    return std::tuple(passed_over, passed_over ? 0 : -replica.cached_tokens, replica.requests,
                      replica.last_chosen, r);
  };
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return key(a) < key(b); });
  return order;
}

}  // namespace ridge
