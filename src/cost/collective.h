// Communication between ranks, and how long algorithms need on a link.
#pragma once

#include "cost/work.h"

namespace ridge {

Work collective_work(Collective kind, double message_bytes, int ranks, int stride = 1);

// What an algorithm moves through the busiest link direction of a rank, and how many dependent
// messages it takes. Ring all-reduce of M bytes: 2 (n-1)/n M in 2 (n-1) steps; tree: 2 M in
// 2 log2 n steps; among peers that all reach each other (a switch) one-shot, (n-1) M in one, and
// two-shot, the ring's bytes in two. Sources: Thakur et al. 2005; the custom all-reduce kernels of
// TensorRT-LLM and vLLM.
struct Traffic {
  double bytes = 0;
  double steps = 0;
};
Traffic ring_traffic(Collective kind, double message_bytes, int ranks);
// All-reduce only:
Traffic tree_traffic(double message_bytes, int ranks);
Traffic one_shot_traffic(double message_bytes, int ranks);
Traffic two_shot_traffic(double message_bytes, int ranks);

// The best algorithm's time on a link of `seconds_per_byte` and `latency` per step. One- and
// two-shot kernels need peers that reach each other's memory (`direct`).
double collective_seconds(Collective kind, double message_bytes, int ranks, double seconds_per_byte,
                          double latency, bool direct = true);

}  // namespace ridge
