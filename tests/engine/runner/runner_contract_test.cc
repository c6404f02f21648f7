// What every step promises (runner.h), on the CPU: bounds, shared and copied pages, tokens that
// come from the step before, and memory that does not grow.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <new>
#include <random>

#include "base/error.h"
#include "engine/generate/generate.h"
#include "engine/sampling/gumbel.h"
#include "engine/sampling/logits.h"

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define RIDGE_COUNTS_ALLOCATIONS 1
namespace {
std::atomic<long> allocations = 0;

void* allocate(size_t bytes, size_t alignment) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  const size_t rounded = (bytes + alignment - 1) / alignment * alignment;
  void* memory = std::aligned_alloc(alignment, std::max(rounded, alignment));
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
}  // namespace

// Replaced in the whole test program; the other tests are not affected. Not inlined, because GCC
// then sees std::free of what operator new returned and warns.
[[gnu::noinline]] void* operator new(size_t bytes) {
  return allocate(bytes, alignof(std::max_align_t));
}
[[gnu::noinline]] void* operator new(size_t bytes, std::align_val_t alignment) {
  return allocate(bytes, std::max(static_cast<size_t>(alignment), alignof(std::max_align_t)));
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::align_val_t) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, size_t, std::align_val_t) noexcept {
  std::free(memory);
}
#endif

namespace ridge {
namespace {

constexpr int kVocab = 300;

class RunnerContract : public testing::Test {
 protected:
  void SetUp() override {
    path_ = std::filesystem::temp_directory_path() / fmt::format("ridge-c-{}.json", ::getpid());
    std::ofstream(path_) << R"({"model_type":"llama","hidden_size":256,"num_hidden_layers":2,
      "num_attention_heads":8,"num_key_value_heads":2,"intermediate_size":512,"vocab_size":300,
      "rms_norm_eps":1e-5,"rope_theta":10000.0,"max_position_embeddings":512})";
  }
  void TearDown() override { std::filesystem::remove(path_); }

  std::unique_ptr<Runner> runner(KvStorage kv = KvStorage::f16, int page_tokens = 16) const {
    const RunnerOptions options{.threads = 2,
                                .kv = kv,
                                .page_tokens = page_tokens,
                                .cache_tokens = 512,
                                .max_tokens = 64,
                                .max_sequences = 4,
                                .max_logit_rows = 6,
                                .invariant = true};
    return make_cpu_runner(random_weights(path_.string(), Storage::bf16, 7, 1), options);
  }
  static std::vector<Token> tokens(int count, uint32_t seed = 1) {
    std::mt19937 random(seed);
    std::vector<Token> tokens;
    for (int i = 0; i < count; ++i) tokens.push_back(Token(random() % kVocab));
    return tokens;
  }
  static PagePool pool_of(const Runner& runner) {
    return {runner.page_count(), runner.options().page_tokens};
  }
  // Runs the tokens and returns the last one's logits.
  static std::vector<float> append(Runner& runner, KvSequence& sequence,
                                   std::span<const Token> part) {
    Ledger ledger;
    prefill(runner, sequence, part, 1, ledger);
    return {runner.logits().begin(), runner.logits().end()};
  }
  static std::vector<float> alone(Runner& runner, std::span<const Token> all) {
    PagePool pool = pool_of(runner);
    KvSequence sequence(pool);
    return append(runner, sequence, all);
  }

  std::filesystem::path path_;
};

// A fork writes its own copy of the partial page: both sequences go on as if each were alone.
TEST_F(RunnerContract, ForksContinueAsIfAlone) {
  for (const KvStorage kv : {KvStorage::f32, KvStorage::f16, KvStorage::bf16, KvStorage::int8}) {
    for (const int page_tokens : {16, 48}) {
      for (const int shared : {1, 16, 21, 37, 48, 60}) {
        const auto engine = runner(kv, page_tokens);
        engine->fill_cache(3);  // pages that are not copied would show
        PagePool pool = pool_of(*engine);
        const std::vector<Token> common = tokens(shared, 2), a = tokens(9, 3), b = tokens(20, 4);
        KvSequence first(pool);
        append(*engine, first, common);
        KvSequence second = first.fork();
        const std::vector<float> of_b = append(*engine, second, b);
        const std::vector<float> of_a = append(*engine, first, a);
        std::vector<Token> all = common;
        all.insert(all.end(), a.begin(), a.end());
        EXPECT_EQ(of_a, alone(*engine, all)) << int(kv) << ' ' << page_tokens << ' ' << shared;
        all = common;
        all.insert(all.end(), b.begin(), b.end());
        EXPECT_EQ(of_b, alone(*engine, all)) << int(kv) << ' ' << page_tokens << ' ' << shared;
      }
    }
  }
}

