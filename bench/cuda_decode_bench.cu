// The decode kernel alone: `check` compares it with doubles on the host, `time` measures steps
// beside the read ceiling of the same call (lines RESULT are for tools/gpu_table.py).
//   cuda_decode_bench check [all|tiny|one [FORMAT [KV]]]
//   cuda_decode_bench time MODEL FORMAT BATCH CONTEXT [MODEL FORMAT BATCH CONTEXT]...
// A FORMAT to time may name the cache's: bf16-fp8.
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>

#include "bench/cuda_ceiling.cuh"
#include "bench/cuda_models.h"
#include "bench/cuda_reference.h"
#include "engine/cuda/device.cuh"
#include "engine/cuda/device_model.h"
#include "engine/cuda/layout/dequantize.cuh"
#include "engine/cuda/layout/pack.cuh"
#include "engine/cuda/ptx/pipeline.cuh"

namespace ridge::cuda {
namespace {

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

// dequantize_chunk against pack.cu's plain code: row after row of a matrix of blocks.
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
  dequantize_chunk<kFormat>(reinterpret_cast<const uint4*>(at)[lane], scale, a);
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
  DeviceBuffer<uint16_t> source(rows * columns);
  fill_normal(nullptr, source.data(), source.size(), 5, 0.02f);
  DeviceBuffer<uint8_t> packed(size_t(blocks) * chunks * info.chunk_bytes);
  DeviceBuffer<float> scales(rows), plain(rows * columns), fragments(rows * columns);
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
  // As dequantize_chunk promises: scale, level and product are rounded to bf16.
  const double limit = kFormat == WeightFormat::nf4    ? 3.01 / 256
                       : kFormat == WeightFormat::int4 ? 2.01 / 256
                                                       : 1e-9;
  expect(worst <= limit, "dequantize_chunk: worst relative error", worst, limit);
}

// Weights of the MLP's norm over 20 powers of two, and some far above, on a residual 1000 times as
// large: meant to leave f16's range, and to drown small activations if all shared a scale.
void add_outliers(DeviceModel& model, const ModelShape& shape) {
  for (int layer = 0; layer < shape.layers; ++layer) {
    std::vector<float> weights = model.vector(VectorKind::mlp_norm, layer);
    for (size_t i = 0; i < weights.size(); ++i) {
      weights[i] *= i % 97 == 5 ? 3e4f : std::exp2(float(i % 21) - 10);
    }
    model.load(VectorKind::mlp_norm, layer, weights);
  }
}

// Takes the device's cached numbers in place of the reference's, as rounding a number that is off
// by a little may make it off by a whole step; `off`: how far beyond half a step they are at most,
// in deviations of a head's numbers.
struct CacheCheck {
  DeviceModel& model;
  const ModelShape& shape;
  KvFormat format;
  double off = 0;

