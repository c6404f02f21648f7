#include "base/error.h"
#include "engine/cpu/attention_support.h"
#include "engine/reference/norm.h"
#include "engine/reference/rope.h"

namespace ridge::cpu::testing {
namespace {

void expect_same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  ASSERT_EQ(a.size(), b.size());
  EXPECT_EQ(std::memcmp(a.data(), b.data(), a.size() * sizeof(float)), 0);
}

void check(ThreadTeam& team, const Setting& s, int length) {
  const Sequence sequence(s, length, 11);
  expect_as_defined(s, sequence, whole(team, s, sequence, length));
}

TEST(CpuAttention, IsAsDefinedForEveryGroupingOfHeads) {
  ThreadTeam team(2);
  on_every_target([&] {
    for (const auto& [heads, kv_heads] : {std::pair{4, 4}, {8, 2}, {6, 2}, {5, 1}, {16, 1}}) {
      SCOPED_TRACE(heads);
      check(team, {.heads = heads, .kv_heads = kv_heads}, 150);
    }
  });
}

TEST(CpuAttention, IsAsDefinedForEveryHeadSize) {
  ThreadTeam team(2);
  on_every_target([&] {
    for (const int head_dim : {8, 16, 24, 40, 64, 72, 80, 96, 112, 128, 256, 264, 512}) {
      SCOPED_TRACE(head_dim);
      check(team, {.heads = 2, .kv_heads = 1, .head_dim = head_dim}, 70);
    }
  });
}

TEST(CpuAttention, IsAsDefinedForEveryStorage) {
  ThreadTeam team(2);
  on_every_target([&] {
    for (const KvStorage storage : {KvStorage::f16, KvStorage::bf16, KvStorage::int8}) {
      SCOPED_TRACE(int(storage));
      check(team, {.storage = storage}, 200);
      check(team, {.storage = storage, .head_dim = 72}, 33);
    }
  });
}

TEST(CpuAttention, IsAsDefinedForLengthsAroundTiles) {
  ThreadTeam team(2);
  on_every_target([&] {
    for (const int length : {1, 2, 15, 16, 17, 63, 64, 65, 127, 128, 129}) {
      SCOPED_TRACE(length);
      check(team, {}, length);
    }
  });
}

TEST(CpuAttention, IsAsDefinedForWindowsAndSoftcaps) {
  ThreadTeam team(2);
  on_every_target([&] {
    for (const int window : {1, 3, 16, 64, 65, 100, 1000}) {
      SCOPED_TRACE(window);
      check(team, {.window = window}, 180);
    }
    check(team, {.softcap = 2}, 100);
    check(team, {.window = 20, .softcap = 30}, 100);
    check(team, {.storage = KvStorage::int8, .softcap = 50}, 100);
  });
}

TEST(CpuAttention, IsAsDefinedForChunks) {
  ThreadTeam team(2);
  on_every_target([&] {
    for (const int window : {1, 7, 16, 64, 100, 1000}) {
      SCOPED_TRACE(window);
      check(team, {.window = window, .chunked = true}, 180);
    }
  });
  check(team, {.heads = 2, .kv_heads = 1, .head_dim = 16, .window = 1500, .chunked = true}, 3200);
}

// One row per token is key and, but for its end, value.
TEST(CpuAttention, IsAsDefinedForLatents) {
  ThreadTeam team(2);
  on_every_target([&] {
    for (const auto& [head_dim, latent_dim] :
         {std::pair{40, 32}, {48, 24}, {80, 64}, {576, 512}, {1024, 960}}) {
      SCOPED_TRACE(head_dim);
      check(team, {.heads = 5, .kv_heads = 1, .head_dim = head_dim, .latent_dim = latent_dim}, 70);
    }
    for (const KvStorage storage : {KvStorage::f32, KvStorage::bf16, KvStorage::int8}) {
      SCOPED_TRACE(int(storage));
      check(team, {.storage = storage, .heads = 4, .kv_heads = 1, .head_dim = 72, .latent_dim = 64},
            90);
    }
  });
  check(team, {.heads = 2, .kv_heads = 1, .head_dim = 24, .latent_dim = 16}, 2100);
}

// A sink below, among and far above the scores; across spans too.
TEST(CpuAttention, IsAsDefinedWithSinks) {
  ThreadTeam team(2);
  const float sinks[] = {-20, 0.5f, 3, 60};
  on_every_target([&] {
    check(team, {.sinks = sinks}, 90);
    check(team, {.window = 12, .sinks = sinks}, 90);
    check(team, {.sinks = sinks}, 2100);
  });
}

TEST(CpuAttention, IsAsDefinedAcrossSpans) {
  ThreadTeam team(2);
  const Setting s{.heads = 2, .kv_heads = 1, .head_dim = 16};
  check(team, s, 2100);
  check(team, {.heads = 2, .kv_heads = 1, .head_dim = 16, .window = 1500}, 2600);
}

// Scores far apart: the running maximum jumps, sums are rescaled to nothing.
TEST(CpuAttention, SurvivesExtremeScores) {
  ThreadTeam team(1);
  on_every_target([&] {
    Setting s{.storage = KvStorage::bf16, .heads = 1, .kv_heads = 1, .head_dim = 16};
    Sequence sequence(s, 300, 5);
    for (float& q : sequence.q) q *= 1e6f;
    for (int t = 0; t < 300; ++t) {
      for (int d = 0; d < 16; ++d) sequence.k[size_t(t * 16 + d)] *= float(t % 7) * 1e3f;
    }
    for (const float x : whole(team, s, sequence, 300)) EXPECT_TRUE(std::isfinite(x));
    for (float& k : sequence.k) k = 0;  // all alike: the mean of the values
    const auto means = whole(team, s, sequence, 300);
    double mean = 0;
    for (int t = 0; t < 300; ++t)
      mean += double(bf16_to_f32(f32_to_bf16(sequence.v[size_t(t * 16)])));
    EXPECT_NEAR(double(means[299 * 16]), mean / 300, 300 * 0x1p-24 * 5);
  });
}

class SameBits : public ::testing::TestWithParam<KvStorage> {};

TEST_P(SameBits, InOneChunkOrMany) {
  on_every_target([&] {
    for (const int window : {0, 37}) {
      const Setting plain{.storage = GetParam(), .heads = 6, .kv_heads = 2, .window = window};
      Setting latents{.storage = GetParam(), .heads = 6, .kv_heads = 1, .head_dim = 72};
      latents.window = window;
      latents.chunked = window > 0;
      latents.latent_dim = 56;
      for (const Setting& s : {plain, latents}) {
        ThreadTeam team(2);
        const Sequence sequence(s, 203, 3);
        const auto once = whole(team, s, sequence, 203);
        for (const int chunk : {1, 7, 16, 64, 100}) {
          SCOPED_TRACE(chunk);
          expect_same_bits(once, whole(team, s, sequence, chunk));
        }
      }
    }
  });
}

TEST_P(SameBits, ForEveryPageSize) {
  on_every_target([&] {
    Setting s{.storage = GetParam(), .head_dim = 80};
    ThreadTeam team(2);
    const Sequence sequence(s, 203, 3);
    const auto once = whole(team, s, sequence, 203);
    for (const int page_tokens : {32, 48, 112, 4096}) {
      SCOPED_TRACE(page_tokens);
      s.page_tokens = page_tokens;
      expect_same_bits(once, whole(team, s, sequence, 50));
    }
  });
}

TEST_P(SameBits, AloneOrInABatch) {
  on_every_target([&] {
    const Setting s{.storage = GetParam(), .heads = 4, .kv_heads = 1};
    ThreadTeam team(2);
    const std::vector<Sequence> sequences{{s, 90, 1}, {s, 17, 2}, {s, 130, 3}};
    const Cache cache(s, {90, 17, 130});
    auto results = room_for(sequences);
    step(team, s, cache, sequences, {{2, 0, 60}, {0, 0, 1}}, results);
    step(team, s, cache, sequences, {{0, 1, 80}, {1, 0, 17}, {2, 60, 1}}, results);
    step(team, s, cache, sequences, {{2, 61, 69}, {0, 81, 9}}, results);
    for (size_t i = 0; i < sequences.size(); ++i) {
      expect_same_bits(results[i], whole(team, s, sequences[i], sequences[i].length));
    }
  });
}

// One KV head, several spans: with two threads the spans are dealt out and merged.
TEST_P(SameBits, OnOneThreadOrTwo) {
  const Setting s{.storage = GetParam(), .heads = 2, .kv_heads = 1, .head_dim = 16};
  const Sequence sequence(s, 2500, 3);
  ThreadTeam one(1), two(2), three(3);
  const auto alone = whole(one, s, sequence, 700);
  expect_same_bits(alone, whole(two, s, sequence, 700));
  expect_same_bits(alone, whole(three, s, sequence, 2500));
  // Decoding reads the same cache.
  const std::vector<Sequence> sequences{sequence};
  const Cache cache(s, {2500});
  auto results = room_for(sequences);
  step(two, s, cache, sequences, {{0, 0, 2490}}, results);
  for (int t = 2490; t < 2500; ++t) step(two, s, cache, sequences, {{0, t, 1}}, results);
  expect_same_bits(alone, results[0]);
}

INSTANTIATE_TEST_SUITE_P(CpuAttention, SameBits,
                         ::testing::Values(KvStorage::f16, KvStorage::bf16, KvStorage::int8));

// What lies in the cache after storing, read by its documented layout.
float stored(const LayerCache& c, bool key, int page, int head, int token, int i) {
  const size_t vector =
      (size_t(page) * size_t(c.kv_heads) + size_t(head)) * size_t(c.page_tokens) + size_t(token);
  size_t at = vector * size_t(c.head_dim) + size_t(i);
  if (key) {
    const size_t group = vector / kKeyGroup * kKeyGroup * size_t(c.head_dim);
    at = group + size_t(i * kKeyGroup) + size_t(token % kKeyGroup);
  }
  const std::byte* from = key ? c.k : c.v;
  if (c.storage == KvStorage::int8) {
    const float scale = (key ? c.k_scale : c.v_scale)[vector];
    return scale * float(static_cast<int8_t>(from[at]));
  }
  uint16_t bits;
  std::memcpy(&bits, from + 2 * at, 2);
  return c.storage == KvStorage::f16 ? f16_to_f32(bits) : bf16_to_f32(bits);
}

TEST(RopeStore, NormsTurnsAndRoundsAsDefined) {
  on_every_target([&] {
    for (const KvStorage storage : {KvStorage::f16, KvStorage::bf16, KvStorage::int8}) {
      for (const int dim : {8, 64, 72, 128}) {
        const Setting s{.storage = storage, .heads = 6, .kv_heads = 3, .head_dim = dim};
        const int past = 100000, fresh = 3;  // far out, where angles in f32 would be wrong
        ThreadTeam team(2);
        const std::vector<int> pages(size_t(past + fresh) / 16 + 1, 0);
        Cache cache(s, {16});
        Rope rope;
        for (int i = 0; i < dim / 2; ++i) {
          rope.frequency.push_back(float(std::pow(10000.0, -2.0 * i / dim)));
        }
        rope.magnitude = 1.25f;
        auto q = normals(size_t(fresh * 6 * dim), 1), k = normals(size_t(fresh * 3 * dim), 2);
        const auto v = normals(size_t(fresh * 3 * dim), 3);
        const auto q_norm = normals(size_t(dim), 4), k_norm = normals(size_t(dim), 5);
        auto expected_q = q, expected_k = k, expected_v = v;
        const auto define = [&](std::vector<float>& x, int heads, const float* norm) {
          for (int row = 0; row < fresh * heads; ++row) {
            float* head = x.data() + row * dim;
            reference::rms_norm(head, dim, norm, 1e-6f, head);
            reference::turn(head, rope, past + row / heads);
          }
        };
        define(expected_q, 6, q_norm.data());
        define(expected_k, 3, k_norm.data());
        const AttentionSlice slice{0, fresh, past, pages};
        rope_and_store(team,
                       {q.data(), k.data(), v.data(), 6 * dim, 3 * dim, 6, q_norm.data(),
                        k_norm.data(), 1e-6f, &rope},
                       cache.layer(), {&slice, 1});
        // A norm of d terms in f32 lanes, two products, two roundings of a turn.
        const double bound = (dim / 8 + 8) * 0x1p-24 * 1.25 * 30;
        for (size_t i = 0; i < q.size(); ++i) ASSERT_NEAR(q[i], expected_q[i], bound);
        for (size_t i = 0; i < k.size(); ++i) ASSERT_NEAR(k[i], expected_k[i], bound);
        for (int row = 0; row < fresh * 3; ++row) {  // exactly what rounding makes of them
          round_as(storage, k.data() + row * dim, dim);
          round_as(storage, expected_v.data() + row * dim, dim);
          for (int i = 0; i < dim; ++i) {
            const int token = past % 16 + row / 3;
            ASSERT_EQ(stored(cache.layer(), true, 0, row % 3, token, i), k[size_t(row * dim + i)]);
            ASSERT_EQ(stored(cache.layer(), false, 0, row % 3, token, i),
                      expected_v[size_t(row * dim + i)]);
          }
        }
      }
    }
  });
}

TEST(RopeStore, RefusesPagesThatCutGroups) {
  ThreadTeam team(1);
  const Setting s{.page_tokens = 24};
  EXPECT_THROW(whole(team, s, Sequence(s, 30, 1), 30), Error);
}

// Every f16, its neighbours in f32 and the halfway points between two.
TEST(RopeStore, RoundsToF16AsDefined) {
  on_every_target([&] {
    ThreadTeam team(1);
    const Setting s{.heads = 1, .kv_heads = 1, .head_dim = 512, .page_tokens = 16};
    Cache cache(s, {16});
    Rope still;
    still.frequency.assign(256, 0);
    std::vector<float> values;
    for (uint32_t bits = 0; bits < 0x10000; bits += 1) {
      const float x = f16_to_f32(uint16_t(bits));
      if (!std::isfinite(x)) continue;
      const float next = f16_to_f32(uint16_t(bits + 1));
      const float middle = std::isfinite(next) ? (x + next) / 2 : x;
      for (const float y :
           {x, middle, std::nextafter(middle, 2 * x), std::nextafter(middle, 0.0f)}) {
        values.push_back(y);
      }
    }
    for (const float y : {65519.9f, 65520.0f, 1e9f, -1e30f, INFINITY}) values.push_back(y);
    values.resize((values.size() + 511) / 512 * 512);
    std::vector<float> q(512), k(512);
    const std::vector<int> pages{0};
    const AttentionSlice slice{0, 1, 3, pages};
    for (size_t at = 0; at < values.size(); at += 512) {
      rope_and_store(
          team, {q.data(), k.data(), values.data() + at, 512, 512, 1, nullptr, nullptr, 0, &still},
          cache.layer(), {&slice, 1});
      for (int i = 0; i < 512; ++i) {
        float expected = values[at + size_t(i)];
        round_as(KvStorage::f16, &expected, 1);
        ASSERT_EQ(stored(cache.layer(), false, 0, 0, 3, i), expected) << values[at + size_t(i)];
      }
    }
  });
}

}  // namespace
}  // namespace ridge::cpu::testing
