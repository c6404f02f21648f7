// The decode kernel alone: `check` compares it with doubles on the host, `time` measures steps
// beside the read ceiling of the same call (lines RESULT are for tools/gpu_table.py).
//   cuda_decode_bench check [all|tiny|one [FORMAT]]
//   cuda_decode_bench time MODEL FORMAT BATCH CONTEXT [MODEL FORMAT BATCH CONTEXT]...
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>

#include "bench/cuda_reference.h"
#include "engine/cuda/decoder.h"
#include "engine/cuda/device.cuh"
#include "engine/cuda/mma.cuh"
#include "engine/cuda/pack.cuh"
#include "engine/cuda/ring.cuh"

namespace ridge::cuda {
namespace {

DecoderShape shape_of(const std::string& name) {
  DecoderShape s;
  double theta = 500000;
  if (name == "llama-2-7b") {
    s.layers = 32, s.hidden = 4096, s.heads = 32, s.kv_heads = 32, s.head_dim = 128;
    s.ffn = 11008, s.vocab = 32000, theta = 10000;
  } else if (name == "llama-3-8b") {
    s.layers = 32, s.hidden = 4096, s.heads = 32, s.kv_heads = 8, s.head_dim = 128;
    s.ffn = 14336, s.vocab = 128256;
  } else if (name == "llama-3.2-1b") {
    s.layers = 16, s.hidden = 2048, s.heads = 32, s.kv_heads = 8, s.head_dim = 64;
    s.ffn = 8192, s.vocab = 128256;
  } else if (name == "tiny") {
    s.layers = 2, s.hidden = 512, s.heads = 8, s.kv_heads = 2, s.head_dim = 64;
    s.ffn = 1536, s.vocab = 1000;
  } else if (name == "tiny-wide") {  // multi-head, 128, norms and biases, a window
    s.layers = 2, s.hidden = 576, s.heads = 4, s.kv_heads = 4, s.head_dim = 128;
    s.ffn = 1040, s.vocab = 777, s.qk_norm = true, s.qkv_bias = true, s.window = {0, 40};
  } else if (name == "8b-layer") {
    s.layers = 1, s.hidden = 4096, s.heads = 32, s.kv_heads = 8, s.head_dim = 128;
    s.ffn = 14336, s.vocab = 2048;
  } else {
    std::fprintf(stderr, "no model %s\n", name.c_str());
    std::exit(2);
  }
  s.query_scale = 1 / std::sqrt(float(s.head_dim));
  s.ropes.resize(1);
  for (int i = 0; i < s.head_dim / 2; ++i) {
    s.ropes[0].frequency.push_back(float(std::pow(theta, -2.0 * i / s.head_dim)));
  }
  return s;
}

constexpr std::pair<WeightFormat, const char*> kFormats[] = {{WeightFormat::bf16, "bf16"},
                                                             {WeightFormat::fp8, "fp8"},
                                                             {WeightFormat::int8, "int8"},
                                                             {WeightFormat::int4, "int4"},
                                                             {WeightFormat::nf4, "nf4"}};
WeightFormat format_of(const std::string& name) {
  for (const auto& [format, its_name] : kFormats) {
    if (name == its_name) return format;
  }
  std::fprintf(stderr, "no format %s\n", name.c_str());
  std::exit(2);
}

// Pages of a sequence: not in order, as an allocator that has worked for a while gives them.
std::vector<int> pages_of(int sequence, int count) {
  std::vector<int> pages(count);
  for (int i = 0; i < count; ++i) pages[i] = sequence * count + (i * 7 + 3) % count;
  return pages;
}

int failures = 0;
void expect(bool right, const char* what, double value, double limit) {
  std::printf("  %-46s %10.3g (limit %.3g) %s\n", what, value, limit, right ? "ok" : "WRONG");
  if (!right) ++failures;
}

double relative(const float* found, const std::vector<double>& wanted) {
  double difference = 0, size = 0;
  for (size_t i = 0; i < wanted.size(); ++i) {
    const double e = found[i] - wanted[i];
    difference += e * e, size += wanted[i] * wanted[i];
  }
  const double value = std::sqrt(difference / size);
  return std::isfinite(value) ? value : 1e9;
}

struct Sequence {
  std::vector<int> prompt, pages;
  Reference::Past past;
  int cached = 0;
};

// unpack_chunk against pack.cu's plain code: row after row of a matrix of blocks.
template <WeightFormat kFormat>
__global__ void unpack_warp(const uint8_t* from, const float* row_scale, int chunks, float* to) {
  constexpr FormatInfo kInfo = format_info(kFormat);
  const int lane = threadIdx.x, chunk = blockIdx.x, block = blockIdx.y;
  const uint8_t* at = from + (size_t(block) * chunks + chunk) * kInfo.chunk_bytes;
  __half2 scale = {};
  if (has_group_scale(kFormat)) {
    scale = *reinterpret_cast<const __half2*>(at + 512 + lane / 4 * 4);
  }
  uint32_t a[kInfo.columns / 16][4];
  unpack_chunk<kFormat>(reinterpret_cast<const uint4*>(at)[lane], scale, a);
  for (int k = 0; k < kInfo.columns / 16; ++k) {
    for (int r = 0; r < 4; ++r) {
      const int row = block * kBlockRows + lane / 4 + r % 2 * 8;
      const int column = chunk * kInfo.columns + k * 16 + lane % 4 * 2 + r / 2 * 8;
      const float factor = has_row_scale(kFormat) ? row_scale[row] : 1;
      float* pair = to + size_t(row) * chunks * kInfo.columns + column;
      pair[0] = bf16_value(a[k][r] & 0xffff) * factor, pair[1] = bf16_value(a[k][r] >> 16) * factor;
    }
  }
}

template <WeightFormat kFormat>
void check_unpacking(const char* format_name) {
  const int rows = 64, columns = 1024, blocks = rows / kBlockRows;
  const FormatInfo info = format_info(kFormat);
  const int chunks = columns / info.columns;
  Buffer<uint16_t> source(rows * columns);
  fill_normal(nullptr, source.data(), source.size(), 5, 0.02f);
  Buffer<uint8_t> packed(size_t(blocks) * chunks * info.chunk_bytes);
  Buffer<float> scales(rows), plain(rows * columns), fragments(rows * columns);
  pack(nullptr, kFormat, source.data(), nullptr, rows, columns, packed.data(), scales.data(),
       chunks);
  unpack(nullptr, kFormat, packed.data(), scales.data(), blocks, chunks, plain.data());
  unpack_warp<kFormat>
      <<<dim3(chunks, blocks), 32>>>(packed.data(), scales.data(), chunks, fragments.data());
  check(cudaDeviceSynchronize(), "unpacking");
  const std::vector<float> wanted = plain.host(), found = fragments.host();
  double worst = 0, error = 0, size = 0;
  const std::vector<uint16_t> first = source.host();
  for (size_t i = 0; i < wanted.size(); ++i) {
    uint32_t bits = uint32_t{first[i]} << 16;
    float original;
    std::memcpy(&original, &bits, 4);
    const double off = std::abs(found[i] - wanted[i]);
    worst = std::max(worst, wanted[i] == 0 ? off * 1e9 : off / std::abs(wanted[i]));
    error += std::pow(wanted[i] - original, 2), size += double(original) * original;
  }
  std::printf("%s: quantising errs by %.3g of the weights' size\n", format_name,
              std::sqrt(error / size));
  // As unpack_chunk promises: scale, level and product are rounded to bf16.
  const double limit = kFormat == WeightFormat::nf4    ? 3.01 / 256
                       : kFormat == WeightFormat::int4 ? 2.01 / 256
                                                       : 1e-9;
  expect(worst <= limit, "unpack_chunk: worst relative error", worst, limit);
}

// Weights of the MLP's norm over 20 powers of two, and some far above, on a residual 1000 times as
// large: meant to leave f16's range, and to drown small activations if all shared a scale.
void add_outliers(Decoder& decoder, const DecoderShape& shape) {
  for (int layer = 0; layer < shape.layers; ++layer) {
    std::vector<float> weights = decoder.vector(Vectors::mlp_norm, layer);
    for (size_t i = 0; i < weights.size(); ++i) {
      weights[i] *= i % 97 == 5 ? 3e4f : std::exp2(float(i % 21) - 10);
    }
    decoder.load(Vectors::mlp_norm, layer, weights);
  }
}

// Prompts of several lengths in chunks of 16, then joint decoding; every logit against doubles.
// Each activation is rounded to bf16 (relative error up to 2^-9, about 2^-10.2 on average) before
// each of 4 products a layer and the head's; errors of the roundings add like a random walk.
void check_model(const std::string& name, WeightFormat format, const char* format_name,
                 std::vector<int> lengths, int steps, int repeats, bool outliers = false) {
  std::printf("%s %s, %zu sequences%s\n", name.c_str(), format_name, lengths.size(),
              outliers ? ", outliers" : "");
  DecoderShape shape = shape_of(name);
  if (outliers) shape.embed_scale = 1000;
  const int page_count = 40;
  const auto decoder = Decoder::make(shape, format, page_count * int(lengths.size()));
  decoder->randomize(7, 0.1f);
  if (outliers) add_outliers(*decoder, shape);
  const Reference reference(*decoder, shape);
  const double limit = 4 * std::sqrt(4.0 * shape.layers + 5) / 1024;
  std::vector<Sequence> all(lengths.size());
  std::vector<std::vector<double>> wanted(all.size());
  double worst = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    Sequence& s = all[i];
    s.pages = pages_of(int(i), page_count);
    for (int t = 0; t < lengths[i]; ++t) s.prompt.push_back((t * 37 + int(i) * 101) % shape.vocab);
    for (int at = 0; at < lengths[i]; at += 16) {
      const int count = std::min(16, lengths[i] - at);
      std::vector<DecodeRow> rows;
      for (int r = 0; r < count; ++r) {
        rows.push_back({s.prompt[at + r], at, 0, s.pages.data(), page_count});
      }
      decoder->run(rows, 1);
      const std::vector<float> logits = decoder->logits();
      for (int r = 0; r < count; ++r) {
        wanted[i] = reference.step(s.past, s.prompt[at + r]);
        worst = std::max(worst, relative(&logits[size_t(r) * shape.vocab], wanted[i]));
      }
    }
    s.cached = lengths[i];
  }
  expect(worst < limit, "prompts: worst relative error of logits", worst, limit);
  if (repeats == 0) return;

