#include "engine/kv/pages.h"

#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <set>

#include "base/error.h"

namespace ridge {
namespace {

TEST(PagePool, TakesEveryPageOnceThenSaysItIsFull) {
  PagePool pool(5, 16);
  std::set<int> taken;
  for (int i = 0; i < 5; ++i) taken.insert(pool.acquire());
  EXPECT_EQ(taken, (std::set<int>{0, 1, 2, 3, 4}));
  EXPECT_EQ(pool.free(), 0);
  EXPECT_THROW(pool.acquire(), Error);
  pool.release(3);
  EXPECT_EQ(pool.acquire(), 3);
}

TEST(PagePool, FreesASharedPageWithItsLastHolder) {
  PagePool pool(1, 16);
  const int page = pool.acquire();
  pool.add_reference(page);
  pool.add_reference(page);
  pool.release(page);
  pool.release(page);
  EXPECT_EQ(pool.free(), 0);
  pool.release(page);
  EXPECT_EQ(pool.free(), 1);
}

// Random takes, shares and gives against a plain count of holders.
TEST(PagePool, AgreesWithAPlainCount) {
  for (uint32_t seed = 0; seed < 20; ++seed) {
    std::mt19937 random(seed);
    const int pages = 1 + int(random() % 30);
    PagePool pool(pages, 16);
    std::vector<int> holders(size_t(pages), 0);
    for (int step = 0; step < 2000; ++step) {
      const size_t page = random() % holders.size();
      switch (random() % 3) {
        case 0:
          if (pool.free() == 0) {
            EXPECT_THROW(pool.acquire(), Error);
          } else {
            const int taken = pool.acquire();
            ASSERT_TRUE(taken >= 0 && taken < pages);
            ASSERT_EQ(holders[size_t(taken)], 0);
            holders[size_t(taken)] = 1;
          }
          break;
        case 1:
          if (holders[page] > 0) pool.add_reference(int(page)), ++holders[page];
          break;
        default:
          if (holders[page] > 0) pool.release(int(page)), --holders[page];
      }
      int free = 0;
      for (const int count : holders) free += count == 0;
      ASSERT_EQ(pool.free(), free);
    }
  }
}

TEST(CachedSequence, HoldsJustThePagesItNeeds) {
  PagePool pool(10, 16);
  {
    CachedSequence sequence(pool);
    EXPECT_TRUE(sequence.pages().empty());
    for (const auto& [more, pages] : {std::pair{1, 1}, {15, 1}, {1, 2}, {15, 2}, {33, 5}}) {
      sequence.extend(more);
      EXPECT_EQ(int(sequence.pages().size()), pages);
    }
    EXPECT_EQ(sequence.length(), 65);
    sequence.cut(64);
    EXPECT_EQ(sequence.pages().size(), 4u);
    sequence.cut(1);
    EXPECT_EQ(sequence.pages().size(), 1u);
    EXPECT_EQ(pool.free(), 9);
  }
  EXPECT_EQ(pool.free(), 10);
}

// Several sequences grow and shrink at random: no page is ever held twice, none is lost, and what
// a sequence holds already never moves.
TEST(CachedSequence, NeverSharesOrLosesAPage) {
  for (uint32_t seed = 0; seed < 20; ++seed) {
    std::mt19937 random(seed);
    const int page_tokens = 1 + int(random() % 33);
    PagePool pool(40, page_tokens);
    std::vector<std::unique_ptr<CachedSequence>> sequences(6);
    for (auto& sequence : sequences) sequence = std::make_unique<CachedSequence>(pool);
    for (int step = 0; step < 1000; ++step) {
      auto& sequence = sequences[random() % sequences.size()];
      const std::vector<int> before(sequence->pages().begin(), sequence->pages().end());
      const int length = sequence->length();
      const unsigned what = random() % 8;
      if (what < 5) {
        const int more = int(random() % unsigned(2 * page_tokens));
        try {
          sequence->extend(more);
          ASSERT_EQ(sequence->length(), length + more);
        } catch (const Error&) {
          ASSERT_EQ(pool.free(), 0);
          ASSERT_EQ(sequence->length(), length);  // as if not asked
        }
      } else if (what < 7) {
        const int kept = length == 0 ? 0 : int(random() % unsigned(length + 1));
        sequence->cut(kept);
        ASSERT_EQ(sequence->length(), kept);
      } else {
        sequence = std::make_unique<CachedSequence>(pool);
        ASSERT_EQ(sequence->length(), 0);
      }
      const size_t common = what < 7 ? std::min(before.size(), sequence->pages().size()) : 0;
      for (size_t i = 0; i < common; ++i) ASSERT_EQ(sequence->pages()[i], before[i]);
      std::set<int> held;
      size_t count = 0;
      for (const auto& each : sequences) {
        ASSERT_GE(int(each->pages().size()) * page_tokens, each->length());
        held.insert(each->pages().begin(), each->pages().end());
        count += each->pages().size();
      }
      ASSERT_EQ(held.size(), count);
      ASSERT_EQ(pool.free(), pool.total() - int(count));
    }
    sequences.clear();
    ASSERT_EQ(pool.free(), pool.total());
  }
}

}  // namespace
}  // namespace ridge
