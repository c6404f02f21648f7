// The decode kernel alone. `check` compares it with double precision on the host. `time` measures
// steps beside the read ceiling of the same call (tools/gpu_table.py reads the RESULT lines).
//   cuda_decode_bench check [all|tiny|one|MODEL [FORMAT [KV]]]
//   cuda_decode_bench time MODEL FORMAT BATCH CONTEXT [MODEL FORMAT BATCH CONTEXT]...
// A FORMAT to time may name the KV cache's format too: bf16-fp8.
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <string>

#include "bench/cuda_ceiling.cuh"
#include "bench/cuda_models.h"
#include "bench/cuda_reference.h"
#include "engine/cuda/decode/decode.cuh"
#include "engine/cuda/device/device.cuh"
#include "engine/cuda/device/pipeline.cuh"
#include "engine/cuda/host/device_model.h"
#include "engine/cuda/layout/dequantize.cuh"
#include "engine/cuda/layout/pack.cuh"
#include "engine/cuda/step/step_path.cuh"

namespace ridge::cuda {
namespace {

// Relative error in the L2 norm; not finite counts as huge.
double relative_error(const float* found, const std::vector<double>& wanted) {
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

// Dequantizes as the kernels do, one warp per chunk, into a row-major matrix.
template <WeightFormat kFormat>
__global__ void dequantize_kernel(const uint8_t* from, const float* row_scale, int chunks,
                                  float* to) {
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

// dequantize_chunk against the straightforward code of pack.cu.
template <WeightFormat kFormat>
void check_dequantization(const char* format_name) {
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
  dequantize_kernel<kFormat>
      <<<dim3(chunks, blocks), 32>>>(packed.data(), scales.data(), chunks, fragments.data());
  check(cudaDeviceSynchronize(), "dequantizing");
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
  std::printf("%s: relative quantization error %.3g\n", format_name, std::sqrt(error / size));
  // dequantize_chunk rounds scale, level and product to bf16.
  const double limit = kFormat == WeightFormat::nf4    ? 3.01 / 256
                       : kFormat == WeightFormat::int4 ? 2.01 / 256
                                                       : 1e-9;
  expect(worst <= limit, "dequantize_chunk: worst relative error", worst, limit);
}

// Numbers that were MXFP4 before keep their values, whatever the scales of their groups were.
void check_released_mxfp4() {
  constexpr int kRows = 32, kColumns = 256, kChunks = kColumns / 64;
  constexpr float kLevels[8] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
  std::vector<float> wanted;
  std::vector<uint16_t> bits;
  for (int i = 0; i < kRows * kColumns; ++i) {
    // Groups of 32 with scales from 2^-126 to 2^1; some have small numbers alone.
    const int group = i / 32, scale = group % 128 - 126, levels = 1 + group % 8;
    const float size = std::ldexp(kLevels[i * 7 % levels], scale);
    wanted.push_back(i % 3 == 1 ? -size : size);
    uint32_t word;
    std::memcpy(&word, &wanted.back(), 4);
    bits.push_back(uint16_t(word >> 16));
  }
  DeviceBuffer<uint16_t> source(bits.size());
  source.copy_from(bits.data(), bits.size());
  DeviceBuffer<uint8_t> packed(size_t(kRows / kBlockRows) * kChunks *
                               format_info(WeightFormat::mxfp4).chunk_bytes);
  DeviceBuffer<float> found(wanted.size());
  pack(nullptr, WeightFormat::mxfp4, source.data(), nullptr, kRows, kColumns, packed.data(),
       nullptr, kChunks);
  const dim3 grid(kChunks, kRows / kBlockRows);
  dequantize_kernel<WeightFormat::mxfp4>
      <<<grid, 32>>>(packed.data(), nullptr, kChunks, found.data());
  check(cudaDeviceSynchronize(), "dequantizing");
  int changed = 0;
  const std::vector<float> values = found.host();
  for (size_t i = 0; i < wanted.size(); ++i) changed += values[i] != wanted[i];
  expect(changed == 0, "MXFP4 as released: numbers changed", changed, 0);
}

// Weights of the MLP's norm over 20 powers of two, some far larger, on a residual 1000 times as
// large. Activations leave the range of f16, and small ones would vanish if a row shared one scale.
void add_outliers(DeviceModel& model, const ModelShape& shape) {
  for (int layer = 0; layer < shape.layers; ++layer) {
    std::vector<float> weights = model.vector(VectorKind::mlp_norm, layer);
    for (size_t i = 0; i < weights.size(); ++i) {
      weights[i] *= i % 97 == 5 ? 3e4f : std::exp2(float(i % 21) - 10);
    }
    model.load(VectorKind::mlp_norm, layer, weights);
  }
}

// Replaces the reference's keys and values by those that the device cached: a small difference
// before quantization may become a whole quantization step. `off` is the largest difference beyond
// half a step, in standard deviations of the head's elements.
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
      // Half a step of E4M3: 3 mantissa bits, and 2^-9 for subnormal numbers.
      const double half = format == KvFormat::int8
                              ? most / 127 / 2
                              : std::max(std::abs(own[i]) / 16, most / 448 / 1024);
      const double beyond = (std::abs(own[i] - cached[i]) - half) / deviation;
      off = std::max(off, std::isfinite(beyond) ? beyond : 1e9);
      own[i] = cached[i];
    }
  }
};

// Compares the kernel with double precision on the dequantized weights, and with itself.
//
// Tolerance of the logits: activations are rounded to bf16 (relative error up to 2^-9, about
// 2^-10.2 on average) before each of 4 GEMMs per layer and the head, and rounding errors add like a
// random walk.
class ModelCheck {
 public:
  ModelCheck(const ModelShape& shape, WeightFormat format, KvFormat kv, std::vector<int> lengths,
             bool outliers)
      : shape_(shape),
        format_(format),
        model_(DeviceModel::make(shape, format, kv, kPages * int(lengths.size()))),
        sequences_(lengths.size()),
        // Experts may be tied: cuda_forward_bench compares those with doubles.
        limit_(shape.experts > 0 ? INFINITY : 4 * std::sqrt(4.0 * shape.layers + 5) / 1024) {
    model_->randomize(7, 0.1f);
    if (outliers) add_outliers(*model_, shape);
    reference_ = std::make_unique<Reference>(*model_, shape_);
    cache_ = std::make_unique<CacheCheck>(CacheCheck{*model_, shape_, kv});
    for (size_t i = 0; i < sequences_.size(); ++i) {
      sequences_[i].pages = pages_of(int(i), kPages);
      for (int t = 0; t < lengths[i]; ++t) {
        sequences_[i].prompt.push_back((t * 37 + int(i) * 101) % shape.vocab);
      }
    }
  }