  // The same next tokens for both, whatever each finds likeliest.
  worst = 0;
  const auto rows_at = [&](int step) {
    std::vector<DecodeRow> rows;
    for (size_t i = 0; i < all.size(); ++i) {
      rows.push_back({int((i * 13 + size_t(step) * 29) % size_t(shape.vocab)), all[i].cached,
                      int(i), all[i].pages.data(), page_count});
    }
    return rows;
  };
  for (int step = 0; step < steps; ++step) {
    const auto rows = rows_at(step);
    decoder->run(rows, 1);
    const std::vector<float> logits = decoder->logits();
    for (size_t i = 0; i < all.size(); ++i) {
      worst = std::max(
          worst, relative(&logits[i * shape.vocab], reference.step(all[i].past, rows[i].token)));
      ++all[i].cached;
    }
  }
  expect(worst < limit, "decoding: worst relative error of logits", worst, limit);

  // Several steps in one launch are the same steps, bit for bit; each row alone is the same too.
  const auto rows = rows_at(steps);
  constexpr int kSteps = 5;
  decoder->run(rows, kSteps);
  const std::vector<int> tokens = decoder->chosen();
  const std::vector<float> together = decoder->logits();
  std::vector<DecodeRow> next = rows;
  bool same = true;
  for (int step = 0; step < kSteps; ++step) {
    decoder->run(next, 1);
    const std::vector<float> logits = decoder->logits();
    for (size_t i = 0; i < next.size(); ++i) {
      const float* from = &logits[i * shape.vocab];
      const int likeliest = int(std::max_element(from, from + shape.vocab) - from);
      same = same && likeliest == tokens[step * next.size() + i];
      next[i].token = likeliest, ++next[i].past;
    }
    if (step == kSteps - 1) same = same && logits == together;
  }
  expect(same, "5 steps in a launch equal 5 launches", !same, 0.5);
  decoder->run(rows, 1);
  const std::vector<float> batch = decoder->logits();
  double apart = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    DecodeRow row = rows[i];
    row.first = 0;
    decoder->run({row}, 1);
    const std::vector<float> alone = decoder->logits();
    for (int v = 0; v < shape.vocab; ++v) {
      apart = std::max(apart, std::fabs(double(alone[v]) - batch[i * shape.vocab + v]));
    }
  }
  expect(apart == 0, "alone against in the batch, largest difference", apart, 0);
  int moved = 0;
  for (int repeat = 0; repeat < repeats; ++repeat) {
    decoder->run(rows, 1);
    if (repeat % 100 == 0 || repeat > repeats - 10) moved += decoder->logits() != batch;
  }
  decoder->run(rows, 1);
  moved += decoder->logits() != batch;
  expect(moved == 0, "repeats, moved", moved, 0.5);
}

