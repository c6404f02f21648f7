// What three pages that watch the engine (/api/live) cost it: ridge-7m, a closed loop of clients
// over HTTP, with and without listeners. The two alternate, so that what else the machine does
// falls on both. `cost` is the share of tokens/s that is lost and `noise` its standard error;
// `of_limit` is cost over the 1 % that it may be.
//
// On a busy machine tokens/s say little. `cpu_cost` is how much more CPU time of the process a
// token takes, listeners' own reading included, with its `cpu_noise`. It holds for one thread;
// several threads of an engine spin while they wait for each other. `thread_share` is the live
// thread's part of that CPU time: with all cores busy, about what the engine loses.
#include <benchmark/benchmark.h>
#include <sys/resource.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <memory>
#include <thread>
#include <vector>

#include "engine/weights/weights.h"
#include "live/live_stream.h"
#include "live/live_support.h"
#include "openai/openai_server.h"
#include "page/support.h"

namespace ridge {
namespace {

using LiveBenchClock = std::chrono::steady_clock;

constexpr int kClients = 4, kPages = 3;
constexpr auto kWindow = std::chrono::milliseconds(1500);

double cpu_seconds() {
  rusage used{};
  ::getrusage(RUSAGE_SELF, &used);
  const auto seconds = [](const timeval& t) { return double(t.tv_sec) + 1e-6 * double(t.tv_usec); };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

// Of the live stream's thread.
double live_thread_seconds() {
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string name;
    std::ifstream comm(task.path() / "comm");
    if (!std::getline(comm, name) || name != kLiveThreadName) continue;
    double nanoseconds = 0;
    std::ifstream(task.path() / "schedstat") >> nanoseconds;
    return 1e-9 * nanoseconds;
  }
  return 0;
}

double generated_tokens(int port) {
  const std::string text = fetch(port, "/metrics").body;
  const size_t line = text.find("\nvllm:generation_tokens_total{");
  return line == text.npos ? 0 : std::stod(text.substr(text.find("} ", line) + 2));
}

struct LiveWindow {
  double tokens_per_s = 0, cpu_s_per_token = 0, thread_share = 0;
};

LiveWindow measure_window(int port) {
  const auto start = LiveBenchClock::now();
  const double tokens = generated_tokens(port), cpu = cpu_seconds(), live = live_thread_seconds();
  std::this_thread::sleep_for(kWindow);
  const double made = generated_tokens(port) - tokens;
  const double seconds = std::chrono::duration<double>(LiveBenchClock::now() - start).count();
  const double used = cpu_seconds() - cpu;
  return {made / seconds, used / made, (live_thread_seconds() - live) / used};
}

LiveWindow measure_watched(int port, const char* query) {
  std::vector<std::unique_ptr<LiveClient>> pages;
  for (int i = 0; i < kPages; ++i) pages.push_back(std::make_unique<LiveClient>(port, query));
  for (const auto& page : pages) page->wait_for("pages");
  return measure_window(port);
}

// Clients that send again when they are answered, until the end.
class ClosedLoopClients {
 public:
  explicit ClosedLoopClients(int port) {
    const std::string body = R"({"prompt": "Once upon a time", "temperature": 0, "ignore_eos": true,
                                 "max_tokens": 400})";
    for (int i = 0; i < kClients; ++i) {
      threads_.emplace_back([this, port, body] {
        while (!done_) post(port, "/v1/completions", body);
      });
    }
  }
  ~ClosedLoopClients() {
    done_ = true;
    for (std::thread& thread : threads_) thread.join();
  }

 private:
  std::atomic<bool> done_ = false;
  std::vector<std::thread> threads_;
};

struct MeanAndError {
  double sum = 0, squares = 0, count = 0;
  void add(double value) {
    sum += value;
    squares += value * value;
    ++count;
  }
  double mean() const { return sum / count; }
  double error() const {
    return count > 1 ? std::sqrt((squares / count - mean() * mean()) / (count - 1)) : 0;
  }
};

void live_listeners(benchmark::State& state, const char* query, int threads) {
  OpenAiServer api({"ridge-7m"});
  HttpServer server(page_handler({}, &api), page_limits({}));
  const int port = server.bind("127.0.0.1", 0);
  std::thread thread([&] { server.run(); });
  std::vector<ReplicaGroup::Parts> replicas(1);
  replicas[0].runner =
      make_cpu_runner(load_weights("ridge-7m"),
                      {.threads = threads, .cache_tokens = 32768, .max_sequences = kClients});
  api.start(std::move(replicas));
  MeanAndError rate, cost, cpu_cost, thread_share;
  {
    const ClosedLoopClients clients(port);
    measure_window(port);  // warm
    for (auto _ : state) {
      // ABBA: a drift of the machine cancels.
      const LiveWindow first = measure_window(port);
      const LiveWindow watched = measure_watched(port, query), again = measure_watched(port, query);
      const LiveWindow last = measure_window(port);
      const double alone = first.tokens_per_s + last.tokens_per_s;
      rate.add(alone / 2);
      cost.add(1 - (watched.tokens_per_s + again.tokens_per_s) / alone);
      thread_share.add(watched.thread_share);
      cpu_cost.add((watched.cpu_s_per_token + again.cpu_s_per_token) /
                       (first.cpu_s_per_token + last.cpu_s_per_token) -
                   1);
    }
  }
  state.counters["tok_s"] = rate.mean();
  state.counters["cost"] = cost.mean();
  state.counters["noise"] = cost.error();
  state.counters["of_limit"] = cost.mean() / 0.01;
  state.counters["cpu_cost"] = cpu_cost.mean();
  state.counters["cpu_noise"] = cpu_cost.error();
  state.counters["thread_share"] = thread_share.mean();
  server.stop();
  thread.join();
}
#define LIVE_LISTENERS(name, query, threads)              \
  BENCHMARK_CAPTURE(live_listeners, name, query, threads) \
      ->UseRealTime()                                     \
      ->Iterations(10)                                    \
      ->Unit(benchmark::kSecond)
LIVE_LISTENERS(one_thread, "", 1);
LIVE_LISTENERS(all_cores, "", 0);
LIVE_LISTENERS(one_thread_profiled, "?profile=1", 1);

}  // namespace
}  // namespace ridge