  // Each prompt alone, in chunks of as many rows as the kernel takes.
  void prompts() {
    const int chunk = decode_kernel_tokens(shape_, KernelSet::hopper);
    double worst = 0;
    for (Sequence& s : sequences_) {
      const int length = int(s.prompt.size());
      for (int at = 0; at < length; at += chunk) {
        const int count = std::min(chunk, length - at);
        std::vector<DecodeRow> rows;
        for (int r = 0; r < count; ++r) {
          rows.push_back({s.prompt[at + r], at, 0, s.pages.data(), kPages});
        }
        model_->decode(rows, 1);
        const std::vector<float> logits = model_->logits();
        for (int r = 0; r < count; ++r) {
          const std::vector<double> wanted =
              reference_->step(s.past, s.prompt[at + r], cache_->of(s.pages, at + r));
          worst = std::max(worst, relative_error(&logits[size_t(r) * shape_.vocab], wanted));
        }
      }
      s.cached = length;
    }
    expect(worst < limit_, "prompts: worst relative error of logits", worst, limit_);
  }

  // All sequences in one batch. Both sides get the same next tokens, whatever their argmax.
  void decoding(int steps) {
    double worst = 0;
    for (int step = 0; step < steps; ++step) {
      const std::vector<DecodeRow> rows = batch_at(step);
      model_->decode(rows, 1);
      const std::vector<float> logits = model_->logits();
      for (size_t i = 0; i < sequences_.size(); ++i) {
        Sequence& s = sequences_[i];
        const std::vector<double> wanted =
            reference_->step(s.past, rows[i].token, cache_->of(s.pages, s.cached));
        worst = std::max(worst, relative_error(&logits[i * shape_.vocab], wanted));
        ++s.cached;
      }
    }
    expect(worst < limit_, "decoding: worst relative error of logits", worst, limit_);
    // The largest element of a head is several standard deviations.
    expect(cache_->off < 4 * limit_, "cached beyond half a step, deviations", cache_->off,
           4 * limit_);
  }

