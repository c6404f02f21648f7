// Attention in AMX tiles: on modelled tiles, on every machine, and on the CPU's own where it has
// them.
#include "engine/cpu/amx_tiles.h"
#include "engine/cpu/attention_support.h"

namespace ridge::cpu::testing {
namespace {

void expect_equal(const std::vector<float>& a, const std::vector<float>& b) {
  ASSERT_EQ(a.size(), b.size());
  EXPECT_EQ(std::memcmp(a.data(), b.data(), a.size() * sizeof(float)), 0);
}

class AttentionInTiles : public ::testing::Test {
 protected:
  ~AttentionInTiles() override { choose_attention_tiles(usual_); }

  // A whole sequence in chunks.
  std::vector<float> run(const Setting& s, const Sequence& sequence, int chunk,
                         AttentionTiles tiles = AttentionTiles::modelled, int threads = 2) {
    choose_attention_tiles(tiles);
    ThreadTeam team(threads);
    return whole(team, s, sequence, chunk);
  }

  // Against the definition. On the CPU's tiles the bits of the modelled ones.
  void check(Setting s, int length, float q_scale = 1) {
    s.tiles = true;
    Sequence sequence(s, length, 11);
    for (float& q : sequence.q) q *= q_scale;
    on_every_target([&] {
      const std::vector<float> result = run(s, sequence, length);
      expect_as_defined(s, sequence, result);
      EXPECT_NE(result, run(s, sequence, length, AttentionTiles::none));
      if (amx_is_usable()) {
        expect_equal(result, run(s, sequence, length, AttentionTiles::amx));
      }
    });
  }

 private:
  const AttentionTiles usual_ = attention_tiles();
};

TEST_F(AttentionInTiles, IsAsDefinedForEveryGroupingOfHeads) {
  for (const auto& [heads, kv_heads] : {std::pair{4, 4}, {8, 2}, {6, 2}, {5, 1}, {16, 1}}) {
    SCOPED_TRACE(heads);
    check({.heads = heads, .kv_heads = kv_heads}, 150);
  }
}

TEST_F(AttentionInTiles, IsAsDefinedForEveryHeadSize) {
  for (const int head_dim : {8, 24, 40, 64, 72, 80, 128, 264}) {
    SCOPED_TRACE(head_dim);
    check({.heads = 2, .kv_heads = 1, .head_dim = head_dim}, 70);
  }
}

TEST_F(AttentionInTiles, IsAsDefinedForEveryStorage) {
  for (const KvStorage storage : {KvStorage::f16, KvStorage::bf16, KvStorage::int8}) {
    SCOPED_TRACE(int(storage));
    check({.storage = storage}, 100);
    check({.storage = storage, .head_dim = 72}, 33);
  }
}

TEST_F(AttentionInTiles, IsAsDefinedForLengthsAroundTiles) {
  for (const int length : {16, 17, 31, 33, 63, 64, 65, 129}) {
    SCOPED_TRACE(length);
    check({}, length);
  }
}

TEST_F(AttentionInTiles, IsAsDefinedForWindowsChunksSoftcapsAndSinks) {
  for (const int window : {1, 16, 33, 65, 100}) {
    SCOPED_TRACE(window);
    check({.window = window}, 140);
    check({.window = window, .chunked = true}, 140);
  }
  const float sinks[] = {-20, 0.5f, 3, 60};
  check({.softcap = 2}, 100);
  check({.storage = KvStorage::int8, .window = 20, .softcap = 50}, 100);
  check({.window = 12, .sinks = sinks}, 90);
}

// The running maximum jumps, and most weights are rounded to nothing.
TEST_F(AttentionInTiles, IsAsDefinedForScoresFarApart) { check({.head_dim = 16}, 200, 8); }

// Rows are summed in the same order whatever the chunk, the pages and the threads, across spans
// too, as long as a chunk has kTiledQueries tokens.
TEST_F(AttentionInTiles, ChunksPagesAndThreadsChangeNothing) {
  Setting s{.heads = 6, .kv_heads = 2, .head_dim = 40, .tiles = true};
  const Sequence sequence(s, 208, 3);
  const std::vector<float> once = run(s, sequence, 208);
  for (const int chunk : {16, 48, 64, 192}) {
    SCOPED_TRACE(chunk);
    expect_equal(once, run(s, sequence, chunk));
  }
  s.page_tokens = 112;
  expect_equal(once, run(s, sequence, 104));
  const Setting far{.heads = 2, .kv_heads = 1, .head_dim = 16, .tiles = true};
  const Sequence longer(far, 2400, 3);
  const std::vector<float> alone = run(far, longer, 800, AttentionTiles::modelled, 1);
  expect_equal(alone, run(far, longer, 800, AttentionTiles::modelled, 3));
  expect_as_defined(far, longer, alone);
}

// Short chunks, f32 caches, latents and rules without tiles have the bits of vectors.
TEST_F(AttentionInTiles, RunWhereTheyAreAllowedAndWorthIt) {
  const auto same = [&](const Setting& s, int chunk) {
    const Sequence sequence(s, 60, 3);
    expect_equal(run(s, sequence, chunk), run(s, sequence, chunk, AttentionTiles::none));
  };
  same({.tiles = false}, 60);
  same({.tiles = true}, kTiledQueries - 1);
  same({.storage = KvStorage::f32, .tiles = true}, 60);
  same({.kv_heads = 1, .head_dim = 72, .latent_dim = 64, .tiles = true}, 60);
}

}  // namespace
}  // namespace ridge::cpu::testing
