// Attention of many tokens alone: `check` compares it with doubles on the host, `time` gives
// prompts in TFLOP/s and single tokens in TB/s beside the read ceiling of the same call.
//   cuda_attention_bench check
//   cuda_attention_bench time [prompts|singles]
#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <random>
#include <string>
#include <thread>

#include "bench/cuda_ceiling.cuh"
#include "bench/cuda_models.h"
#include "engine/cuda/attention.cuh"

namespace ridge::cuda {
namespace {

struct Tokens {
  int rows, past;
};

struct Case {
  const char* name;
  int heads, kv_heads, head_dim;
  int window;
  float softcap;
  std::vector<Tokens> sequences;
};

int failures = 0;
void expect(bool right, const char* what, double value, double limit) {
  std::printf("  %-46s %10.3g (limit %.3g) %s\n", what, value, limit, right ? "ok" : "WRONG");
  if (!right) ++failures;
}

double value_of(uint16_t bits) {
  const uint32_t wide = uint32_t{bits} << 16;
  float value;
  std::memcpy(&value, &wide, 4);
  return value;
}
uint16_t bits_of(float value) {
  uint32_t wide;
  std::memcpy(&wide, &value, 4);
  return uint16_t((wide + 0x7fff + (wide >> 16 & 1)) >> 16);
}

// A step on the host and the device. Pages are scattered, page 0 is nobody's and holds NaN; slots
// behind a sequence's last token hold large numbers.
struct Step {
  const Case& c;
  std::vector<AttentionSequence> sequences;
  std::vector<int> pages;
  std::vector<uint16_t> q, kv;
  int tokens = 0, padded = 0;
  Buffer<uint16_t> device_q, device_kv, device_out;
  Buffer<int> device_pages;

  explicit Step(const Case& its) : c(its) {
    std::mt19937 random(unsigned(c.heads * 7 + c.head_dim + int(c.sequences.size())));
    std::normal_distribution<float> normal;
    std::vector<int> free_pages;
    int count = 0;
    for (const Tokens& t : c.sequences) count += (t.past + t.rows + kPageTokens - 1) / kPageTokens;
    for (int i = 1; i <= count; ++i) free_pages.push_back(i);
    std::shuffle(free_pages.begin(), free_pages.end(), random);
    const size_t page = page_elements(c.head_dim);
    kv.assign((size_t(count) + 1) * c.kv_heads * page, 0xffff);
    for (const Tokens& t : c.sequences) {
      sequences.push_back({tokens, t.rows, t.past, int(pages.size())});
      const int length = t.past + t.rows;
      for (int token = 0; token < (length + 15) / 16 * 16; ++token) {
        if (token % kPageTokens == 0) pages.push_back(free_pages[pages.size()]);
        const float deviation = token < length ? 1.0f : 1000.0f;
        for (int h = 0; h < c.kv_heads; ++h) {
          uint16_t* to = &kv[(size_t(pages.back()) * c.kv_heads + h) * page];
          for (int d = 0; d < c.head_dim; ++d) {
            to[key_at(token % 16, d, c.head_dim)] = bits_of(normal(random) * deviation);
            to[value_at(token % 16, d, c.head_dim)] = bits_of(normal(random) * deviation);
          }
        }
      }
      tokens += t.rows;
    }
    for (int i = 0; i < tokens * c.heads * c.head_dim; ++i)
      q.push_back(bits_of(normal(random) * 2));
    padded = (tokens + 7) / 8 * 8 + 8;
    device_q = Buffer<uint16_t>(q.size());
    device_kv = Buffer<uint16_t>(kv.size());
    device_pages = Buffer<int>(pages.size());
    device_out = Buffer<uint16_t>(size_t(padded) * c.heads * c.head_dim);
    device_q.copy_from(q.data(), q.size());
    device_kv.copy_from(kv.data(), kv.size());
    device_pages.copy_from(pages.data(), pages.size());
  }

  AttentionArgs args() const {
    return {c.heads,
            c.kv_heads,
            c.head_dim,
            1 / std::sqrt(float(c.head_dim)),
            c.softcap,
            c.window,
            device_q.data(),
            device_kv.data(),
            device_pages.data(),
            device_out.data(),
            padded};
  }

  std::vector<uint16_t> run(Attention& attention) {
    device_out.fill_bytes(0xff);
    attention.launch(nullptr, args());
    check(cudaDeviceSynchronize(), "attention");
    return device_out.host();
  }

