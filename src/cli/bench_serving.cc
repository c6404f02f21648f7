#include "cli/bench_serving.h"

#include <fmt/format.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <numeric>

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "base/units.h"
#include "cli/measurement_doubt.h"
#include "engine/generate/bench_steps.h"
#include "serving/serving_engine.h"

namespace ridge {
namespace {

struct ServingRow {
  int clients = 0, requests = 0;
  double seconds = 0, step_s = 0, ceiling = 0;
  double ttft_s = 0, itl_s = 0;            // medians
  double host_gap_s = 0;                   // mean, between steps that only decode
  double predicted_s = 0, measured_s = 0;  // of all steps
  double tokens_per_s = 0;

  double share() const { return tokens_per_s / ceiling; }
};

// Sums over the steps of one row.
class StepSums : public ServingObserver {
 public:
  void on_step(const StepReport& step) override {
    if (step.measured_s == 0) return;
    predicted_s += step.predicted_s;
    measured_s += step.measured_s;
    if (step.prefill_tokens > 0 || step.decode_sequences == 0) return;
    host_gap_s += step.host_gap_s;
    ++decode_steps;
  }
  void on_first_token(double seconds) override { ttft.push_back(seconds); }
  void on_tokens(int, double seconds) override { itl.push_back(seconds); }

  double predicted_s = 0, measured_s = 0, host_gap_s = 0;
  long decode_steps = 0;
  std::vector<double> ttft, itl;
};

// Clients that send their next request from the engine's own thread when one has ended.
class ClosedLoop {
 public:
  ClosedLoop(const ServingBenchOptions& options, int vocab) : options_(options), vocab_(vocab) {}

  void on_outputs(std::vector<RequestOutput>&& outputs) {
    for (const RequestOutput& output : outputs) {
      if (!output.end) continue;
      if (output.end == EndReason::failed) failure_ = output.error;
      if (failure_.empty() && to_send_-- > 0) send();
      const std::lock_guard lock(mutex_);
      if (--left_ == 0) done_.notify_all();
    }
  }
  double run(ServingEngine& engine, int clients) {
    engine_ = &engine;
    left_ = clients * options_.rounds;
    to_send_ = left_;
    const auto start = std::chrono::steady_clock::now();
    // The requests of the first round come at once, as from a script.
    for (int c = 0; c < clients && to_send_-- > 0; ++c) send();
    std::unique_lock lock(mutex_);
    done_.wait(lock, [&] { return left_ <= 0; });
    if (!failure_.empty()) throw Error("{}", failure_);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }

 private:
  void send() {
    ServingRequest request;
    request.id = engine_->new_id();
    // Salted by the id: no prompt begins as another does.
    request.prompt = some_tokens(options_.prompt, vocab_, uint32_t(request.id) * 7919u);
    request.generate.max_tokens = options_.tokens;
    request.generate.ignore_end = true;
    if (!engine_->submit(std::move(request))) throw Error("the queue is full");
  }

