#include "engine/generate/bench_steps.h"

#include <chrono>

#include "base/error.h"
#include "engine/generate/generate.h"

namespace ridge {
namespace {

void settle(BenchRow& row, const Runner& runner, const System& system, const Sequences& work) {
  Ledger ledger;
  ledger.record({&work, 1}, row.median());
  // Generation is held against what the memory gave between its own steps.
  const double rate = row.rates.empty() ? 0 : BenchRow::quantile_of(row.rates, 0.5);
  row.account = ledger.account(runner.weights().model, runner.plan(),
                               with_read_rate(system, runner, rate), engine_stack(system), nullptr);
}

}  // namespace

std::vector<Token> some_tokens(int count, int vocab, uint32_t salt) {
  std::vector<Token> tokens(static_cast<size_t>(count));
  for (size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] = Token((uint32_t(i) * 2654435761u + salt * 40503u + 17u) % uint32_t(vocab));
  }
  return tokens;
}

BenchRow bench_prompt(Runner& runner, const System& system, int tokens, int repeats) {
  BenchRow row{"prompt", 1, 0, tokens, {}, {}, {}};
  const std::vector<Token> prompt = some_tokens(tokens, runner.weights().architecture.vocab, 1);
  PagePool pool(runner.page_count(), runner.options().page_tokens);
  const TopLogitsRequest greedy;
  for (int r = 0; r <= repeats; ++r) {  // the first warms up
    Ledger ledger;
    KvSequence sequence(pool);
    const auto start = std::chrono::steady_clock::now();
    prefill(runner, sequence, prompt, 1, ledger);
    runner.top_logits({&greedy, 1});
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    if (r > 0) row.seconds.push_back(took.count());
  }
  settle(row, runner, system, {1, double(tokens), 0, 1});
  return row;
}

BenchRow bench_generate(Runner& runner, const System& system, int batch, int context, int steps) {
  BenchRow row{"generate", batch, context, batch, {}, {}, {}};
  PagePool pool(runner.page_count(), runner.options().page_tokens);
  std::vector<KvSequence> sequences;
  std::vector<PageCopy> copies;  // none: nothing is shared
  for (int s = 0; s < batch; ++s) {
    sequences.emplace_back(pool);
    if (!sequences.back().reserve(context + 1, copies)) {
      throw Error("the KV cache has no room for {} sequences of {} tokens", batch, context + 1);
    }
  }
  const std::vector<TopLogitsRequest> greedy(size_t(batch), TopLogitsRequest{});
  std::vector<Token> tokens = some_tokens(batch, runner.weights().architecture.vocab, 2);
  std::vector<Slice> slices(size_t(batch), Slice{});
  // Where the runner queues steps, one is queued ahead, as the server does: its tokens are those
  // that the step before chooses on the device. Then a step lasts from result to result.
  const bool runs_ahead = runner.queues_steps();
  constexpr int kWarm = 2;
  auto start = std::chrono::steady_clock::now();
  const auto finish = [&](int step) {
    runner.fetch();
    const auto now = std::chrono::steady_clock::now();
    if (step >= kWarm) row.seconds.push_back(std::chrono::duration<double>(now - start).count());
    start = now;
  };
  for (int step = 0; step < steps + kWarm; ++step) {
    for (size_t s = 0; s < slices.size(); ++s) {
      if (runs_ahead && step > 0) tokens[s] = sampled_row(int(s));
      slices[s] = {{&tokens[s], 1}, context, sequences[s].pages(), 1};
    }
    if (!runs_ahead) start = std::chrono::steady_clock::now();
    runner.run(slices);
    runner.sample(greedy);
    if (!runs_ahead) {
      finish(step);
    } else if (step > 0) {
      finish(step - 1);
    }
    if (const double rate = runner.read_rate(); rate > 0 && step >= kWarm)
      row.rates.push_back(rate);
  }
  if (runs_ahead) finish(steps + kWarm - 1);
  settle(row, runner, system, {double(batch), 1, double(context), 1});
  return row;
}

}  // namespace ridge
