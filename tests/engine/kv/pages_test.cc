#include "engine/kv/pages.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

namespace ridge {
namespace {

TEST(PagePool, AcquiresEveryPageOnceThenHasNone) {
  PagePool pool(5, 16);
  std::set<int> acquired;
  for (int i = 0; i < 5; ++i) acquired.insert(pool.acquire().value());
  EXPECT_EQ(acquired, (std::set<int>{0, 1, 2, 3, 4}));
  EXPECT_EQ(pool.free(), 0);
  EXPECT_EQ(pool.acquire(), std::nullopt);
  pool.release(3);
  EXPECT_EQ(pool.acquire(), 3);
}

TEST(PagePool, FreesASharedPageWithItsLastReference) {
  PagePool pool(1, 16);
  const int page = pool.acquire().value();
  pool.add_reference(page);
  pool.add_reference(page);
  EXPECT_EQ(pool.references(page), 3);
  pool.release(page);
  pool.release(page);
  EXPECT_EQ(pool.free(), 0);
  pool.release(page);
  EXPECT_EQ(pool.free(), 1);
}

// Reserves and commits.
bool extend(KvSequence& sequence, int tokens, std::vector<PageCopy>& copies) {
  if (!sequence.reserve(tokens, copies)) return false;
  sequence.commit(tokens);
  return true;
}
bool extend(KvSequence& sequence, int tokens) {
  std::vector<PageCopy> copies;
  const bool extended = extend(sequence, tokens, copies);
  EXPECT_TRUE(copies.empty());
  return extended;
}
std::vector<int> pages_of(const KvSequence& sequence) {
  return {sequence.pages().begin(), sequence.pages().end()};
}

TEST(KvSequence, HoldsJustThePagesItNeeds) {
  PagePool pool(10, 16);
  {
    KvSequence sequence(pool);
    EXPECT_TRUE(sequence.pages().empty());
    for (const auto& [more, pages] : {std::pair{1, 1}, {15, 1}, {1, 2}, {15, 2}, {33, 5}}) {
      ASSERT_TRUE(extend(sequence, more));
      EXPECT_EQ(int(sequence.pages().size()), pages);
    }
    EXPECT_EQ(sequence.length(), 65);
    EXPECT_EQ(sequence.capacity(), 80);
    sequence.truncate(64);
    EXPECT_EQ(sequence.pages().size(), 4u);
    sequence.truncate(1);
    EXPECT_EQ(sequence.pages().size(), 1u);
    EXPECT_EQ(pool.free(), 9);
  }
  EXPECT_EQ(pool.free(), 10);
}

TEST(KvSequence, ReservingCountsNothingAsWritten) {
  PagePool pool(4, 16);
  KvSequence sequence(pool);
  std::vector<PageCopy> copies;
  ASSERT_TRUE(sequence.reserve(20, copies));
  EXPECT_EQ(sequence.length(), 0);
  EXPECT_EQ(sequence.pages().size(), 2u);
  ASSERT_TRUE(sequence.reserve(20, copies));  // the same room again
  EXPECT_EQ(sequence.pages().size(), 2u);
  sequence.commit(20);
  EXPECT_EQ(sequence.length(), 20);
}

TEST(KvSequence, ReservesAllOrNothing) {
  PagePool pool(4, 16);
  KvSequence sequence(pool);
  ASSERT_TRUE(extend(sequence, 20));
  KvSequence other = sequence.fork();
  const std::vector<int> before = pages_of(other);
  std::vector<PageCopy> copies;
  // One page for the copy of the shared partial page and two fresh ones; two are free.
  EXPECT_FALSE(other.reserve(30, copies));
  EXPECT_TRUE(copies.empty());
  EXPECT_EQ(pages_of(other), before);
  EXPECT_EQ(pool.free(), 2);
  EXPECT_TRUE(other.reserve(28, copies));  // a copy and one fresh page
  EXPECT_EQ(pool.free(), 0);
}

TEST(KvSequence, AForkSharesPagesUntilItWritesOne) {
  PagePool pool(8, 16);
  KvSequence first(pool);
  ASSERT_TRUE(extend(first, 40));
  KvSequence second = first.fork();
  EXPECT_EQ(second.length(), 40);
  EXPECT_EQ(pages_of(second), pages_of(first));
  EXPECT_EQ(pool.free(), 5);
  const int partial = first.pages()[2];
  std::vector<PageCopy> copies;
  ASSERT_TRUE(extend(second, 1, copies));
  ASSERT_EQ(copies.size(), 1u);
  EXPECT_EQ(copies[0].from, partial);
  EXPECT_EQ(copies[0].to, second.pages()[2]);
  EXPECT_EQ(copies[0].tokens, 8);
  EXPECT_NE(second.pages()[2], partial);
  EXPECT_EQ(second.pages()[0], first.pages()[0]);
  EXPECT_EQ(pool.references(partial), 1);
  copies.clear();
  ASSERT_TRUE(extend(first, 1, copies));  // the page is this sequence's own again
  EXPECT_TRUE(copies.empty());
  EXPECT_EQ(first.pages()[2], partial);
}

TEST(KvSequence, AForkAtAPageEndCopiesNothing) {
  PagePool pool(8, 16);
  KvSequence first(pool);
  ASSERT_TRUE(extend(first, 32));
  KvSequence second = first.fork();
  ASSERT_TRUE(extend(second, 1));
  EXPECT_EQ(second.pages()[1], first.pages()[1]);
  EXPECT_EQ(second.pages().size(), 3u);
}

TEST(KvSequence, AForkLeavesReservedPagesBehind) {
  PagePool pool(8, 16);
  KvSequence first(pool);
  std::vector<PageCopy> copies;
  ASSERT_TRUE(extend(first, 16));
  ASSERT_TRUE(first.reserve(40, copies));
  EXPECT_EQ(first.fork().pages().size(), 1u);
}

TEST(KvSequence, AppendsPagesOfAPrefix) {
  PagePool pool(8, 16);
  KvSequence cached(pool);
  ASSERT_TRUE(extend(cached, 48));
  KvSequence sequence(pool);
  sequence.append_shared(cached.pages().first(2), 32);
  EXPECT_EQ(sequence.length(), 32);
  EXPECT_EQ(pool.references(cached.pages()[1]), 2);
  EXPECT_EQ(pool.references(cached.pages()[2]), 1);
  cached.truncate(0);
  EXPECT_EQ(pool.free(), 6);  // the prefix lives on
  ASSERT_TRUE(extend(sequence, 1));
}

TEST(KvSequence, MovesItsPages) {
  PagePool pool(8, 16);
  KvSequence first(pool);
  ASSERT_TRUE(extend(first, 20));
  const std::vector<int> pages = pages_of(first);
  KvSequence second = std::move(first);
  EXPECT_EQ(second.length(), 20);
  EXPECT_EQ(pages_of(second), pages);
  EXPECT_EQ(pool.free(), 6);
  {
    KvSequence third(pool);
    ASSERT_TRUE(extend(third, 1));
    third = std::move(second);
    EXPECT_EQ(pages_of(third), pages);
  }
  EXPECT_EQ(pool.free(), 7);  // `second` now holds the page that `third` had
}

// What a sequence should read: for each of its positions, the value written there last.
struct Model {
  std::vector<int> written;
};

// Several sequences grow, shrink, fork and take each other's prefixes at random. The cache is
// played by an array of values. Every sequence must read back what it wrote, and reference counts
// must be those of the page lists.
TEST(KvSequence, AgreesWithANaiveModelUnderRandomOperations) {
  constexpr int kPages = 14;  // few enough to run out
  int copied = 0, refused = 0;
  for (uint32_t seed = 0; seed < 30; ++seed) {
    std::mt19937 random(seed);
    const int page_tokens = 1 + int(random() % 20);
    PagePool pool(kPages, page_tokens);
    std::vector<std::vector<int>> memory(kPages, std::vector<int>(size_t(page_tokens), -1));
    std::vector<KvSequence> sequences;
    for (int i = 0; i < 6; ++i) sequences.emplace_back(pool);
    std::vector<Model> models(sequences.size());
    int next_value = 0;
    for (int step = 0; step < 600; ++step) {
      const size_t s = random() % sequences.size(), other = random() % sequences.size();
      KvSequence& sequence = sequences[s];
      Model& model = models[s];
      const unsigned what = random() % 10;
      if (what < 5) {
        const int more = int(random() % unsigned(2 * page_tokens + 1));
        const std::vector<int> before = pages_of(sequence);
        const int free = pool.free();
        std::vector<PageCopy> copies;
        if (!sequence.reserve(more, copies)) {
          ++refused;
          ASSERT_TRUE(copies.empty());
          ASSERT_EQ(pages_of(sequence), before);
          ASSERT_EQ(pool.free(), free);
          continue;
        }
        for (const PageCopy& copy : copies) {
          ++copied;
          std::copy_n(memory[size_t(copy.from)].begin(), copy.tokens,
                      memory[size_t(copy.to)].begin());
        }
        const int written = random() % 4 == 0 ? int(random() % unsigned(more + 1)) : more;
        for (int i = 0; i < written; ++i) {
          const int position = sequence.length() + i;
          const int page = sequence.pages()[size_t(position / page_tokens)];
          ASSERT_EQ(pool.references(page), 1);  // nobody else sees the write
          memory[size_t(page)][size_t(position % page_tokens)] = next_value;
          model.written.push_back(next_value++);
        }
        sequence.commit(written);
      } else if (what < 7) {
        const int kept = int(random() % unsigned(sequence.length() + 1));
        sequence.truncate(kept);
        model.written.resize(size_t(kept));
      } else if (what < 9) {
        if (s == other) continue;
        sequences[s] = sequences[other].fork();
        models[s] = models[other];
      } else {
        if (s == other) continue;
        const int pages = sequences[other].length() / page_tokens;
        const int shared = pages == 0 ? 0 : int(random() % unsigned(pages + 1));
        sequence.truncate(0);
        sequence.append_shared(sequences[other].pages().first(size_t(shared)),
                               shared * page_tokens);
        model.written.assign(models[other].written.begin(),
                             models[other].written.begin() + shared * page_tokens);
      }
      std::vector<int> references(kPages, 0);
      for (size_t i = 0; i < sequences.size(); ++i) {
        ASSERT_EQ(sequences[i].length(), int(models[i].written.size()));
        ASSERT_GE(sequences[i].capacity(), sequences[i].length());
        for (const int page : sequences[i].pages()) ++references[size_t(page)];
        for (int t = 0; t < sequences[i].length(); ++t) {
          const int page = sequences[i].pages()[size_t(t / page_tokens)];
          ASSERT_EQ(memory[size_t(page)][size_t(t % page_tokens)], models[i].written[size_t(t)]);
        }
      }
      int free = 0;
      for (int page = 0; page < kPages; ++page) {
        ASSERT_EQ(pool.references(page), references[size_t(page)]);
        free += references[size_t(page)] == 0;
      }
      ASSERT_EQ(pool.free(), free);
    }
    sequences.clear();
    ASSERT_EQ(pool.free(), pool.total());
  }
  EXPECT_GT(copied, 50);  // the random operations reach what they should
  EXPECT_GT(refused, 50);
}

}  // namespace
}  // namespace ridge