  ServingBenchOptions options_;
  int vocab_;
  ServingEngine* engine_ = nullptr;
  std::mutex mutex_;
  std::condition_variable done_;
  std::atomic<int> to_send_ = 0;
  int left_ = 0;
  std::string failure_;
};

double median_of(std::vector<double> values) {
  return values.empty() ? 0 : BenchRow::quantile_of(std::move(values), 0.5);
}

void print_rows(const Runner& runner, const ServingBenchOptions& options,
                const std::vector<ServingRow>& rows, double prompt_s) {
  Table table({"clients", "requests", "tok/s", "ceiling", "of ceiling", "step alone", "ITL", "TTFT",
               "host gap", "measured / predicted"});
  for (const ServingRow& row : rows) {
    table.add(
        {fmt::format("{}", row.clients), fmt::format("{}", row.requests),
         pretty_number(row.tokens_per_s), pretty_number(row.ceiling), pretty_percent(row.share()),
         pretty_time(row.step_s), pretty_time(row.itl_s), pretty_time(row.ttft_s),
         pretty_time(row.host_gap_s),
         row.predicted_s > 0 ? fmt::format("{:.2f}", row.measured_s / row.predicted_s) : "-"});
  }
  fmt::print("{}  {}\n", paint(Colour::bold, runner.weights().source),
             paint(Colour::dim,
                   fmt::format("{}, prompts of {} tokens ({} alone), {} generated", runner.device(),
                               options.prompt, pretty_time(prompt_s), options.tokens)));
  fmt::print("{}", table.text());
  fmt::print("Ceiling: C O / (O d + C p), clients x tokens over steps and prompts timed alone.\n");
}

}  // namespace

void bench_serving(const EngineOptions& engine_options, const ServingBenchOptions& options,
                   const Global& global) {
  const int most = *std::max_element(options.clients.begin(), options.clients.end());
  const int page = engine_options.page_tokens;
  const int64_t each = (options.prompt + options.tokens + 2 * page) / page * page;
  if (most * each > (1 << 26)) throw Error("{} sequences of {} tokens are too many", most, each);
  EngineOptions sized = engine_options;
  sized.chunk = std::max(chunk_of(sized), most);
  std::unique_ptr<Runner> runner =
      make_runner(sized, {.cache_tokens = int(most * each), .max_sequences = most});
  const Disturbance began = disturbance_now();
  const System system = roof_system(engine_options, *runner);
  const double prompt_s = bench_prompt(*runner, system, options.prompt, 3).median();
  runner->fill_cache(1);
  std::vector<ServingRow> rows;
  for (const int clients : options.clients) {
    ServingRow& row = rows.emplace_back();
    row.clients = clients;
    row.requests = clients * options.rounds;
    const int context = options.prompt + options.tokens / 2;
    row.step_s = bench_generate(*runner, system, clients, context, 16).median();
    row.ceiling = clients * options.tokens / (options.tokens * row.step_s + clients * prompt_s);
  }
  ClosedLoop loop(options, runner->weights().architecture.vocab);
  StepSums sums;
  ServingOptions serving;
  serving.system = system;
  serving.stack = engine_stack(system);
  serving.prefix_cache = false;
  ServingEngine engine(
      std::move(runner), std::move(serving),
      [&](std::vector<RequestOutput>&& outputs) { loop.on_outputs(std::move(outputs)); }, &sums);
  for (ServingRow& row : rows) {
    sums = {};
    row.seconds = loop.run(engine, row.clients);
    row.tokens_per_s = double(row.requests) * options.tokens / row.seconds;
    row.ttft_s = median_of(sums.ttft);
    row.itl_s = median_of(sums.itl);
    row.host_gap_s = sums.decode_steps > 0 ? sums.host_gap_s / double(sums.decode_steps) : 0;
    row.predicted_s = sums.predicted_s;
    row.measured_s = sums.measured_s;
  }
  const std::string doubt = doubt_since(began, engine_options, engine.runner());
  if (!global.json) {
    fmt::print("{}", doubt_line(doubt));
    return print_rows(engine.runner(), options, rows, prompt_s);
  }
  Json list = Json::array();
  for (const ServingRow& row : rows) {
    list.push_back({{"clients", row.clients},
                    {"requests", row.requests},
                    {"seconds", row.seconds},
                    {"tokens_per_s", row.tokens_per_s},
                    {"step_s", row.step_s},
                    {"ceiling", row.ceiling},
                    {"share_of_ceiling", row.share()},
                    {"ttft_s", row.ttft_s},
                    {"itl_s", row.itl_s},
                    {"host_gap_s", row.host_gap_s},
                    {"predicted_s", row.predicted_s},
                    {"measured_s", row.measured_s}});
  }
  fmt::print("{}\n", Json{{"model", engine.runner().weights().source},
                          {"device", engine.runner().device()},
                          {"prompt", options.prompt},
                          {"tokens", options.tokens},
                          {"prompt_s", prompt_s},
                          {"doubt", doubt_json(doubt)},
                          {"rows", std::move(list)}}
                         .dump(2));
}

}  // namespace ridge
