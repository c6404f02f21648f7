// How long a user waits: the start of a command, and answers of the server over a loopback socket.
// `of_limit` is the share of the limit that each should hold on a quiet machine; above 1 it misses.
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <memory>
#include <string>

#include "machine/atlas.h"
#include "page/support.h"

namespace ridge {
namespace {

// Seconds per iteration over the limit.
void against_limit(benchmark::State& state, double limit_s) {
  state.counters["of_limit"] =
      benchmark::Counter(double(state.iterations()) * limit_s,
                         benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}

void command(benchmark::State& state, const char* arguments, double limit_s) {
  const std::string line = std::string(RIDGE_BINARY) + " " + arguments + " >/dev/null";
  for (auto _ : state) {
    if (std::system(line.c_str()) != 0) return state.SkipWithError(line.c_str());
  }
  against_limit(state, limit_s);
}
BENCHMARK_CAPTURE(command, version, "--version", 0.050)->UseRealTime();
BENCHMARK_CAPTURE(command, predict, "predict", 0.050)->UseRealTime();
BENCHMARK_CAPTURE(command, tour, "", 1.0)->UseRealTime();

void http_predict(benchmark::State& state) {
  TestServer server;
  std::unique_ptr<Connection> connection;
  int batch = 0;
  for (auto _ : state) {
    // A connection ends after 1000 requests.
    if (batch % 1000 == 0) connection = std::make_unique<Connection>(server.port());
    batch = batch % 1000 + 1;
    connection->send("GET /api/predict?model=llama-3-70b&machine=8xh100-sxm&batch=" +
                     std::to_string(batch) + " HTTP/1.1\r\nHost: localhost\r\n\r\n");
    if (parse_answer(connection->receive()).status != 200) return state.SkipWithError("refused");
  }
  against_limit(state, 0.005);
}
BENCHMARK(http_predict)->UseRealTime();

void http_sweep_of_1000(benchmark::State& state) {
  TestServer server;
  for (auto _ : state) {
    const Answer sweep =
        fetch(server.port(), "/api/sweep?model=llama-3-70b&machine=8xh100-sxm&batch=1..1000");
    if (sweep.status != 200) return state.SkipWithError("refused");
  }
  against_limit(state, 0.100);
}
BENCHMARK(http_sweep_of_1000)->UseRealTime();

void list_machines(benchmark::State& state) {
  all_machines();  // the first call parses the embedded files
  for (auto _ : state) benchmark::DoNotOptimize(all_machines());
  against_limit(state, 0.003);
}
BENCHMARK(list_machines);

}  // namespace
}  // namespace ridge