// Prefill chunks and decode tokens in the same step, sharing a full page of a prefix.
TEST_F(RunnerContract, MixedStepsGiveWhatEachGivesAlone) {
  const auto engine = runner();
  const std::vector<Token> prefix = tokens(16, 5), long_tail = tokens(30, 6), short_tail = {7};
  const std::vector<Token> other = tokens(20, 8);
  std::vector<std::vector<float>> expected;
  for (const auto& tail : {long_tail, short_tail}) {
    std::vector<Token> all = prefix;
    all.insert(all.end(), tail.begin(), tail.end());
    expected.push_back(alone(*engine, all));
  }
  expected.push_back(alone(*engine, other));
  PagePool pool = pool_of(*engine);
  KvSequence first(pool), third(pool);
  append(*engine, first, prefix);
  KvSequence second = first.fork();
  std::vector<PageCopy> copies;
  ASSERT_TRUE(first.reserve(30, copies) && second.reserve(1, copies) && third.reserve(20, copies));
  ASSERT_TRUE(copies.empty());
  const Slice batch[] = {{long_tail, 16, first.pages(), 1},
                         {short_tail, 16, second.pages(), 1},
                         {other, 0, third.pages(), 1}};
  EXPECT_TRUE(slices_are_independent(batch, 16));
  engine->run(batch);
  for (size_t row = 0; row < 3; ++row) {
    const auto got = engine->logits().subspan(row * kVocab, kVocab);
    EXPECT_EQ(std::vector<float>(got.begin(), got.end()), expected[row]) << row;
  }
}

TEST_F(RunnerContract, SampleFindsWhatTheHostFinds) {
  const auto engine = runner();
  PagePool pool = pool_of(*engine);
  KvSequence sequence(pool);
  Ledger ledger;
  const std::vector<Token> prompt = tokens(9);
  prefill(*engine, sequence, prompt, 4, ledger);
  std::vector<TopLogitsRequest> requests(4);
  requests[1] = {.count = 5, .scale = 0.5f, .tokens = {3, 299}};
  requests[2] = {.tokens = {}, .draw = true, .key = gumbel_key(1, 2)};
  const std::span<const TopLogits> found = engine->top_logits(requests);
  ASSERT_EQ(found.size(), 4u);
  for (size_t row = 0; row < 4; ++row) {
    TopLogits expected;
    find_top_logits(engine->logits().subspan(row * kVocab, kVocab), requests[row], expected);
    EXPECT_EQ(found[row].chosen.token, expected.chosen.token);
    EXPECT_EQ(found[row].candidates.size(), expected.candidates.size());
    EXPECT_EQ(found[row].requested, expected.requested);
  }
}

// The ids need not be on the host: the next step names the rows of the step before.
TEST_F(RunnerContract, AStepTakesTheTokensThatTheStepBeforeSampled) {
  const auto engine = runner();
  PagePool pool = pool_of(*engine);
  std::vector<KvSequence> sequences;
  const std::vector<Token> prompts[] = {tokens(5, 1), tokens(7, 2)};
  std::vector<PageCopy> copies;
  std::vector<Slice> batch;
  for (int s = 0; s < 2; ++s) {
    sequences.emplace_back(pool);
    ASSERT_TRUE(sequences.back().reserve(20, copies));
    batch.push_back({prompts[s], 0, sequences.back().pages(), 1});
  }
  const std::vector<TopLogitsRequest> greedy(2);
  engine->run(batch);
  engine->sample(greedy);
  const Token crossed[] = {sampled_row(1), sampled_row(0)};  // rows need not be in order
  std::vector<Slice> next{{{&crossed[0], 1}, 5, sequences[0].pages(), 1},
                          {{&crossed[1], 1}, 7, sequences[1].pages(), 1}};
  engine->run(next);
  engine->sample(greedy);  // two steps in flight
  EXPECT_THROW(engine->sample(greedy), Error);
  const std::span<const TopLogits> first = engine->fetch();
  const Token chosen[] = {first[0].chosen.token, first[1].chosen.token};
  EXPECT_NE(chosen[0], chosen[1]);
  const std::vector<float> by_row(engine->logits().begin(), engine->logits().end());
  next[0].tokens = {&chosen[1], 1};
  next[1].tokens = {&chosen[0], 1};
  engine->run(next);
  EXPECT_EQ(by_row, std::vector<float>(engine->logits().begin(), engine->logits().end()));
  EXPECT_EQ(engine->fetch().size(), 2u);
  EXPECT_THROW(engine->fetch(), Error);
  next[0].tokens = {&crossed[0], 1};
  EXPECT_THROW(engine->run(next), Error);  // the step before was not sampled
}

