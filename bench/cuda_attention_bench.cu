// Attention alone, with RoPE and the append to the cache: `check` compares it with double precision
// on the host; `time` prints prefill in TFLOP/s, and decode in TB/s beside the read ceiling of the
// same call.
//   cuda_attention_bench check [KV FORMAT]...
//   cuda_attention_bench time [prefill|decode] [KV FORMAT]...
#include <cuda_fp16.h>
#include <cuda_fp8.h>
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
#include "engine/cuda/attention/attention.cuh"

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
  bool norms;
  std::vector<Tokens> sequences;
};

float value_of(uint16_t bits) {
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

// A page of one KV head, on the host.
struct Page {
  KvFormat format;
  int head_dim;
  uint8_t* bytes;

  struct Element {
    int at, size, scale;  // byte offsets of the element and of its scale; -1: no scale
  };
  Element element(bool value, int token, int d) const {
    if (kv_bytes(format)) {
      return {value ? value_byte(token, d, head_dim) : key_byte(token, d), 1,
              value ? value_scale_byte(token, head_dim) : key_scale_byte(token, head_dim)};
    }
    return {2 * (value ? value_at(token, d, head_dim) : key_at(token, d, head_dim)), 2, -1};
  }
  double get(bool value, int token, int d) const {
    const Element p = element(value, token, d);
    uint16_t bits;
    std::memcpy(&bits, bytes + p.at, 2 <= p.size ? 2 : 1);
    if (format == KvFormat::bf16) return value_of(bits);
    if (format == KvFormat::f16) return __half2float(__ushort_as_half(bits));
    float scale;
    std::memcpy(&scale, bytes + p.scale, 4);
    if (format == KvFormat::int8) return double(int8_t(bytes[p.at])) * scale;
    __nv_fp8_e4m3 byte;
    byte.__x = bytes[p.at];
    return double(float(byte)) * scale;
  }
  void put(bool value, int token, const float* v) const {
    float maximum = 0;
    for (int d = 0; d < head_dim; ++d) maximum = std::max(maximum, std::abs(v[d]));
    const float scale = maximum / (format == KvFormat::fp8 ? 448.0f : 127.0f);
    for (int d = 0; d < head_dim; ++d) {
      const Element p = element(value, token, d);
      uint16_t bits = bits_of(v[d]);
      if (format == KvFormat::f16) bits = __half_as_ushort(__float2half(v[d]));
      if (format == KvFormat::int8) bits = uint8_t(int8_t(std::lrint(v[d] / scale)));
      if (format == KvFormat::fp8) bits = __nv_fp8_e4m3(v[d] / scale).__x;
      std::memcpy(bytes + p.at, &bits, p.size);
      if (p.scale >= 0) std::memcpy(bytes + p.scale, &scale, 4);
    }
  }
  // Copies that token from another page.
  void copy_token(const Page& other, bool value, int token) const {
    for (int d = 0; d < head_dim; ++d) {
      const Element p = element(value, token, d);
      std::memcpy(bytes + p.at, other.bytes + p.at, p.size);
      if (p.scale >= 0) std::memcpy(bytes + p.scale, other.bytes + p.scale, 4);
    }
  }
};

// A step on the host and the device. Pages are scattered. Page 0 belongs to no sequence and holds
// NaN; slots behind a sequence's last cached token hold large numbers.
struct Step {
  const Case& c;
  KvFormat format;
  std::vector<AttentionSequence> sequences;
  std::vector<int> pages;
  std::vector<float> qkv, frequency, norms;
  std::vector<KvSlot> at;
  std::vector<uint8_t> kv, found_kv;  // before and after the step
  float magnitude;
  int tokens = 0, padded = 0;
  DeviceBuffer<float> device_qkv, device_frequency, device_norms;
  DeviceBuffer<KvSlot> device_at;
  DeviceBuffer<uint16_t> device_q, device_out;
  DeviceBuffer<uint8_t> device_kv;
  DeviceBuffer<int> device_pages;

  Step(const Case& test_case, KvFormat kv_format)
      : c(test_case), format(kv_format), magnitude(c.norms ? 1.25f : 1.0f) {
    std::mt19937 random(unsigned(c.heads * 7 + c.head_dim + int(c.sequences.size())));
    std::normal_distribution<float> normal;
    std::vector<int> free_pages;
    int count = 0;
    for (const Tokens& t : c.sequences) count += (t.past + t.rows + kPageTokens - 1) / kPageTokens;
    for (int i = 1; i <= count; ++i) free_pages.push_back(i);
    std::shuffle(free_pages.begin(), free_pages.end(), random);
    kv.assign((size_t(count) + 1) * c.kv_heads * page_bytes(format, c.head_dim), 0xff);
    std::vector<float> v(c.head_dim);
    for (const Tokens& t : c.sequences) {
      sequences.push_back({tokens, t.rows, t.past, int(pages.size())});
      const int length = t.past + t.rows;
      for (int token = 0; token < (length + 15) / 16 * 16; ++token) {
        if (token % kPageTokens == 0) pages.push_back(free_pages[pages.size()]);
        const float deviation = token < t.past ? 1.0f : 1000.0f;
        if (token >= t.past && token < length) {
          at.push_back({token, pages.back(), token % kPageTokens});
        }
        for (int h = 0; h < c.kv_heads; ++h) {
          for (const bool value : {false, true}) {
            for (float& x : v) x = normal(random) * deviation;
            page(kv, pages.back(), h).put(value, token % kPageTokens, v.data());
          }
        }
      }
      tokens += t.rows;
    }
    const int columns = (c.heads + 2 * c.kv_heads) * c.head_dim;
    for (int i = 0; i < tokens * columns; ++i) {
      qkv.push_back(normal(random) * (i % columns < c.heads * c.head_dim ? 2 : 1));
    }
    for (int i = 0; i < c.head_dim / 2; ++i) {
      frequency.push_back(float(std::pow(500000.0, -2.0 * i / c.head_dim)));
    }
    for (int i = 0; i < 2 * c.head_dim; ++i) {  // of q, then of k
      norms.push_back((i < c.head_dim ? 1.6f : 0.8f) * (1 + 0.2f * normal(random)));
    }
    padded = (tokens + 7) / 8 * 8 + 8;
    device_q = DeviceBuffer<uint16_t>(size_t(tokens) * c.heads * c.head_dim);
    device_out = DeviceBuffer<uint16_t>(size_t(padded) * c.heads * c.head_dim);
    upload(device_qkv, qkv), upload(device_frequency, frequency), upload(device_norms, norms);
    upload(device_at, at), upload(device_kv, kv), upload(device_pages, pages);
  }

  template <typename T>
  static void upload(DeviceBuffer<T>& buffer, const std::vector<T>& values) {
    buffer = DeviceBuffer<T>(values.size());
    buffer.copy_from(values.data(), values.size());
  }

  Page page(std::vector<uint8_t>& cache, int number, int h) const {
    return {format, c.head_dim,
            &cache[(size_t(number) * c.kv_heads + h) * page_bytes(format, c.head_dim)]};
  }
  Page page(const std::vector<uint8_t>& cache, int number, int h) const {
    return page(const_cast<std::vector<uint8_t>&>(cache), number, h);
  }

  AttentionArgs args() const {
    return {c.heads,
            c.kv_heads,
            c.head_dim,
            1 / std::sqrt(float(c.head_dim)),
            c.softcap,
            c.window,
            device_qkv.data(),
            c.norms ? device_norms.data() : nullptr,
            c.norms ? device_norms.data() + c.head_dim : nullptr,
            1e-5f,
            device_frequency.data(),
            magnitude,
            device_at.data(),
            device_q.data(),
            device_kv.data(),
            device_pages.data(),
            device_out.data(),
            padded};
  }

  std::vector<uint16_t> run(Attention& attention) {
    device_out.fill_bytes(0xff);
    if (attention.needs_rope()) attention.rope_and_append(nullptr, args());
    attention.launch(nullptr, args());
    check(cudaDeviceSynchronize(), "attention");
    return device_out.host();
  }

  // One head of a token after norm and RoPE: a query, or a key or value as it is cached.
  std::vector<double> roped(int token, int head) const {
    const int heads = c.heads + 2 * c.kv_heads, half = c.head_dim / 2;
    const float* from = &qkv[(size_t(token) * heads + head) * c.head_dim];
    std::vector<double> v(from, from + c.head_dim);
    if (head >= c.heads + c.kv_heads) return v;
    if (c.norms) {
      double squares = 0;
      for (const double x : v) squares += x * x;
      const double scale = 1 / std::sqrt(squares / c.head_dim + 1e-5);
      for (int d = 0; d < c.head_dim; ++d) {
        v[d] *= scale * norms[size_t(head < c.heads ? d : c.head_dim + d)];
      }
    }
    for (int i = 0; i < half; ++i) {
      const float angle =
          float(at[token].position) * frequency[i];  // rounded to float, as on the device
      const double a = std::cos(double(angle)) * magnitude, b = std::sin(double(angle)) * magnitude;
      const double x = v[i], y = v[i + half];
      v[i] = x * a - y * b, v[i + half] = y * a + x * b;
    }
    return v;
  }

  bool is_prefill(const AttentionSequence& s) const { return s.rows * (c.heads / c.kv_heads) > 64; }

  // Attention of one head of one token in double precision, over the cache as the device left it.
  // Prefill rounds everything to bf16.
  std::vector<double> expected_output(const AttentionSequence& s, int token, int head) const {
    const int h = head / (c.heads / c.kv_heads), position = s.past + token;
    const int low = c.window > 0 ? std::max(0, position + 1 - c.window) : 0;
    const bool bf16 = is_prefill(s);
    std::vector<double> q = roped(s.row + token, head);
    if (bf16 || format == KvFormat::bf16) {
      for (double& x : q) x = value_of(bits_of(float(x)));
    }
    const auto element = [&](bool value, int key, int d) {
      const double x = page(found_kv, pages[s.pages + key / 16], h).get(value, key % 16, d);
      return bf16 ? double(value_of(bits_of(float(x)))) : x;
    };
    std::vector<double> p, out(c.head_dim);
    double maximum = -1e300, total = 0;
    for (int key = low; key <= position; ++key) {
      double score = 0;
      for (int d = 0; d < c.head_dim; ++d) score += q[d] * element(false, key, d);
      score /= std::sqrt(double(c.head_dim));
      if (c.softcap > 0) score = c.softcap * std::tanh(score / c.softcap);
      p.push_back(score);
      maximum = std::max(maximum, score);
    }
    for (double& x : p) total += x = std::exp(x - maximum);
    for (int key = low; key <= position; ++key) {
      for (int d = 0; d < c.head_dim; ++d) {
        out[d] += p[key - low] / total * element(true, key, d);
      }
    }
    return out;
  }
};

// Largest relative error of a cached key or value, of the vector's norm: half a unit in the last
// place; for int8 half a step where the largest element is 5 times the mean.
double cached_limit(KvFormat format) {
  return format == KvFormat::bf16  ? 0x1.02p-8
         : format == KvFormat::f16 ? 0x1.1p-11
         : format == KvFormat::fp8 ? 0x1.02p-4
                                   : 0.5 / 127 * 5;
}

void check_cache(Step& step) {
  const Case& c = step.c;
  double worst = 0;
  std::vector<uint8_t> rest = step.found_kv;
  for (int token = 0; token < step.tokens; ++token) {
    const KvSlot at = step.at[token];
    for (int h = 0; h < c.kv_heads; ++h) {
      for (const bool value : {false, true}) {
        const std::vector<double> expected =
            step.roped(token, c.heads + (value ? c.kv_heads : 0) + h);
        const Page found = step.page(step.found_kv, at.page, h);
        double e2 = 0, n2 = 0;
        for (int d = 0; d < c.head_dim; ++d) {
          const double e = found.get(value, at.slot, d) - expected[d];
          e2 += e * e, n2 += expected[d] * expected[d];
        }
        const double error = std::sqrt(e2 / n2);
        worst = std::isfinite(error) ? std::max(worst, error) : 1e9;
        step.page(rest, at.page, h).copy_token(step.page(step.kv, at.page, h), value, at.slot);
      }
    }
  }
  expect(worst < cached_limit(step.format), "worst cached vector's error", worst,
         cached_limit(step.format));
  size_t changed = 0;
  for (size_t i = 0; i < rest.size(); ++i) changed += rest[i] != step.kv[i];
  expect(changed == 0, "other bytes of the cache that changed", double(changed), 0);
}

// Weights and outputs are rounded to bf16: each relative error up to 2^-9, 2^-9 / sqrt(3) = 1.1e-3
// on average; together 1.6e-3 of an output row's norm where values are random.
constexpr double kLimit = 4e-3, kRowLimit = 8e-3;

// Compares the output with double precision: all rows where that is quick, else a sample with the
// first and last token of each sequence.
void check_output(const Step& step, const std::vector<uint16_t>& out) {
  const Case& c = step.c;
  double cost = 0;
  for (const Tokens& t : c.sequences) cost += double(t.rows) * (t.past + t.rows);
  const int stride = int(cost * c.heads * c.head_dim * 2 / 1e9) + 1;
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
  std::vector<std::thread> workers;
  for (int t = 0; t < threads; ++t) {
    workers.emplace_back([&, t] {
      for (size_t i = t; i < rows.size(); i += threads) {
        const Row& row = rows[i];
        const std::vector<double> expected =
            step.expected_output(*row.sequence, row.token, row.head);
        double e2 = 0, n2 = 0;
        for (int d = 0; d < c.head_dim; ++d) {
          const double found = value_of(
              out[wide_at(row.head * c.head_dim + d, row.sequence->row + row.token, step.padded)]);
          e2 += (found - expected[d]) * (found - expected[d]), n2 += expected[d] * expected[d];
        }
        difference[t] += e2, size[t] += n2;
        const double error = std::sqrt(e2 / n2);
        worst[t] = std::isfinite(error) ? std::max(worst[t], error) : 1e9;
      }
    });
  }
  for (std::thread& thread : workers) thread.join();
  double e2 = 0, n2 = 0, maximum = 0;
  for (int t = 0; t < threads; ++t) {
    e2 += difference[t], n2 += size[t], maximum = std::max(maximum, worst[t]);
  }
  const double error = std::sqrt(e2 / n2);
  expect(error < kLimit, "relative error", error, kLimit);
  expect(maximum < kRowLimit, "worst relative error of a row", maximum, kRowLimit);
}

// All outputs are written, and nothing behind them.
void check_bounds(const Step& step, const std::vector<uint16_t>& out) {
  int unwritten = 0, out_of_bounds = 0;
  for (int k = 0; k < step.c.heads * step.c.head_dim; ++k) {
    for (int token = 0; token < step.padded; ++token) {
      const bool poison = out[wide_at(k, token, step.padded)] == 0xffff;
      unwritten += token < step.tokens && poison;
      out_of_bounds += token >= step.tokens && !poison;
    }
  }
  expect(unwritten + out_of_bounds == 0, "outputs not written, or written behind the end",
         unwritten + out_of_bounds, 0);
}

// Attention for steps of at most some sequences, and the way of its plans to the device.
struct PlannedAttention {
  PlannedAttention(int heads, int kv_heads, int head_dim, int sms, KvFormat format, int window,
                   const AttentionBounds& bounds)
      : attention(heads, kv_heads, head_dim, sms, format, {window}, bounds),
        inputs(Attention::input_bytes(heads, kv_heads, sms, 1, bounds)) {}
  void plan(const std::vector<AttentionSequence>& sequences, const std::vector<int>& pages) {
    inputs.begin();
    attention.plan(inputs, sequences, pages.data());
    inputs.upload(nullptr);
  }
  static AttentionBounds bounds(const std::vector<AttentionSequence>& sequences, int page_count) {
    AttentionBounds bounds;
    for (const AttentionSequence& s : sequences) bounds.tokens += s.rows;
    bounds.sequences = int(sequences.size());
    bounds.cache_pages = bounds.context_pages = page_count;
    return bounds;
  }

  Attention attention;
  StepInputs inputs;
};

// A sequence alone gives the bits that it gives in the batch.
void check_alone(Step& step, PlannedAttention& planned, const std::vector<uint16_t>& out) {
  size_t different = 0;
  for (const AttentionSequence& s : step.sequences) {
    planned.plan({s}, step.pages);
    const std::vector<uint16_t> alone = step.run(planned.attention);
    for (int k = 0; k < step.c.heads * step.c.head_dim; ++k) {
      for (int token = s.row; token < s.row + s.rows; ++token) {
        const size_t at = wide_at(k, token, step.padded);
        different += alone[at] != out[at];
      }
    }
  }
  expect(different == 0, "values that depend on the batch", double(different), 0);
}

void check_case(const Case& c, KvFormat format, const char* format_name, int sms, int repeats) {
  std::printf("%s, %s: %d/%d heads of %d, window %d, cap %g%s\n", c.name, format_name, c.heads,
              c.kv_heads, c.head_dim, c.window, c.softcap, c.norms ? ", norms" : "");
  Step step(c, format);
  const AttentionBounds bounds =
      PlannedAttention::bounds(step.sequences, int(step.pages.size()) + 1);
  PlannedAttention planned(c.heads, c.kv_heads, c.head_dim, sms, format, c.window, bounds);
  planned.plan(step.sequences, step.pages);
  Attention& attention = planned.attention;
  const std::vector<uint16_t> out = step.run(attention);
  step.found_kv = step.device_kv.host();
  check_cache(step);
  check_output(step, out);
  check_bounds(step, out);

  int changed = 0;
  for (int i = 0; i < repeats; ++i) changed += step.run(attention) != out;
  expect(changed == 0, "repeats that changed", changed, 0);
  // 3 SMs: every block has many items.
  PlannedAttention slow(c.heads, c.kv_heads, c.head_dim, 3, format, c.window, bounds);
  slow.plan(step.sequences, step.pages);
  const bool same = step.run(slow.attention) == out;
  expect(same, "different result on 3 SMs", !same, 0);
  const bool same_cache = step.device_kv.host() == step.found_kv;
  expect(same_cache, "cache changed by a repeat", !same_cache, 0);
  if (c.sequences.size() > 1) check_alone(step, planned, out);
}

void check_all(int sms, KvFormat format, const char* format_name) {
  const std::vector<Tokens> mixed = {{300, 0},  {1, 700},  {1, 0},    {129, 77}, {17, 1500},
                                     {1, 511},  {1, 512},  {2, 1023}, {64, 3},   {1, 2600},
                                     {1, 2047}, {1, 2048}, {3, 6000}, {5, 12}};
  std::vector<Tokens> decode;  // 1 to 5000
  for (int past = 0; past < 5000; past = past * 4 / 3 + 1) decode.push_back({1, past});
  const Case cases[] = {
      {"one prompt", 4, 4, 128, 0, 0, false, {{1000, 0}}},
      {"a chunk", 8, 2, 128, 0, 0, true, {{333, 1234}}},
      {"one token", 8, 2, 128, 0, 0, false, {{1, 200}}},
      {"one token, splits", 8, 2, 128, 0, 0, false, {{1, 9000}}},
      {"decode", 8, 2, 128, 0, 0, false, decode},
      {"decode", 14, 2, 64, 0, 0, true, decode},
      {"decode", 8, 1, 64, 0, 30, false, decode},
      {"decode, window", 8, 4, 256, 300, 50, true, decode},
      {"mixed", 4, 4, 64, 0, 0, false, mixed},
      {"mixed", 8, 2, 64, 0, 0, true, mixed},
      {"mixed", 8, 1, 64, 0, 0, false, mixed},
      {"mixed", 4, 4, 128, 0, 0, false, mixed},
      {"mixed", 8, 2, 128, 0, 0, false, mixed},
      {"mixed", 14, 2, 128, 0, 0, true, mixed},
      {"mixed", 32, 2, 128, 0, 0, false, mixed},
      {"mixed, window", 8, 2, 128, 200, 0, false, mixed},
      {"mixed, narrow window", 4, 4, 128, 7, 0, false, mixed},
      {"mixed, window, cap", 8, 1, 128, 600, 30, true, mixed},
      {"mixed", 4, 4, 256, 0, 0, false, mixed},
      {"mixed, cap", 16, 2, 256, 0, 50, false, mixed},
      {"mixed, window, cap", 8, 4, 256, 300, 50, true, mixed},
      {"long prompts", 16, 4, 128, 0, 0, false, {{2048, 0}, {3001, 100}}},
  };
  for (const Case& c : cases) {
    check_case(c, format, format_name, sms, c.sequences[0].rows > 1000 ? 20 : 50);
  }
}

// Median seconds of a call; function(n) makes call n.
template <typename Function>
double time_calls(const Function& function, int calls) {
  cudaEvent_t start, stop;
  cudaEventCreate(&start), cudaEventCreate(&stop);
  std::vector<double> seconds;
  for (int i = 0; i < 12; ++i) {
    cudaEventRecord(start);
    for (int n = 0; n < calls; ++n) function(n);
    cudaEventRecord(stop);
    check(cudaDeviceSynchronize(), "attention");
    float ms = 0;
    cudaEventElapsedTime(&ms, start, stop);
    if (i > 1) seconds.push_back(ms * 1e-3 / calls);
  }
  cudaEventDestroy(start), cudaEventDestroy(stop);
  std::sort(seconds.begin(), seconds.end());
  return seconds[seconds.size() / 2];
}

// Random pages: up to 512 distinct ones, repeated.
void fill_pages(DeviceBuffer<uint8_t>& kv, KvFormat format, int head_dim) {
  const size_t bytes = page_bytes(format, head_dim), count = kv.size() / bytes;
  const size_t some = std::min<size_t>(count, 512);
  std::vector<uint8_t> host(some * bytes);
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  std::vector<float> v(head_dim);
  for (size_t i = 0; i < some; ++i) {
    for (int row = 0; row < 2 * kPageTokens; ++row) {
      for (float& x : v) x = normal(random);
      Page{format, head_dim, &host[i * bytes]}.put(row % 2, row / 2, v.data());
    }
  }
  kv.copy_from(host.data(), host.size());
  for (size_t done = some; done < count;) {  // doubling
    const size_t next = std::min(done, count - done);
    check(cudaMemcpy(kv.data() + done * bytes, kv.data(), next * bytes, cudaMemcpyDeviceToDevice),
          "copying");
    done += next;
  }
}

// `batch` sequences of `rows` tokens each, whose last token attends to `context` keys.
void time_case(KvFormat format, int heads, int kv_heads, int head_dim, int batch, int rows,
               int context, int sms, double rate) {
  const int page_count = (context + kPageTokens - 1) / kPageTokens, tokens = batch * rows;
  const size_t layer = size_t(batch) * page_count * kv_heads * page_bytes(format, head_dim);
  const int layers = rows > 1 ? 1 : int((size_t{1} << 30) / layer) + 1;
  const size_t columns = size_t(heads + 2 * kv_heads) * head_dim;
  DeviceBuffer<uint8_t> kv(layer * layers);
  DeviceBuffer<uint16_t> q(size_t(tokens) * heads * head_dim);
  DeviceBuffer<uint16_t> out(size_t(tokens + 7) / 8 * 8 * heads * head_dim);
  fill_pages(kv, format, head_dim);
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  std::vector<float> floats(tokens * columns), frequencies(head_dim / 2);
  for (float& x : floats) x = normal(random);
  for (int i = 0; i < head_dim / 2; ++i) {
    frequencies[i] = float(std::pow(500000.0, -2.0 * i / head_dim));
  }
  std::vector<int> numbers(size_t(batch) * page_count);
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = int(i);
  std::shuffle(numbers.begin(), numbers.end(), random);
  std::vector<AttentionSequence> sequences;
  std::vector<KvSlot> ats;
  for (int i = 0; i < batch; ++i) {
    sequences.push_back({i * rows, rows, context - rows, i * page_count});
    for (int r = 0; r < rows; ++r) {
      const int position = context - rows + r;
      ats.push_back({position, numbers[size_t(i) * page_count + position / kPageTokens],
                     position % kPageTokens});
    }
  }
  DeviceBuffer<float> qkv, frequency;
  DeviceBuffer<int> pages;
  DeviceBuffer<KvSlot> at;
  Step::upload(qkv, floats), Step::upload(frequency, frequencies);
  Step::upload(pages, numbers), Step::upload(at, ats);
  PlannedAttention planned(heads, kv_heads, head_dim, sms, format, 0,
                           PlannedAttention::bounds(sequences, int(numbers.size())));
  planned.plan(sequences, numbers);
  Attention& attention = planned.attention;
  const AttentionArgs args = {heads,
                              kv_heads,
                              head_dim,
                              1 / std::sqrt(float(head_dim)),
                              0,
                              0,
                              qkv.data(),
                              nullptr,
                              nullptr,
                              0,
                              frequency.data(),
                              1,
                              at.data(),
                              q.data(),
                              kv.data(),
                              pages.data(),
                              out.data(),
                              (tokens + 7) / 8 * 8};
  const char* name = kKvFormats[int(format)].second;
  std::printf("%-4s %3d x %5d of %5d tokens, %2d/%2d heads of %3d: ", name, batch, rows, context,
              heads, kv_heads, head_dim);
  if (rows > 1) {
    const double flops = 4.0 * batch * rows * (context - rows / 2.0) * heads * head_dim;
    const int calls = flops > 1e12 ? 4 : 16;
    const double rope = time_calls([&](int) { attention.rope_and_append(nullptr, args); }, calls);
    const double seconds = time_calls([&](int) { attention.launch(nullptr, args); }, calls);
    std::printf("%9.1f us  %6.1f TFLOP/s, RoPE and append %.1f us\n", seconds * 1e6,
                flops / seconds * 1e-12, rope * 1e6);
  } else {
    // Layers in turn, so that the cache is read from device memory.
    const auto launch = [&](int n) {
      AttentionArgs layer_args = args;
      layer_args.kv += n % layers * layer;
      attention.launch(nullptr, layer_args);
    };
    const double bytes = double(layer), seconds = time_calls(launch, bytes > 1e9 ? 4 : 32);
    std::printf("%9.1f us  %6.3f TB/s  %5.1f %% of %.3f\n", seconds * 1e6, bytes / seconds * 1e-12,
                100 * bytes / seconds / rate, rate * 1e-12);
  }
  std::fflush(stdout);
}

int run(int count, char** words) {
  const std::string what = count > 1 ? words[1] : "check";
  cudaDeviceProp properties;
  check(cudaGetDeviceProperties(&properties, 0), "reading the device properties");
  const int sms = properties.multiProcessorCount;
  const auto selected = [&](const std::string& word) {
    for (int i = 2; i < count; ++i) {
      if (word == words[i]) return true;
    }
    return false;
  };
  bool all = true;
  for (const auto& [format, name] : kKvFormats) all = all && !selected(name);
  if (what == "check") {
    for (const auto& [format, name] : kKvFormats) {
      if (all || selected(name)) check_all(sms, format, name);
    }
    return report_failures();
  }
  const double rate = read_ceiling(sms);
  std::printf("%s: ring read %.3f TB/s\n", properties.name, rate * 1e-12);
  for (const auto& [format, name] : kKvFormats) {
    if (!(all ? format == KvFormat::bf16 : selected(name))) continue;
    const auto time = [&, f = format](int heads, int kv_heads, int head_dim, int batch, int rows,
                                      int context) {
      time_case(f, heads, kv_heads, head_dim, batch, rows, context, sms, rate);
    };
    if (!selected("decode")) {
      for (const int length : {2048, 8192}) {
        time(32, 32, 128, 1, length, length);
        time(32, 8, 128, 1, length, length);
      }
      time(32, 8, 64, 1, 8192, 8192);
      time(16, 8, 256, 1, 8192, 8192);
      time(32, 8, 128, 4, 2048, 2048);
      time(32, 8, 128, 1, 512, 8192);
    }
    if (!selected("prefill")) {
      for (const int batch : {16, 32, 64, 128}) time(32, 8, 128, batch, 1, 1024);
      time(32, 8, 128, 64, 1, 8192);
      time(32, 8, 128, 4, 1, 32768);
      time(32, 32, 128, 64, 1, 1024);
      time(32, 8, 64, 64, 1, 1024);
      time(16, 8, 256, 64, 1, 1024);
      time(32, 2, 128, 64, 1, 4096);
      time(32, 8, 128, 17, 1, 1000);
    }
  }
  return 0;
}

}  // namespace
}  // namespace ridge::cuda

int main(int count, char** words) { return ridge::cuda::run_bench(ridge::cuda::run, count, words); }