  Reference::Replace of(const std::vector<int>& pages, int position) {
    if (!kv_bytes(format)) return {};
    return [this, page = pages[position / 16], token = position % 16](int layer, double* keys,
                                                                      double* values) {
      const std::vector<float> cached = model.cached(layer, page);
      const int d = shape.head_dim;
      for (int side = 0; side < 2 * shape.kv_heads; ++side) {
        head(side % 2 ? values + side / 2 * d : keys + side / 2 * d,
             &cached[(size_t(side) * 16 + token) * d]);
      }
    };
  }
  void head(double* own, const float* cached) {
    double most = 0, squares = 0;
    for (int i = 0; i < shape.head_dim; ++i) {
      most = std::max(most, std::abs(own[i])), squares += own[i] * own[i];
    }
    const double deviation = std::sqrt(squares / shape.head_dim);
    for (int i = 0; i < shape.head_dim; ++i) {
      // E4M3 has 3 bits after the first, down to 2^-9 of 1.
      const double half = format == KvFormat::int8
                              ? most / 127 / 2
                              : std::max(std::abs(own[i]) / 16, most / 448 / 1024);
      const double beyond = (std::abs(own[i] - cached[i]) - half) / deviation;
      off = std::max(off, std::isfinite(beyond) ? beyond : 1e9);
      own[i] = cached[i];
    }
  }
};

// Prompts of several lengths in chunks of 8, then joint decoding; every logit against doubles.
// Each activation is rounded to bf16 (relative error up to 2^-9, about 2^-10.2 on average) before
// each of 4 products a layer and the head's; errors of the roundings add like a random walk.
void check_model(const std::string& name, WeightFormat format, KvFormat kv, const std::string& as,
                 std::vector<int> lengths, int steps, int repeats, bool outliers = false) {
  std::printf("%s %s, %zu sequences%s\n", name.c_str(), as.c_str(), lengths.size(),
              outliers ? ", outliers" : "");
  ModelShape shape = shape_of(name);
  if (outliers) shape.embed_scale = 1000;
  const int page_count = 40;
  const auto model = DeviceModel::make(shape, format, kv, page_count * int(lengths.size()));
  model->randomize(7, 0.1f);
  if (outliers) add_outliers(*model, shape);
  const Reference reference(*model, shape);
  CacheCheck cache{*model, shape, kv};
  const double limit = 4 * std::sqrt(4.0 * shape.layers + 5) / 1024;
  std::vector<Sequence> all(lengths.size());
  std::vector<std::vector<double>> wanted(all.size());
  double worst = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    Sequence& s = all[i];
    s.pages = pages_of(int(i), page_count);
    for (int t = 0; t < lengths[i]; ++t) s.prompt.push_back((t * 37 + int(i) * 101) % shape.vocab);
    for (int at = 0; at < lengths[i]; at += 8) {
      const int count = std::min(8, lengths[i] - at);
      std::vector<DecodeRow> rows;
      for (int r = 0; r < count; ++r) {
        rows.push_back({s.prompt[at + r], at, 0, s.pages.data(), page_count});
      }
      model->decode(rows, 1);
      const std::vector<float> logits = model->logits();
      for (int r = 0; r < count; ++r) {
        wanted[i] = reference.step(s.past, s.prompt[at + r], cache.of(s.pages, at + r));
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
    model->decode(rows, 1);
    const std::vector<float> logits = model->logits();
    for (size_t i = 0; i < all.size(); ++i) {
      const std::vector<double> next =
          reference.step(all[i].past, rows[i].token, cache.of(all[i].pages, all[i].cached));
      worst = std::max(worst, relative(&logits[i * shape.vocab], next));
      ++all[i].cached;
    }
  }
  expect(worst < limit, "decoding: worst relative error of logits", worst, limit);
  // The largest of a head's numbers is some deviations off.
  expect(cache.off < 4 * limit, "cached beyond half a step, deviations", cache.off, 4 * limit);

  // Several steps in one launch are the same steps, bit for bit; each row alone is the same too.
  const auto rows = rows_at(steps);
  constexpr int kSteps = 5;
  model->decode(rows, kSteps);
  const std::vector<int> tokens = model->argmax_of_steps();
  const std::vector<float> together = model->logits();
  std::vector<DecodeRow> next = rows;
  bool same = true;
  for (int step = 0; step < kSteps; ++step) {
    model->decode(next, 1);
    const std::vector<float> logits = model->logits();
    for (size_t i = 0; i < next.size(); ++i) {
      const float* from = &logits[i * shape.vocab];
      const int likeliest = int(std::max_element(from, from + shape.vocab) - from);
      same = same && likeliest == tokens[step * next.size() + i];
      next[i].token = likeliest, ++next[i].past;
    }
    if (step == kSteps - 1) same = same && logits == together;
  }
  expect(same, "5 steps in a launch equal 5 launches", !same, 0.5);
  model->decode(rows, 1);
  const std::vector<float> batch = model->logits();
  double apart = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    DecodeRow row = rows[i];
    row.first = 0;
    model->decode({row}, 1);
    const std::vector<float> alone = model->logits();
    for (int v = 0; v < shape.vocab; ++v) {
      apart = std::max(apart, std::fabs(double(alone[v]) - batch[i * shape.vocab + v]));
    }
  }
  expect(apart == 0, "alone against in the batch, largest difference", apart, 0);
  int moved = 0;
  for (int repeat = 0; repeat < repeats; ++repeat) {
    model->decode(rows, 1);
    if (repeat % 100 == 0 || repeat > repeats - 10) moved += model->logits() != batch;
  }
  model->decode(rows, 1);
  moved += model->logits() != batch;
  expect(moved == 0, "repeats, moved", moved, 0.5);
}

void print_stamps(const std::vector<long long>& stamps, int layers, int steps, double seconds) {
  const int ops = 2 + 5 * layers;
  const double clocks = double(stamps[size_t(ops) * steps * 3 - 1] - stamps[2]);
  const double us = seconds * 1e6 * (double(ops) * steps - 1) / (double(ops) * steps) / clocks;
  const char* names[] = {"embed", "qkv", "attention", "out", "gate_up", "down", "head"};
  // From SM 0's last results of the operator before to its last of this one.
  double wait[7] = {}, work[7] = {}, finish[7] = {};
  int count[7] = {};
  for (int i = 1; i < ops * steps; ++i) {
    const int o = i % ops, kind = o == 0 ? 0 : o == ops - 1 ? 6 : (o - 1) % 5 + 1;
    const long long* at = &stamps[size_t(i) * 3];
    const long long before = at[-1];
    const bool idle = at[0] < before;  // SM 0 had nothing to do there
    ++count[kind];
    if (kind == 0 || idle) {
      finish[kind] += double(at[2] - before) * us;
    } else {
      wait[kind] += double(at[0] - before) * us;
      work[kind] += double(at[1] - at[0]) * us;
      finish[kind] += double(at[2] - at[1]) * us;
    }
  }
  std::printf(
      "    SM 0, us each     activations  product   finish    total   us/step   (%.0f "
      "MHz)\n",
      1 / us);
  for (int k = 0; k < 7; ++k) {
    const double n = count[k], all = wait[k] + work[k] + finish[k];
    std::printf("    %-16s %12.2f %8.2f %8.2f %8.2f %9.1f\n", names[k], wait[k] / n, work[k] / n,
                finish[k] / n, all / n, all / steps);
  }
}

void time_model(const std::string& name, const std::string& format, int batch, int context,
                double rate, DeviceModel& model) {
  const ModelShape shape = shape_of(name);
  const int steps = 16, page_count = (context + steps) / 16 + 1;
  std::vector<std::vector<int>> pages;
  std::vector<DecodeRow> rows;
  for (int i = 0; i < batch; ++i) pages.push_back(pages_of(i, page_count));
  for (int i = 0; i < batch; ++i) {
    rows.push_back({i * 11 + 1, context - steps / 2, i, pages[i].data(), page_count});
  }
  std::vector<double> seconds = model.time_decode(rows, steps, 12);
  std::sort(seconds.begin(), seconds.end());
  const double step = seconds[seconds.size() / 2] / steps;
  std::vector<double> single = model.time_decode(rows, 1, 21);
  std::sort(single.begin(), single.end());
  const double bytes = model.weight_bytes() + model.cache_bytes_per_token() * batch * (context + 8);
  std::printf(
      "%-13s %-9s batch %2d context %6d: %7.3f ms (min %.3f, one a launch %.3f)  %5.2f TB/s"
      "  %5.1f %% of %.2f  %7.1f tok/s\n",
      name.c_str(), format.c_str(), batch, context, step * 1e3, seconds[0] / steps * 1e3,
      single[single.size() / 2] * 1e3, bytes / step * 1e-12, 100 * bytes / step / rate,
      rate * 1e-12, batch / step);
  std::printf("RESULT decode/%s/%s/%d/%d %.4f ms %.4f\n", name.c_str(), format.c_str(), batch,
              context, step * 1e3, bytes / step / rate);
  model.keep_times(true);
  model.decode(rows, steps);
  const std::vector<long long> stamps = model.timestamps();
  model.keep_times(false);
  print_stamps(stamps, shape.layers, steps, step * steps);
  std::fflush(stdout);
}

void check_formats(const std::string& how, WeightFormat format, KvFormat kv,
                   const std::string& as) {
  const auto run = [&](const char* model, std::vector<int> lengths, int steps, int repeats,
                       bool outliers = false) {
    check_model(model, format, kv, as, std::move(lengths), steps, repeats, outliers);
  };
  if (how == "one") return run("tiny", {5}, 0, 0);
  if (how == "tiny") return run("tiny", {37}, 3, 3);
  run("tiny", {37}, 12, 1000);
  run("tiny", {37, 8}, 12, 10, true);
  run("tiny", {5, 300, 16}, 10, 1000);
  run("tiny-wide", {150}, 10, 1000);
  run("tiny-wide", {1, 17, 33, 40, 64, 129, 7}, 5, 1000);
  run("tiny", {1, 2, 3, 4, 5, 6, 7, 8}, 5, 1000);
  run("8b-layer", {17, 3}, 1, 100);
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
    const std::string only = count > 3 ? words[3] : "", only_kv = count > 4 ? words[4] : "";
    for (const auto& [format, format_name] : kFormats) {
      if (!only.empty() && only != format_name) continue;
      for (const auto& [kv, kv_name] : kKvFormats) {
        if (!only_kv.empty() && only_kv != kv_name) continue;
        check_formats(how, format, kv, std::string(format_name) + "-" + kv_name);
        if (how == "tiny" || how == "one") return failures != 0;
      }
    }
    return report_failures();
  }
  cudaDeviceProp properties;
  check(cudaGetDeviceProperties(&properties, 0), "asking for the device");
  const double rate = read_ceiling(properties.multiProcessorCount);
  std::printf("%s: ring read %.3f TB/s\n", properties.name, rate * 1e-12);
  std::printf("RESULT ceiling/read %.4f TB/s -\n", rate * 1e-12);
  std::unique_ptr<DeviceModel> model;
  std::string loaded;
  for (int i = 2; i + 3 < count; i += 4) {
    const std::string key = std::string(words[i]) + words[i + 1];
    if (key != loaded) {
      model.reset();
      const std::string as = words[i + 1];
      const size_t dash = as.find('-');
      const KvFormat kv =
          dash == std::string::npos ? KvFormat::bf16 : kv_format_of(as.substr(dash + 1));
      model = DeviceModel::make(shape_of(words[i]), format_of(as.substr(0, dash)), kv, 2200 + 1100);
      model->randomize(1, 0);
      model->randomize_cache(3);
      loaded = key;
    }
    time_model(words[i], words[i + 1], std::atoi(words[i + 2]), std::atoi(words[i + 3]), rate,
               *model);
  }
  std::printf("ring read again %.3f TB/s\n", read_ceiling(properties.multiProcessorCount) * 1e-12);
  return 0;
}

}  // namespace
}  // namespace ridge::cuda

int main(int count, char** words) { return ridge::cuda::run_bench(ridge::cuda::run, count, words); }
