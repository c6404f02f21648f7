// What the collectives of any communicator are by definition. Every rank calls each check. Lengths
// go past one slot, one mailbox and the one-shot limit.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <span>
#include <vector>

#include "ranks/communicator.h"

namespace ridge {

inline std::vector<float> floats_of_rank(int rank, size_t count) {
  std::mt19937 random(unsigned(rank) + 1);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

// Bit for bit in the order of the ranks.
inline void check_all_reduce(Communicator& c) {
  for (const size_t count : {size_t{1}, size_t{7}, size_t{4096}, size_t{16385}, size_t{700001}}) {
    std::vector<float> expected = floats_of_rank(0, count);
    for (int r = 1; r < c.size(); ++r) {
      const std::vector<float> theirs = floats_of_rank(r, count);
      for (size_t i = 0; i < count; ++i) expected[i] += theirs[i];
    }
    std::vector<float> values = floats_of_rank(c.rank(), count);
    c.all_reduce(values);
    ASSERT_EQ(values, expected) << count;
  }
}

inline void check_reduce_scatter(Communicator& c) {
  const size_t part = 1001;
  std::vector<float> values = floats_of_rank(c.rank(), part * size_t(c.size())), mine(part);
  c.reduce_scatter(values, mine);
  c.all_reduce(values);
  const std::span<const float> sums = std::span(values).subspan(part * size_t(c.rank()), part);
  ASSERT_TRUE(std::equal(mine.begin(), mine.end(), sums.begin()));
}

inline void check_moved_bytes(Communicator& c) {
  const auto ranks = static_cast<size_t>(c.size());
  const auto byte_of = [](int from, int to, size_t i) {
    return std::byte((i * 31 + size_t(from) * 7 + size_t(to) * 13) & 255);
  };
  for (const size_t count : {size_t{1}, size_t{1000}, size_t{(1 << 20) + 3}}) {
    std::vector<std::byte> mine(count), all(count * ranks);
    for (size_t i = 0; i < count; ++i) mine[i] = byte_of(c.rank(), 0, i);
    c.all_gather(mine, all);
    for (size_t r = 0; r < ranks; ++r) {
      for (size_t i = 0; i < count; ++i) ASSERT_EQ(all[r * count + i], byte_of(int(r), 0, i));
    }
    std::vector<std::byte> from(count * ranks), to(from.size());
    for (size_t r = 0; r < ranks; ++r) {
      for (size_t i = 0; i < count; ++i) from[r * count + i] = byte_of(c.rank(), int(r), i);
    }
    c.all_to_all(from, to);
    for (size_t r = 0; r < ranks; ++r) {
      for (size_t i = 0; i < count; ++i) ASSERT_EQ(to[r * count + i], byte_of(int(r), c.rank(), i));
    }
    for (int root = 0; root < c.size(); ++root) {
      std::vector<std::byte> told(count);
      for (size_t i = 0; c.rank() == root && i < count; ++i) told[i] = byte_of(root, 1, i);
      c.broadcast(root, told);
      for (size_t i = 0; i < count; ++i) ASSERT_EQ(told[i], byte_of(root, 1, i));
    }
  }
}

inline void check_messages(Communicator& c) {
  const int ranks = c.size();
  const int next = (c.rank() + 1) % ranks, previous = (c.rank() + ranks - 1) % ranks;
  for (int round = 0; round < 200; ++round) {
    const std::vector<int> mine(size_t(round) * 50 + 1, c.rank() * 1000 + round);
    std::vector<int> theirs(mine.size());
    // A long message may leave only when it is received: not all ranks can send first.
    const bool sends_first = c.rank() == 0;
    if (sends_first) c.send(next, std::as_bytes(std::span(mine)));
    c.receive(previous, std::as_writable_bytes(std::span(theirs)));
    if (!sends_first) c.send(next, std::as_bytes(std::span(mine)));
    ASSERT_EQ(theirs, std::vector<int>(mine.size(), previous * 1000 + round));
  }
  c.barrier();
}

}  // namespace ridge