  // One head of one token, in doubles.
  std::vector<double> wanted(const AttentionSequence& s, int token, int head) const {
    const int h = head / (c.heads / c.kv_heads), position = s.past + token;
    const int low = c.window > 0 ? std::max(0, position + 1 - c.window) : 0;
    const uint16_t* row = &q[(size_t(s.row + token) * c.heads + head) * c.head_dim];
    const auto page_of = [&](int key) {
      return &kv[(size_t(pages[s.pages + key / 16]) * c.kv_heads + h) * page_elements(c.head_dim)];
    };
    std::vector<double> p, out(c.head_dim);
    double most = -1e300, total = 0;
    for (int key = low; key <= position; ++key) {
      const uint16_t* page = page_of(key);
      double score = 0;
      for (int d = 0; d < c.head_dim; ++d) {
        score += value_of(row[d]) * value_of(page[key_at(key % 16, d, c.head_dim)]);
      }
      score /= std::sqrt(double(c.head_dim));
      if (c.softcap > 0) score = c.softcap * std::tanh(score / c.softcap);
      p.push_back(score);
      most = std::max(most, score);
    }
    for (double& x : p) total += x = std::exp(x - most);
    for (int key = low; key <= position; ++key) {
      const uint16_t* page = page_of(key);
      for (int d = 0; d < c.head_dim; ++d) {
        out[d] += p[key - low] / total * value_of(page[value_at(key % 16, d, c.head_dim)]);
      }
    }
    return out;
  }
};

// Weights and outputs are rounded to bf16: each relative error up to 2^-9, 2^-9 / sqrt(3) = 1.1e-3
// on average; together 1.6e-3 of an output row's norm where values are random.
constexpr double kLimit = 4e-3, kRowLimit = 8e-3;

void check_case(const Case& c, int sms, int repeats) {
  std::printf("%s: %d/%d heads of %d, window %d, cap %g\n", c.name, c.heads, c.kv_heads, c.head_dim,
              c.window, c.softcap);
  Step step(c);
  Attention attention(c.heads, c.kv_heads, c.head_dim, sms);
  attention.plan(nullptr, step.sequences);
  const std::vector<uint16_t> out = step.run(attention);

  // Every token where that is quick, else some, the first and the last of each sequence included.
  double cost = 0;
  for (const Tokens& t : c.sequences) cost += double(t.rows) * (t.past + t.rows);
  const int stride = int(cost * c.heads * c.head_dim * 2 / 3e9) + 1;
  struct Row {
    const AttentionSequence* sequence;
    int token, head;
  };
  std::vector<Row> rows;
  for (const AttentionSequence& s : step.sequences) {
    for (int token = 0; token < s.rows; ++token) {
      for (int head = 0; head < c.heads; ++head) {
        if (token == 0 || token == s.rows - 1 || (token * c.heads + head) % stride == 0) {
          rows.push_back({&s, token, head});
        }
      }
    }
  }
  const int threads = int(std::max(1u, std::thread::hardware_concurrency()));
  std::vector<double> difference(threads), size(threads), worst(threads);
  std::vector<std::thread> team;
  for (int t = 0; t < threads; ++t) {
    team.emplace_back([&, t] {
      for (size_t i = t; i < rows.size(); i += threads) {
        const Row& row = rows[i];
        const std::vector<double> wanted = step.wanted(*row.sequence, row.token, row.head);
        double e2 = 0, n2 = 0;
        for (int d = 0; d < c.head_dim; ++d) {
          const double found = value_of(
              out[wide_at(row.head * c.head_dim + d, row.sequence->row + row.token, step.padded)]);
          e2 += (found - wanted[d]) * (found - wanted[d]), n2 += wanted[d] * wanted[d];
        }
        difference[t] += e2, size[t] += n2;
        const double error = std::sqrt(e2 / n2);
        worst[t] = std::isfinite(error) ? std::max(worst[t], error) : 1e9;
      }
    });
  }
  for (std::thread& thread : team) thread.join();
  double e2 = 0, n2 = 0, most = 0;
  for (int t = 0; t < threads; ++t) {
    e2 += difference[t], n2 += size[t], most = std::max(most, worst[t]);
  }
  const double error = std::sqrt(e2 / n2);
  expect(error < kLimit, "relative error", error, kLimit);
  expect(most < kRowLimit, "worst row's", most, kRowLimit);

  int unwritten = 0, strayed = 0;
  for (int k = 0; k < c.heads * c.head_dim; ++k) {
    for (int token = 0; token < step.padded; ++token) {
      const bool poison = out[wide_at(k, token, step.padded)] == 0xffff;
      unwritten += token < step.tokens && poison;
      strayed += token >= step.tokens && !poison;
    }
  }
  expect(unwritten + strayed == 0, "not written, or behind the end", unwritten + strayed, 0);

  int moved = 0;
  for (int i = 0; i < repeats; ++i) moved += step.run(attention) != out;
  expect(moved == 0, "repeats, moved", moved, 0);
  Attention slow(c.heads, c.kv_heads, c.head_dim, 3);  // so that each SM has much to do
  slow.plan(nullptr, step.sequences);
  const bool same = step.run(slow) == out;
  expect(same, "3 SMs give something else", !same, 0);
  if (c.sequences.size() < 2) return;
  size_t apart = 0;
  for (const AttentionSequence& s : step.sequences) {
    attention.plan(nullptr, {s});
    const std::vector<uint16_t> alone = step.run(attention);
    for (int k = 0; k < c.heads * c.head_dim; ++k) {
      for (int token = s.row; token < s.row + s.rows; ++token) {
        const size_t at = wide_at(k, token, step.padded);
        apart += alone[at] != out[at];
      }
    }
  }
  expect(apart == 0, "alone against in the step, values apart", double(apart), 0);
}

void check_all(int sms) {
  const std::vector<Tokens> mixed = {{300, 0},  {1, 700},  {1, 0},    {129, 77}, {17, 1500},
                                     {1, 511},  {1, 512},  {2, 1023}, {64, 3},   {1, 2600},
                                     {1, 2047}, {1, 2048}, {3, 6000}};
  const Case cases[] = {
      {"one prompt", 4, 4, 128, 0, 0, {{1000, 0}}},
      {"short prompt", 4, 4, 128, 0, 0, {{65, 0}}},
      {"a chunk", 8, 2, 128, 0, 0, {{333, 1234}}},
      {"one token", 8, 2, 128, 0, 0, {{1, 200}}},
      {"one token, spans", 8, 2, 128, 0, 0, {{1, 9000}}},
      {"mixed", 4, 4, 64, 0, 0, mixed},
      {"mixed", 8, 2, 64, 0, 0, mixed},
      {"mixed", 8, 1, 64, 0, 0, mixed},
      {"mixed", 4, 4, 128, 0, 0, mixed},
      {"mixed", 8, 2, 128, 0, 0, mixed},
      {"mixed", 12, 2, 128, 0, 0, mixed},
      {"mixed", 32, 2, 128, 0, 0, mixed},
      {"mixed, window", 8, 2, 128, 200, 0, mixed},
      {"mixed, narrow window", 4, 4, 128, 7, 0, mixed},
      {"mixed, window, cap", 8, 1, 128, 600, 30, mixed},
      {"mixed", 4, 4, 256, 0, 0, mixed},
      {"mixed, cap", 8, 4, 256, 0, 50, mixed},
      {"mixed, window, cap", 8, 4, 256, 300, 50, mixed},
      {"long prompt", 8, 8, 128, 0, 0, {{4096, 0}}},
      {"long prompts", 16, 4, 128, 0, 0, {{2048, 0}, {3001, 100}}},
  };
  for (const Case& c : cases) check_case(c, sms, c.sequences[0].rows > 1000 ? 20 : 100);
}

// Median seconds of a launch; layers of the cache in turn, so that it comes from memory.
double time_launches(Attention& attention, AttentionArgs args, size_t layer_elements, int layers,
                     int launches) {
  cudaEvent_t start, stop;
  cudaEventCreate(&start), cudaEventCreate(&stop);
  std::vector<double> seconds;
  const uint16_t* kv = args.kv;
  for (int i = 0; i < 12; ++i) {
    cudaEventRecord(start);
    for (int n = 0; n < launches; ++n) {
      args.kv = kv + n % layers * layer_elements;
      attention.launch(nullptr, args);
    }
    cudaEventRecord(stop);
    check(cudaDeviceSynchronize(), "attention");
    float ms = 0;
    cudaEventElapsedTime(&ms, start, stop);
    if (i > 1) seconds.push_back(ms * 1e-3 / launches);
  }
  cudaEventDestroy(start), cudaEventDestroy(stop);
  std::sort(seconds.begin(), seconds.end());
  return seconds[seconds.size() / 2];
}

// `batch` sequences of `rows` tokens each, `context` keys in all.
void time_case(int heads, int kv_heads, int head_dim, int batch, int rows, int context, int sms,
               double rate) {
  const int page_count = (context + kPageTokens - 1) / kPageTokens, tokens = batch * rows;
  const size_t layer = size_t(batch) * page_count * kv_heads * page_elements(head_dim);
  const int layers = rows > 1 ? 1 : int((size_t{1} << 30) / layer) + 1;
  Buffer<uint16_t> kv(layer * layers), q(size_t(tokens) * heads * head_dim);
  Buffer<uint16_t> out(size_t(tokens + 7) / 8 * 8 * heads * head_dim);
  fill_normal(nullptr, kv.data(), kv.size(), 1, 1.0f);
  fill_normal(nullptr, q.data(), q.size(), 2, 1.0f);
  std::vector<int> numbers(size_t(batch) * page_count);
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = int(i);
  std::shuffle(numbers.begin(), numbers.end(), std::mt19937(3));
  Buffer<int> pages(numbers.size());
  pages.copy_from(numbers.data(), numbers.size());
  std::vector<AttentionSequence> sequences;
  for (int i = 0; i < batch; ++i) {
    sequences.push_back({i * rows, rows, context - rows, i * page_count});
  }
  Attention attention(heads, kv_heads, head_dim, sms);
  attention.plan(nullptr, sequences);
  const AttentionArgs args = {heads,
                              kv_heads,
                              head_dim,
                              1 / std::sqrt(float(head_dim)),
                              0,
                              0,
                              q.data(),
                              kv.data(),
                              pages.data(),
                              out.data(),
                              (tokens + 7) / 8 * 8};
  std::printf("%3d x %5d of %5d tokens, %2d/%2d heads of %3d: ", batch, rows, context, heads,
              kv_heads, head_dim);
  if (rows > 1) {
    const double flops = 4.0 * batch * rows * (context - rows / 2.0) * heads * head_dim;
    const double s = time_launches(attention, args, layer, 1, flops > 1e12 ? 4 : 16);
    std::printf("%9.1f us  %6.1f TFLOP/s\n", s * 1e6, flops / s * 1e-12);
  } else {
    const double bytes = double(layer) * 2;
    const double s = time_launches(attention, args, layer, layers, bytes > 1e9 ? 4 : 32);
    std::printf("%9.1f us  %6.3f TB/s  %5.1f %% of %.3f\n", s * 1e6, bytes / s * 1e-12,
                100 * bytes / s / rate, rate * 1e-12);
  }
  std::fflush(stdout);
}

int run(int count, char** words) {
  const std::string what = count > 1 ? words[1] : "check";
  cudaDeviceProp properties;
  check(cudaGetDeviceProperties(&properties, 0), "asking for the device");
  const int sms = properties.multiProcessorCount;
  if (what == "check") {
    check_all(sms);
    std::printf("%d wrong\n", failures);
    return failures != 0;
  }
  const std::string which = count > 2 ? words[2] : "all";
  if (which != "singles") {
    for (const int length : {2048, 8192}) {
      time_case(32, 32, 128, 1, length, length, sms, 0);
      time_case(32, 8, 128, 1, length, length, sms, 0);
    }
    time_case(32, 8, 64, 1, 8192, 8192, sms, 0);
    time_case(16, 8, 256, 1, 8192, 8192, sms, 0);
    time_case(32, 8, 128, 4, 2048, 2048, sms, 0);
    time_case(32, 8, 128, 1, 512, 8192, sms, 0);
  }
  if (which != "prompts") {
    const double rate = read_ceiling(sms);
    std::printf("%s: ring read %.3f TB/s\n", properties.name, rate * 1e-12);
    for (const int context : {1024, 8192}) {
      for (const int batch : {32, 64, 128}) time_case(32, 8, 128, batch, 1, context, sms, rate);
    }
    time_case(32, 32, 128, 64, 1, 1024, sms, rate);
    time_case(32, 8, 64, 64, 1, 1024, sms, rate);
    time_case(16, 8, 256, 64, 1, 1024, sms, rate);
    time_case(32, 8, 128, 17, 1, 1000, sms, rate);
  }
  return 0;
}

}  // namespace
}  // namespace ridge::cuda

int main(int count, char** words) { return ridge::cuda::run_bench(ridge::cuda::run, count, words); }
