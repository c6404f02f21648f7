// TopLogitsFinder: `check` compares it with a sort on the host; `time` prints the time of its
// kernels and of the whole call, beside the copy of all logits that it replaces.
//   cuda_top_logits_bench check
//   cuda_top_logits_bench time
#include <cuda_runtime.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <random>
#include <string>

#include "bench/cuda_ceiling.cuh"
#include "bench/cuda_models.h"
#include "engine/cuda/sampling/top_logits.cuh"
#include "engine/sampling/gumbel.h"

namespace ridge::cuda {
namespace {

enum class Kind { normal, ties, equal, rising, banned, steep };
const char* const kKinds[] = {"normal", "ties", "equal", "rising", "banned", "steep"};

std::vector<float> some_logits(Kind kind, int count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 3);
  std::vector<float> logits(count);
  for (int i = 0; i < count; ++i) {
    const float x = normal(random);
    switch (kind) {
      case Kind::normal:
        logits[i] = x;
        break;
      case Kind::ties:  // including zeros of both signs
        logits[i] = std::round(x) * (random() % 2 ? 1 : -1);
        break;
      case Kind::equal:
        logits[i] = -7.25f;
        break;
      case Kind::rising:
        logits[i] = float(i) / 100;
        break;
      case Kind::banned:
        logits[i] = random() % 500 ? -INFINITY : x;
        break;
      case Kind::steep:
        logits[i] = x * 1e30f;
        break;
    }
  }
  return logits;
}

std::vector<TopLogits> top_logits(TopLogitsFinder& finder, const float* logits,
                                  const std::vector<TopLogitsRequest>& requests) {
  int count = 0;
  finder.queue(nullptr, logits, nullptr, requests.data(), int(requests.size()));
  const TopLogits* rows = finder.fetch(count);
  return {rows, rows + count};
}

// The draw of a row on the host: the first of the largest scores.
Candidate drawn_on_host(const float* logits, int vocab, const TopLogitsRequest& request) {
  Candidate best = {-INFINITY, 0};
  for (int token = 0; token < vocab; ++token) {
    const float score = gumbel_score(logits[token], request.scale, request.key, token);
    if (score > best.logit) best = {score, token};
  }
  return {logits[best.token], best.token};
}

void check_rows(int rows, int vocab, int count, float scale) {
  std::printf("%d rows of %d logits, the top %d\n", rows, vocab, count);
  std::vector<float> logits;
  std::vector<TopLogitsRequest> requests;
  std::mt19937 random(unsigned(vocab + count));
  for (int row = 0; row < rows; ++row) {
    const std::vector<float> more = some_logits(Kind(row % 6), vocab, unsigned(vocab + row));
    logits.insert(logits.end(), more.begin(), more.end());
    TopLogitsRequest request;
    request.count = std::max(1, count - row), request.scale = scale;
    request.draw = row % 2 == 0, request.key = gumbel_key(unsigned(vocab), row);
    for (int i = 0; i < row * 7 % (kMaxRequestedTokens + 1); ++i)
      request.tokens.push_back(random() % vocab);
    requests.push_back(request);
  }
  DeviceBuffer<float> device(logits.size());
  device.copy_from(logits.data(), logits.size());
  TopLogitsFinder finder(rows, vocab);
  const std::vector<TopLogits> found = top_logits(finder, device.data(), requests);
  int wrong = 0, wrong_requested = 0, wrong_chosen = 0;
  double log_error = 0, scaled_error = 0;
  for (int row = 0; row < rows; ++row) {
    const float* x = &logits[size_t(row) * vocab];
    std::vector<Candidate> all(vocab);
    for (int i = 0; i < vocab; ++i) all[i] = {x[i], i};
    std::sort(all.begin(), all.end());
    all.resize(std::min(vocab, requests[row].count));
    const TopLogits& top = found[row];
    const bool same = std::equal(all.begin(), all.end(), top.candidates.begin(),
                                 top.candidates.end(), [](const Candidate& a, const Candidate& b) {
                                   return a.logit == b.logit && a.token == b.token;
                                 });
    if (!same) std::printf("  row %d, %s: differs\n", row, kKinds[row % 6]);
    wrong += !same || top.broken;
    for (size_t i = 0; i < requests[row].tokens.size(); ++i) {
      wrong_requested += top.requested[i] != x[requests[row].tokens[i]];
    }
    const Candidate chosen = requests[row].draw ? drawn_on_host(x, vocab, requests[row]) : all[0];
    wrong_chosen += top.chosen.token != chosen.token || top.chosen.logit != chosen.logit;
    const double maximum = all[0].logit;
    if (std::isinf(maximum)) continue;
    double sum = 0, scaled = 0;
    for (int i = 0; i < vocab; ++i) {
      sum += std::exp(x[i] - maximum), scaled += std::exp((x[i] - maximum) * scale);
    }
    const double expected = maximum + std::log(sum);
    log_error =
        std::max(log_error, std::abs(top.log_sum - expected) / std::max(1.0, std::abs(expected)));
    scaled_error = std::max(scaled_error, std::abs(top.scaled_sum / scaled - 1));
  }
  expect(wrong == 0, "rows with other candidates", wrong, 0);
  expect(wrong_requested == 0, "wrong logits of requested tokens", wrong_requested, 0);
  expect(wrong_chosen == 0, "rows with other chosen tokens", wrong_chosen, 0);
  // The device's part of kSumError.
  expect(log_error < 8e-6, "log of the sum", log_error, 8e-6);
  expect(scaled_error < 8e-6, "the scaled sum", scaled_error, 8e-6);

  int changed = 0;
  for (int i = 0; i < 20; ++i) {
    const std::vector<TopLogits> again = top_logits(finder, device.data(), requests);
    for (int row = 0; row < rows; ++row) {
      changed += again[row].log_sum != found[row].log_sum ||
                 again[row].scaled_sum != found[row].scaled_sum;
      changed += again[row].candidates.size() != found[row].candidates.size();
      for (size_t j = 0; j < found[row].candidates.size(); ++j) {
        changed += again[row].candidates[j].token != found[row].candidates[j].token;
      }
    }
  }
  expect(changed == 0, "repeats that changed", changed, 0);

  int unreported = 0;
  for (const float bad : {NAN, -NAN, INFINITY}) {
    const size_t at = random() % logits.size();
    device.copy_from(logits.data(), logits.size());
    check(cudaMemcpy(device.data() + at, &bad, 4, cudaMemcpyHostToDevice), "copying");
    const std::vector<TopLogits> broken = top_logits(finder, device.data(), requests);
    for (int row = 0; row < rows; ++row) {
      unreported += broken[row].broken != (row == int(at / size_t(vocab)));
    }
  }
  expect(unreported == 0, "NaN or infinity not reported", unreported, 0);
}

void check_all() {
  const int vocabs[] = {1,    2,    31,   255,   256,   257,    300,    1000,   8191,
                        8192, 8193, 8200, 32000, 50257, 128256, 262208, 1 << 19};
  for (const int vocab : vocabs) {
    for (const int count : {1, 40, 256}) check_rows(vocab > 100000 ? 7 : 13, vocab, count, 1.4f);
  }
  check_rows(70, 20000, 256, 0.5f);
  check_rows(6, 128256, 256, 1e30f);
}

template <typename Function>
double median_of(int repeats, const Function& seconds_of_one) {
  std::vector<double> seconds;
  for (int i = 0; i < repeats; ++i) seconds.push_back(seconds_of_one());
  std::sort(seconds.begin(), seconds.end());
  return seconds[seconds.size() / 2];
}

// Logits are in L2, as after the GEMM that wrote them. The floor: their bytes at the read rate of
// device memory.
void time_rows(int rows, int vocab, int count, double rate) {
  std::vector<float> logits;
  for (int row = 0; row < rows; ++row) {
    const std::vector<float> more = some_logits(Kind::normal, vocab, unsigned(row));
    logits.insert(logits.end(), more.begin(), more.end());
  }
  DeviceBuffer<float> device(logits.size());
  device.copy_from(logits.data(), logits.size());
  TopLogitsRequest request;
  request.count = count, request.scale = 1.4f;
  for (int i = 0; i < 64; ++i) request.tokens.push_back(i * 37 % vocab);
  const std::vector<TopLogitsRequest> requests(rows, request);
  TopLogitsFinder finder(rows, vocab);
  top_logits(finder, device.data(), requests);
  constexpr int kLaunches = 20;
  cudaEvent_t start, stop;
  cudaEventCreate(&start), cudaEventCreate(&stop);
  const double kernels = median_of(15, [&] {
    cudaEventRecord(start);
    for (int i = 0; i < kLaunches; ++i) finder.queue_kernels(nullptr, device.data(), rows);
    cudaEventRecord(stop);
    check(cudaDeviceSynchronize(), "timing");
    float ms = 0;
    cudaEventElapsedTime(&ms, start, stop);
    return ms * 1e-3 / kLaunches;
  });
  cudaEventDestroy(start), cudaEventDestroy(stop);
  const auto clock = [] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
  };
  const double call = median_of(101, [&] {
    const double begin = clock();
    int count = 0;
    finder.queue(nullptr, device.data(), nullptr, requests.data(), rows);
    finder.fetch(count);
    return clock() - begin;
  });
  float* pinned;
  check(cudaMallocHost(&pinned, logits.size() * 4), "pinning memory");
  const double copy = median_of(31, [&] {
    const double begin = clock();
    cudaMemcpyAsync(pinned, device.data(), logits.size() * 4, cudaMemcpyDeviceToHost, nullptr);
    check(cudaStreamSynchronize(nullptr), "copying");
    return clock() - begin;
  });
  cudaFreeHost(pinned);
  std::printf(
      "%3d x %6d, top %3d: kernels %6.1f us (floor %4.1f), call %6.1f, copy of all logits %7.1f\n",
      rows, vocab, count, kernels * 1e6, double(logits.size()) * 4 / rate * 1e6, call * 1e6,
      copy * 1e6);
}

int run(int words, char** word) {
  if (words < 2 || std::string(word[1]) == "check") {
    check_all();
    return report_failures();
  }
  cudaDeviceProp properties;
  check(cudaGetDeviceProperties(&properties, 0), "reading the device properties");
  const double rate = read_ceiling(properties.multiProcessorCount);
  std::printf("%s: ring read %.3f TB/s\n", properties.name, rate * 1e-12);
  for (const int vocab : {32000, 128256, 262144}) {
    for (const int rows : {1, 8, 64}) {
      for (const int count : {1, 256}) time_rows(rows, vocab, count, rate);
    }
  }
  return 0;
}

}  // namespace
}  // namespace ridge::cuda

int main(int count, char** words) { return ridge::cuda::run_bench(ridge::cuda::run, count, words); }
