// Communication between ranks, and how long algorithms need on a link.
#pragma once

#include <string_view>
#include <vector>

#include "cost/work.h"
#include "machine/machine.h"

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
  double local_bytes = 0;  // that a rank copies within its own memory, where that takes its time
};
Traffic ring_traffic(Collective kind, double message_bytes, int ranks);
// All-reduce only:
Traffic tree_traffic(double message_bytes, int ranks);
Traffic one_shot_traffic(double message_bytes, int ranks);
Traffic two_shot_traffic(double message_bytes, int ranks);

// How Ridge's own ranks (src/ranks) all-reduce. One-shot: every rank reads and adds what all ranks
// have; two-shot: its part of it, then the sums of the others.
bool all_reduce_is_one_shot(double message_bytes, int ranks);
// Ranks of one host copy a message into memory that all share, wait for each other, and copy it
// out. A byte on such a link is one that a rank writes and another reads.
Traffic shared_memory_traffic(Collective kind, double message_bytes, int ranks);
// The same made of MPI's messages: every rank sends to every other at once.
Traffic mpi_traffic(Collective kind, double message_bytes, int ranks);

// Who carries out the collectives of a link: kernels of GPUs, or Ridge's own ranks, whose links
// have the names "shared-memory" and "MPI".
enum class LinkMethod : uint8_t { kernels, shared_memory, mpi };
LinkMethod link_method(std::string_view link);
std::string_view link_name(LinkMethod method);
// What a link of Ridge's own ranks needs, seconds.
struct RankLink {
  double latency = 0;         // of a step
  double per_byte = 0;        // in both directions at once
  double local_per_byte = 0;  // copied by a rank within its own memory
  // Where they were measured by size (Link), steps are interpolated between these instead: steps in
  // which all ranks send, and those in which one does (send, broadcast).
  std::vector<LinkPoint> exchanges = {}, messages = {};
};
double collective_seconds(LinkMethod method, Collective kind, double message_bytes, int ranks,
                          const RankLink& link);
Traffic rank_traffic(LinkMethod method, Collective kind, double message_bytes, int ranks);

// The best algorithm's time on a link of `seconds_per_byte` and `latency` per step. One- and
// two-shot kernels need peers that reach each other's memory (`direct`).
double collective_seconds(Collective kind, double message_bytes, int ranks, double seconds_per_byte,
                          double latency, bool direct = true);

}  // namespace ridge