// The read ceiling: a ring of bulk copies a SM and nothing but sums, as `ridge measure` has it.
constexpr int kReadSlots = 6, kReadBytes = 32768, kReaders = 8;

__global__ void __launch_bounds__((kReaders + 1) * 32, 1)
    read_ring(const uint8_t* data, size_t chunks, uint32_t* checksum) {
#ifdef RIDGE_HOPPER
  extern __shared__ __align__(128) uint8_t ring[];
  __shared__ uint64_t full[kReadSlots], empty[kReadSlots];
  if (threadIdx.x == 0) {
    for (int s = 0; s < kReadSlots; ++s) init(&full[s], 1), init(&empty[s], kReaders);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  Place place;
  if (threadIdx.x >= kReaders * 32) {
    if (threadIdx.x > kReaders * 32) return;
    for (size_t i = blockIdx.x; i < chunks; i += gridDim.x, place.advance(kReadSlots)) {
      wait(&empty[place.slot], place.parity ^ 1);
      arrive_expecting(&full[place.slot], kReadBytes);
      fetch(ring + place.slot * kReadBytes, data + i * kReadBytes, kReadBytes, &full[place.slot]);
    }
    return;
  }
  uint32_t sum = 0;
  for (size_t i = blockIdx.x; i < chunks; i += gridDim.x, place.advance(kReadSlots)) {
    wait(&full[place.slot], place.parity);
    const uint4* words = reinterpret_cast<const uint4*>(ring + place.slot * kReadBytes);
#pragma unroll
    for (int at = 0; at < kReadBytes / 16 / (kReaders * 32); ++at) {
      const uint4 v = words[threadIdx.x + at * kReaders * 32];
      sum += v.x + v.y + v.z + v.w;
    }
    __syncwarp();
    if (threadIdx.x % 32 == 0) arrive(&empty[place.slot]);
  }
  sum = __reduce_add_sync(0xffffffffu, sum);
  if (threadIdx.x % 32 == 0) atomicAdd(checksum, sum);
#endif
}

double ceiling(int sms) {
  constexpr size_t kBytes = size_t{8} << 30;
  Buffer<uint8_t> data(kBytes);
  Buffer<uint32_t> sum(1);
  fill_normal(nullptr, reinterpret_cast<uint16_t*>(data.data()), kBytes / 2, 1, 0.02f);
  check(cudaFuncSetAttribute(reinterpret_cast<const void*>(read_ring),
                             cudaFuncAttributeMaxDynamicSharedMemorySize, kReadSlots * kReadBytes),
        "asking for shared memory");
  cudaEvent_t start, stop;
  cudaEventCreate(&start), cudaEventCreate(&stop);
  std::vector<double> rates;
  for (int i = 0; i < 9; ++i) {
    cudaEventRecord(start);
    for (int launch = 0; launch < 3; ++launch) {
      read_ring<<<sms, (kReaders + 1) * 32, kReadSlots * kReadBytes>>>(
          data.data(), kBytes / kReadBytes, sum.data());
    }
    cudaEventRecord(stop);
    check(cudaDeviceSynchronize(), "reading");
    float ms = 0;
    cudaEventElapsedTime(&ms, start, stop);
    rates.push_back(3.0 * double(kBytes) / ms * 1e3);
  }
  std::sort(rates.begin(), rates.end());
  return rates[rates.size() / 2];
}

void print_stamps(const Decoder& decoder, const std::vector<long long>& stamps, int layers,
                  int steps, double seconds) {
  const int ops = 2 + 5 * layers;
  const double clocks = double(stamps[(size_t(ops) * steps - 1) * 4 + 3] - stamps[3]);
  const double us = seconds * 1e6 * (double(ops) * steps - 1) / (double(ops) * steps) / clocks;
  const char* names[] = {"embed", "qkv", "attention", "out", "gate_up", "down", "head"};
  double wait[7] = {}, work[7] = {}, finish[7] = {}, meet[7] = {};
  int count[7] = {};
  for (int i = 1; i < ops * steps; ++i) {
    const int o = i % ops, kind = o == 0 ? 0 : o == ops - 1 ? 6 : (o - 1) % 5 + 1;
    const long long* at = &stamps[size_t(i) * 4];
    const bool idle = at[0] < at[-1];  // SM 0 had nothing to do there
    ++count[kind];
    if (kind == 0 || idle) {
      finish[kind] += double(at[2] - at[-1]) * us;
    } else {
      wait[kind] += double(at[0] - at[-1]) * us;
      work[kind] += double(at[1] - at[0]) * us;
      finish[kind] += double(at[2] - at[1]) * us;
    }
    meet[kind] += double(at[3] - at[2]) * us;
  }
  std::printf(
      "    SM 0, us each     activations  product   finish     meet    total   us/step   (%.0f "
      "MHz)\n",
      1 / us);
  for (int k = 0; k < 7; ++k) {
    const double n = count[k], all = wait[k] + work[k] + finish[k] + meet[k];
    std::printf("    %-16s %12.2f %8.2f %8.2f %8.2f %8.2f %9.1f\n", names[k], wait[k] / n,
                work[k] / n, finish[k] / n, meet[k] / n, all / n, all / steps);
  }
  (void)decoder;
}

void time_model(const std::string& name, const std::string& format, int batch, int context,
                double rate, Decoder& decoder) {
  const DecoderShape shape = shape_of(name);
  const int steps = 16, page_count = (context + steps) / 16 + 1;
  std::vector<std::vector<int>> pages;
  std::vector<DecodeRow> rows;
  for (int i = 0; i < batch; ++i) pages.push_back(pages_of(i, page_count));
  for (int i = 0; i < batch; ++i) {
    rows.push_back({i * 11 + 1, context - steps / 2, i, pages[i].data(), page_count});
  }
  std::vector<double> seconds = decoder.time(rows, steps, 12);
  std::sort(seconds.begin(), seconds.end());
  const double step = seconds[seconds.size() / 2] / steps;
  std::vector<double> single = decoder.time(rows, 1, 21);
  std::sort(single.begin(), single.end());
  const double bytes =
      decoder.weight_bytes() + decoder.cache_bytes_per_token() * batch * (context + 8);
  std::printf(
      "%-13s %-5s batch %2d context %6d: %7.3f ms (min %.3f, one a launch %.3f)  %5.2f TB/s"
      "  %5.1f %% of %.2f  %7.1f tok/s\n",
      name.c_str(), format.c_str(), batch, context, step * 1e3, seconds[0] / steps * 1e3,
      single[single.size() / 2] * 1e3, bytes / step * 1e-12, 100 * bytes / step / rate,
      rate * 1e-12, batch / step);
  std::printf("RESULT decode/%s/%s/%d/%d %.4f ms %.4f\n", name.c_str(), format.c_str(), batch,
              context, step * 1e3, bytes / step / rate);
  decoder.keep_stamps(true);
  decoder.run(rows, steps);
  const std::vector<long long> stamps = decoder.stamps();
  decoder.keep_stamps(false);
  print_stamps(decoder, stamps, shape.layers, steps, step * steps);
  std::fflush(stdout);
}

int run(int count, char** words) {
  const std::string what = count > 1 ? words[1] : "check";
  if (what == "check") {
    const std::string how = count > 2 ? words[2] : "all";  // tiny, one: under sanitizers
    check_unpacking<WeightFormat::bf16>("bf16");
    check_unpacking<WeightFormat::fp8>("fp8");
    check_unpacking<WeightFormat::int8>("int8");
    check_unpacking<WeightFormat::int4>("int4");
    check_unpacking<WeightFormat::nf4>("nf4");
    const std::string only = count > 3 ? words[3] : "";  // one format
    for (const auto& [format, format_name] : kFormats) {
      if (!only.empty() && only != format_name) continue;
      if (how != "all") {
        if (how == "one") return check_model("tiny", format, format_name, {5}, 0, 0), failures != 0;
        check_model("tiny", format, format_name, {37}, 3, how == "tiny" ? 3 : 1000);
        if (how == "tiny") break;
        check_model("tiny-wide", format, format_name, {1, 17, 33, 40, 64, 300, 7}, 5, 1000);
        continue;
      }
      check_model("tiny", format, format_name, {37}, 12, 1000);
      check_model("tiny", format, format_name, {37, 8}, 12, 10, true);
      check_model("tiny", format, format_name, {5, 300, 16}, 10, 1000);
      check_model("tiny-wide", format, format_name, {150}, 10, 1000);
      check_model("tiny-wide", format, format_name, {1, 17, 33, 40, 64, 129, 7}, 5, 1000);
      check_model("tiny", format, format_name, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, 5, 1000);
      check_model("8b-layer", format, format_name, {17, 3}, 1, 100);
    }
    std::printf("%d wrong\n", failures);
    return failures != 0;
  }
  cudaDeviceProp properties;
  check(cudaGetDeviceProperties(&properties, 0), "asking for the device");
  const double rate = ceiling(properties.multiProcessorCount);
  std::printf("%s: ring read %.3f TB/s\n", properties.name, rate * 1e-12);
  std::printf("RESULT ceiling/read %.4f TB/s -\n", rate * 1e-12);
  std::unique_ptr<Decoder> decoder;
  std::string loaded;
  for (int i = 2; i + 3 < count; i += 4) {
    const std::string key = std::string(words[i]) + words[i + 1];
    if (key != loaded) {
      decoder.reset();
      decoder = Decoder::make(shape_of(words[i]), format_of(words[i + 1]), 2200 + 1100);
      decoder->randomize(1, 0);
      decoder->randomize_cache(3);
      loaded = key;
    }
    time_model(words[i], words[i + 1], std::atoi(words[i + 2]), std::atoi(words[i + 3]), rate,
               *decoder);
  }
  std::printf("ring read again %.3f TB/s\n", ceiling(properties.multiProcessorCount) * 1e-12);
  return 0;
}

}  // namespace
}  // namespace ridge::cuda

int main(int count, char** words) {
  try {
    return ridge::cuda::run(count, words);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
