#include "cost/collective.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace ridge {
namespace {

constexpr double kMessage = 1e6;

TEST(Collective, RingTrafficByFormula) {
  for (int n : {2, 3, 4, 8, 64}) {
    const double share = (n - 1.0) / n;
    const Traffic reduce = ring_traffic(Collective::all_reduce, kMessage, n);
    EXPECT_DOUBLE_EQ(reduce.bytes, 2 * share * kMessage);
    EXPECT_EQ(reduce.steps, 2 * (n - 1));
    // An all-reduce is a reduce-scatter and an all-gather.
    const Traffic scatter = ring_traffic(Collective::reduce_scatter, kMessage, n);
    const Traffic gather = ring_traffic(Collective::all_gather, kMessage, n);
    EXPECT_DOUBLE_EQ(reduce.bytes, scatter.bytes + gather.bytes);
    EXPECT_EQ(reduce.steps, scatter.steps + gather.steps);
    EXPECT_DOUBLE_EQ(ring_traffic(Collective::all_to_all, kMessage, n).bytes, share * kMessage);
  }
  EXPECT_EQ(ring_traffic(Collective::send, kMessage, 2).bytes, kMessage);
}

TEST(Collective, TreeAndShots) {
  EXPECT_EQ(tree_traffic(kMessage, 8).steps, 6);
  EXPECT_EQ(tree_traffic(kMessage, 9).steps, 8);
  EXPECT_EQ(tree_traffic(kMessage, 64).bytes, 2 * kMessage);
  EXPECT_EQ(one_shot_traffic(kMessage, 8).bytes, 7 * kMessage);
  EXPECT_EQ(one_shot_traffic(kMessage, 8).steps, 1);
  EXPECT_EQ(two_shot_traffic(kMessage, 8).steps, 2);
}

TEST(Collective, NobodyToTalkToCostsNothing) {
  for (const Collective kind :
       {Collective::all_reduce, Collective::all_gather, Collective::all_to_all, Collective::send}) {
    EXPECT_EQ(collective_seconds(kind, kMessage, 1, 1e-9, 1e-6), 0);
  }
  EXPECT_EQ(collective_seconds(Collective::none, kMessage, 8, 1e-9, 1e-6), 0);
}

TEST(Collective, BestAlgorithmAtBothEnds) {
  const double per_byte = 1 / 450e9, latency = 1e-6;
  const auto seconds = [&](double bytes, int n) {
    return collective_seconds(Collective::all_reduce, bytes, n, per_byte, latency);
  };
  // Tiny: one-shot, one latency. Huge: no algorithm moves fewer than 2 (n-1)/n bytes.
  EXPECT_NEAR(seconds(8, 8), latency, 0.01e-6);
  EXPECT_NEAR(seconds(1e10, 8), 2 * 7.0 / 8 * 1e10 * per_byte, 2.1 * latency);
  for (int n : {2, 4, 8, 16, 72}) {
    double last = 0;
    for (double bytes = 1; bytes < 1e10; bytes *= 4) {
      const double now = seconds(bytes, n);
      EXPECT_GE(now, last);                                    // more bytes, never faster
      EXPECT_GE(now, (2.0 * (n - 1) / n) * bytes * per_byte);  // the bandwidth bound
      EXPECT_GE(now, latency);                                 // the latency bound
      const Traffic ring = ring_traffic(Collective::all_reduce, bytes, n);
      EXPECT_LE(now, ring.bytes * per_byte + ring.steps * latency);
      last = now;
    }
  }
}

TEST(Collective, RanksInSharedMemoryWriteAndReadEveryByte) {
  const double m = 1 << 20;
  const auto bytes = [&](Collective kind, int ranks) {
    return shared_memory_traffic(kind, m, ranks).bytes;
  };
  // Two ranks: what each sends is what the other reads.
  EXPECT_DOUBLE_EQ(bytes(Collective::all_reduce, 2), m);
  EXPECT_DOUBLE_EQ(bytes(Collective::broadcast, 2), m);
  EXPECT_DOUBLE_EQ(bytes(Collective::send, 2), m);
  for (const Collective kind :
       {Collective::all_gather, Collective::reduce_scatter, Collective::all_to_all}) {
    EXPECT_DOUBLE_EQ(bytes(kind, 2), m / 2);
  }
  for (int n : {3, 4, 8}) {
    EXPECT_FALSE(all_reduce_is_one_shot(m, n));
    EXPECT_TRUE(all_reduce_is_one_shot(64, n));
    // Two-shot is worth its second barrier: it reads less than all of everyone.
    EXPECT_LT(bytes(Collective::all_reduce, n), n * m / 2);
    EXPECT_EQ(shared_memory_traffic(Collective::all_reduce, m, n).steps, 2);
  }
  EXPECT_EQ(mpi_traffic(Collective::barrier, 0, 4).steps, 2);
  EXPECT_EQ(collective_seconds(LinkMethod::mpi, Collective::send, m, 1, {1, 1, 1}), 0);
  EXPECT_EQ(link_method("shared-memory"), LinkMethod::shared_memory);
  EXPECT_EQ(link_method("NVLink 4"), LinkMethod::kernels);
}

TEST(Collective, WorkCarriesTheMessage) {
  const Work w = collective_work(Collective::all_reduce, kMessage, 8, 2);
  EXPECT_EQ(w.message_bytes, kMessage);
  EXPECT_EQ(w.ranks, 8);
  EXPECT_EQ(w.stride, 2);
  EXPECT_EQ(w.device_bytes(), 2 * kMessage);
  EXPECT_EQ(w.flops, 0);
}

}  // namespace
}  // namespace ridge