  // Several steps in one launch must give the bits and tokens of one launch per step.
  void steps_per_launch(const std::vector<DecodeRow>& rows) {
    constexpr int kSteps = 5;
    model_->decode(rows, kSteps);
    const std::vector<int> tokens = model_->argmax_of_steps();
    const std::vector<float> together = model_->logits();
    std::vector<DecodeRow> next = rows;
    bool same = true;
    for (int step = 0; step < kSteps; ++step) {
      model_->decode(next, 1);
      const std::vector<float> logits = model_->logits();
      for (size_t i = 0; i < next.size(); ++i) {
        const float* from = &logits[i * shape_.vocab];
        const int argmax = int(std::max_element(from, from + shape_.vocab) - from);
        same = same && argmax == tokens[step * next.size() + i];
        next[i].token = argmax, ++next[i].past;
      }
      if (step == kSteps - 1) same = same && logits == together;
    }
    expect(same, "5 steps in a launch equal 5 launches", !same, 0.5);
  }

  // A row alone, and the same batch again, must give the same bits. int8, int4 and nf4 take another
  // way for a single row (decode_shared_memory.cuh): there a row and one other, the next of the
  // batch.
  void determinism(const std::vector<DecodeRow>& rows, int repeats) {
    model_->decode(rows, 1);
    const std::vector<float> batch = model_->logits();
    double apart = 0;
    for (size_t i = 0; i < rows.size(); ++i) {
      std::vector<DecodeRow> few = {rows[i]};
      const bool integer = format_ == WeightFormat::int8 || has_group_scale(format_);
      if (integer && rows.size() > 1) few.push_back(rows[(i + 1) % rows.size()]);
      for (size_t row = 0; row < few.size(); ++row) few[row].first = int(row);
      model_->decode(few, 1);
      const std::vector<float> alone = model_->logits();
      for (int v = 0; v < shape_.vocab; ++v) {
        apart = std::max(apart, std::fabs(double(alone[v]) - batch[i * shape_.vocab + v]));
      }
    }
    expect(apart == 0, "row alone against in the batch, largest difference", apart, 0);
    int different = 0;
    for (int repeat = 0; repeat < repeats; ++repeat) {
      model_->decode(rows, 1);
      if (repeat % 100 == 0 || repeat > repeats - 10) different += model_->logits() != batch;
    }
    model_->decode(rows, 1);
    different += model_->logits() != batch;
    expect(different == 0, "repeats with other bits", different, 0.5);
  }

  // One row for each sequence.
  std::vector<DecodeRow> batch_at(int step) const {
    std::vector<DecodeRow> rows;
    for (size_t i = 0; i < sequences_.size(); ++i) {
      rows.push_back({int((i * 13 + size_t(step) * 29) % size_t(shape_.vocab)),
                      sequences_[i].cached, int(i), sequences_[i].pages.data(), kPages});
    }
    return rows;
  }

 private:
  static constexpr int kPages = 40;  // per sequence

