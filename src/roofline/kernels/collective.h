// The expected time of one collective within a node.
#pragma once

#include "cost/work.h"
#include "roofline/kernels/params.h"
#include "roofline/kernels/traits.h"

namespace ridge {

struct CollectiveCall {
  Collective kind = Collective::all_reduce;
  double bytes = 0;  // of one rank's full buffer (the result of all-gather, the input of the rest)
  double ranks = 2;
};

// Three protocols, the fastest wins: low latency (flags in every word, half the rate), medium
// (flags per line), simple (bulk copies behind a barrier). NCCL and the one- and two-shot
// custom kernels both follow this pattern.
struct CollectiveParams {
  double t0 = 6e-6;        // smallest message on two ranks
  double rank = 1e-6;      // per further rank (or step)
  double low_rate = 0.05;  // share of the link's bandwidth of the low-latency protocol
  double mid_t0 = 3e-6;    // what the middle protocol costs more to start
  double mid_rate = 0.3;
  double bulk_t0 = 10e-6;  // what the bulk protocol costs more to start
  double bulk_rate = 0.75;
  double bulk_rank = 1e-6;  // and per further rank
  double low_ranks = 0.5;   // exponent of (n-1) in the bytes of the low-latency protocol
  double mid_ranks = 0;     // the same of the middle
  double bulk_ranks = 0;    // and the bulk protocol (in-switch reduction moves less per rank)
  double host = 1e-7;       // seconds the host needs to launch eagerly; hides shorter kernels
  double blend = 4;         // exponent of the soft minimum
  static std::span<const Field<CollectiveParams>> fields();
};
double collective_kernel_seconds(const CollectiveCall& call, const GpuTraits& gpu,
                                 const CollectiveParams& params);

}  // namespace ridge