TEST_F(RunnerContract, AStepBeyondTheBoundsChangesNothing) {
  const auto engine = runner();
  PagePool pool = pool_of(*engine);
  KvSequence sequence(pool);
  std::vector<PageCopy> copies;
  ASSERT_TRUE(sequence.reserve(100, copies));
  const std::vector<Token> many = tokens(65), some = tokens(8);
  const std::vector<float> before = alone(*engine, some);
  const auto refused = [&](std::vector<Slice> batch) {
    try {
      engine->run(batch);
      return std::string("no error");
    } catch (const Error& error) {
      EXPECT_EQ(std::vector<float>(engine->logits().begin(), engine->logits().end()), before);
      return std::string(error.what());
    }
  };
  const auto pages = sequence.pages();
  EXPECT_NE(refused({{many, 0, pages, 1}}).find("65 tokens"), std::string::npos);
  EXPECT_NE(refused({{some, 0, pages, 7}}).find("7 rows"), std::string::npos);
  EXPECT_NE(refused({{some, 0, pages, 9}}).find("9 rows"), std::string::npos);
  EXPECT_NE(refused({{some, 0, pages.first(0), 1}}).find("pages for 0"), std::string::npos);
  EXPECT_NE(refused({{some, 10, pages.first(1), 1}}).find("pages for 16"), std::string::npos);
  EXPECT_NE(refused({{{}, 0, pages, 0}}).find("no tokens"), std::string::npos);
  EXPECT_NE(refused({}).find("no slices"), std::string::npos);
  EXPECT_NE(refused(std::vector<Slice>(5, {some, 0, pages, 1})).find("5 sequences"),
            std::string::npos);
  const int beyond[] = {engine->page_count()};
  EXPECT_NE(refused({{some, 0, beyond, 1}}).find("page 32"), std::string::npos);
  const Token outside[] = {1, kVocab}, unknown_row[] = {sampled_row(6)};
  EXPECT_NE(refused({{outside, 0, pages, 1}}).find("token 300"), std::string::npos);
  EXPECT_NE(refused({{unknown_row, 0, pages, 1}}).find("no row"), std::string::npos);
}

TEST(Slices, MustNotReadWhatAnotherWrites) {
  const std::vector<Token> one{1}, twenty(20, 1);
  const int a[] = {0, 1}, b[] = {0, 2}, c[] = {3, 1}, d[] = {1, 4};
  const auto independent = [](const Slice& x, const Slice& y) {
    const Slice batch[] = {x, y};
    return slices_are_independent(batch, 16);
  };
  EXPECT_TRUE(independent({one, 16, a, 1}, {one, 16, b, 1}));     // a full page is shared
  EXPECT_FALSE(independent({one, 8, a, 1}, {one, 16, b, 1}));     // page 0 is written, and read
  EXPECT_FALSE(independent({one, 16, a, 1}, {one, 16, c, 1}));    // both write page 1
  EXPECT_FALSE(independent({twenty, 0, a, 1}, {one, 16, b, 1}));  // a prompt writes pages 0 and 1
  EXPECT_FALSE(independent({one, 16, a, 1}, {one, 16, d, 1}));    // page 1 is written, and read
  EXPECT_TRUE(independent({one, 8, a, 1}, {one, 8, d, 1}));       // reserved pages do not count
}

#ifndef NDEBUG
TEST(SlicesDeathTest, AreCheckedInDebugBuilds) {
  const std::vector<Token> one{1};
  const int pages[] = {0, 1};
  const Slice batch[] = {{one, 3, pages, 1}, {one, 3, pages, 1}};
  const RunnerOptions options{.cache_tokens = 64, .max_sequences = 2};
  EXPECT_DEATH(check_step(batch, options, kVocab), "slices_are_independent");
}
#endif

#ifdef RIDGE_COUNTS_ALLOCATIONS
TEST_F(RunnerContract, DecodeStepsAllocateNothing) {
  const auto engine = runner();
  PagePool pool = pool_of(*engine);
  std::vector<KvSequence> sequences;
  std::vector<PageCopy> copies;
  std::vector<Slice> batch(3);
  std::vector<Token> next(3, 1);
  std::vector<TopLogitsRequest> requests(3);
  requests[1] = {.count = 40, .tokens = {1, 2, 3}};
  requests[2] = {.tokens = {}, .draw = true, .key = 5};
  for (int s = 0; s < 3; ++s) {
    sequences.emplace_back(pool);
    ASSERT_TRUE(sequences.back().reserve(100, copies));
  }
  long during = 0;
  constexpr int kWarm = 4;
  for (int step = 0; step < 60; ++step) {
    const long before = allocations;
    for (size_t s = 0; s < 3; ++s) batch[s] = {{&next[s], 1}, step, sequences[s].pages(), 1};
    engine->run(batch);
    engine->sample(requests);
    const std::span<const TopLogits> found = engine->fetch();
    for (size_t s = 0; s < 3; ++s) next[s] = found[s].chosen.token;
    if (step >= kWarm) during += allocations - before;
  }
  EXPECT_EQ(during, 0);
}
#endif

}  // namespace
}  // namespace ridge
