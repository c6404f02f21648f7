// Which replica of a model takes a request (data parallel).
//
// A request goes where the longest beginning of its prompt is cached, because those tokens need not
// be computed again. A replica that is too loaded is passed over: it gives a long answer later than
// another that computes the prompt anew. Between equally long beginnings the fewest requests
// decide, and then who was chosen longest ago, so that an idle group fills all its caches.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace ridge {

// What the router knows of a replica.
struct ReplicaState {
  bool serves = true;        // false: it has failed
  int requests = 0;          // that wait or run there
  int cached_tokens = 0;     // of the prompt's beginning
  uint64_t last_chosen = 0;  // 0: never; the larger, the later
};

// Whether a replica with `requests` is passed over while another has `least`. A decode step takes
// at most in proportion to its sequences, so half more requests cost a request at most half of its
// time. Below four requests more nothing is passed over: a conversation then keeps its place.
bool is_too_loaded(int requests, int least);

// The replicas that serve, by number, the one to send the request to first. The others are for
// where its queue is full.
std::vector<size_t> route_request(std::span<const ReplicaState> replicas);

}  // namespace ridge