  ModelShape shape_;
  WeightFormat format_;
  std::unique_ptr<DeviceModel> model_;
  std::unique_ptr<Reference> reference_;
  std::unique_ptr<CacheCheck> cache_;
  std::vector<Sequence> sequences_;
  double limit_;
};

void check_model(const std::string& name, WeightFormat format, KvFormat kv, const std::string& as,
                 std::vector<int> lengths, int steps, int repeats, bool outliers = false) {
  std::printf("%s %s, %zu sequences%s\n", name.c_str(), as.c_str(), lengths.size(),
              outliers ? ", outliers" : "");
  ModelShape shape = shape_of(name);
  if (outliers) shape.embed_scale = 1000;
  ModelCheck check(shape, format, kv, std::move(lengths), outliers);
  check.prompts();
  if (repeats == 0) return;
  check.decoding(steps);
  const std::vector<DecodeRow> rows = check.batch_at(steps);
  check.steps_per_launch(rows);
  check.determinism(rows, repeats);
}

void print_stamps(const std::vector<long long>& stamps, const ModelShape& shape, int steps,
                  double seconds) {
  const bool experts = shape.experts > 0;
  const int per_layer = ops_per_layer(experts), ops = ops_per_step(shape.layers, experts);
  const double clocks = double(stamps[size_t(ops) * steps * 3 - 1] - stamps[2]);
  const double us = seconds * 1e6 * (double(ops) * steps - 1) / (double(ops) * steps) / clocks;
  const char* names[] = {"embed", "qkv", "attention", "out", "route", "gate_up", "down", "head"};
  // Time from SM 0's last results of the previous operator to its last results of this one.
  double wait[8] = {}, math[8] = {}, epilogue[8] = {};
  int count[8] = {};
  for (int i = 1; i < ops * steps; ++i) {
    const int o = i % ops;
    int kind = o == 0 ? 0 : o == ops - 1 ? 7 : (o - 1) % per_layer + 1;
    if (!experts && kind >= 4 && kind < 7) ++kind;
    const long long* at = &stamps[size_t(i) * 3];
    const long long before = at[-1];
    const bool idle = at[0] < before;  // SM 0 had no item; the router leaves no other stamp
    ++count[kind];
    if (kind == 0 || idle) {
      epilogue[kind] += double(at[2] - before) * us;
    } else {
      wait[kind] += double(at[0] - before) * us;
      math[kind] += double(at[1] - at[0]) * us;
      epilogue[kind] += double(at[2] - at[1]) * us;
    }
  }
  std::printf(
      "    SM 0, us each     activations     math epilogue    total   us/step   (%.0f "
      "MHz)\n",
      1 / us);
  for (int k = 0; k < 8; ++k) {
    if (count[k] == 0) continue;
    const double n = count[k], all = wait[k] + math[k] + epilogue[k];
    std::printf("    %-16s %12.2f %8.2f %8.2f %8.2f %9.1f\n", names[k], wait[k] / n, math[k] / n,
                epilogue[k] / n, all / n, all / steps);
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
  const WeightFormat weights = format_of(format.substr(0, format.find('-')));
  const double bytes = model.weight_bytes() - unread_bytes(shape, weights, batch) +
                       model.cache_bytes_per_token() * batch * seen_keys(shape, context + 8);
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
  print_stamps(stamps, shape, steps, step * steps);
  std::fflush(stdout);
}

void check_formats(const std::string& how, WeightFormat format, KvFormat kv,
                   const std::string& as) {
  const auto run = [&](const char* model, std::vector<int> lengths, int steps, int repeats,
                       bool outliers = false) {
    if (how != model && how != "all" && how != "one") return;
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
  run("tiny-experts", {37}, 12, 1000);
  if (has_variant(DecodeVariant::gemma, format) && kernels_of_device() == KernelSet::hopper) {
    run("tiny-gemma2", {37}, 12, 1000);
    run("tiny-gemma2", {17, 33, 129, 7}, 5, 1000);
    run("tiny-gemma3", {5, 300, 16}, 10, 1000);
    run("tiny-gemma3", {1, 2}, 5, 1000);
    run("gemma-3-layer", {17, 3}, 1, 100);
    run("gemma-3-layer", {5, 2, 9, 4}, 1, 10);
    run("gemma-wide-layer", {17, 3}, 1, 100);
  }
  // Alone, a row's splits are in as many SMs. In these batches an SM has two or three of them.
  if (format != WeightFormat::bf16) return;
  run("tiny-heads", {600, 290}, 3, 100);
  run("tiny-heads", {300, 520, 17, 260}, 3, 100);
}

int run(int count, char** words) {
  const std::string what = count > 1 ? words[1] : "check";
  if (what == "check") {
    const std::string how = count > 2 ? words[2] : "all";  // tiny, one: under sanitizers
    check_dequantization<WeightFormat::bf16>("bf16");
    check_dequantization<WeightFormat::fp8>("fp8");
    check_dequantization<WeightFormat::int8>("int8");
    check_dequantization<WeightFormat::int4>("int4");
    check_dequantization<WeightFormat::nf4>("nf4");
    check_dequantization<WeightFormat::mxfp4>("mxfp4");
    check_released_mxfp4();
    const std::string only = count > 3 ? words[3] : "", only_kv = count > 4 ? words[4] : "";
    for (const auto& [format, format_name] : kFormats) {
      if (!has_variant(DecodeVariant::dense, format)) continue;
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
