// Steps of many tokens, layer by layer, by Hopper's kernels and by the portable ones: `check`
// compares them with the decode kernel (which its own benchmark compares with doubles), those of
// experts with doubles; `time` gives steps beside the ceilings of the same call.
//   cuda_forward_bench check [FORMAT]... | check experts [FORMAT] | check post-norms [FORMAT]...
//   cuda_forward_bench time [portable]
//                           [decode MODEL FORMAT BATCH CONTEXT | prefill MODEL FORMAT TOKENS]...
// FORMAT: of the weights, or of weights and KV cache, as bf16-fp8
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "bench/cuda_ceiling.cuh"
#include "bench/cuda_models.h"
#include "bench/cuda_reference.h"
#include "engine/cuda/decode/decode.cuh"
#include "engine/cuda/host/device_model.h"
#include "engine/cuda/step/step_path.cuh"

namespace ridge::cuda {
namespace {

double relative(const float* found, const float* wanted, size_t count) {
  double difference = 0, size = 0;
  for (size_t i = 0; i < count; ++i) {
    const double e = double(found[i]) - wanted[i];
    difference += e * e, size += double(wanted[i]) * wanted[i];
  }
  const double value = std::sqrt(difference / size);
  return std::isfinite(value) ? value : 1e9;
}

struct Formats {
  WeightFormat weights;
  KvFormat kv;
};
Formats formats_of(const std::string& name) {
  const size_t dash = name.find('-');
  if (dash == std::string::npos) return {format_of(name), KvFormat::bf16};
  return {format_of(name.substr(0, dash)), kv_format_of(name.substr(dash + 1))};
}

void force_portable(bool portable) { setenv("RIDGE_CUDA_KERNELS", portable ? "portable" : "", 1); }
const char* kernels_name(bool portable) { return portable ? "portable" : "hopper"; }

// Of the largest case: prompts of 8192 tokens, batches of 256.
constexpr StepBounds kBounds = {8192, 256, 256, 1};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// A row without a routing tie must be within `limit`, and within more where earlier tokens of its
// sequence were tied: each may have got other experts, and weighs about 1 / (position + 1) in
// attention. Returns how far the row is from its limit; 0 for a tied row.
double share_of_limit(const Reference::Past& past, double error, double limit) {
  const auto tied = [&](double gap) { return gap < 2 * limit; };  // a difference of two logits
  if (tied(past.router_gaps.back())) return 0;
  const double before =
      double(std::count_if(past.router_gaps.begin(), past.router_gaps.end(), tied));
  return error / (limit + std::sqrt(before) / past.length);
}

// Each of `steps` gives every sequence so many tokens; logits of the last. A step of one token is
// the decode kernel's.
void check_experts(const std::string& format, const std::vector<std::vector<int>>& steps,
                   bool portable, const char* name = "tiny-experts") {
  force_portable(portable);
  const ModelShape shape = shape_of(name);
  const int count = int(steps[0].size()), page_count = 8;
  const auto [weights, kv] = formats_of(format);
  const auto model = DeviceModel::make(shape, weights, kv, page_count * count, kBounds);
  model->randomize(7, 0.1f);
  const Reference reference(*model, shape);
  std::vector<Reference::Past> past(count);
  std::vector<std::vector<int>> tokens(count), pages;
  for (int i = 0; i < count; ++i) pages.push_back(pages_of(i, page_count));
  const double limit = 1.5 * 4 * std::sqrt(4.0 * shape.layers + 5) / 1024;
  std::vector<double> errors;
  double worst = 0;  // share of a row's limit
  int moved = 0, ties = 0, rows = 0;
  for (const std::vector<int>& step : steps) {
    std::vector<StepSlice> slices;
    std::vector<double> wanted;
    for (int i = 0; i < count; ++i) {
      const int before = past[i].length;
      std::vector<double> last;
      for (int t = before; t < before + step[i]; ++t) {
        tokens[i].push_back((t * 37 + i * 101) % shape.vocab);
        last = reference.step(past[i], tokens[i].back());
      }
      wanted.insert(wanted.end(), last.begin(), last.end());
      slices.push_back(
          {tokens[i].data() + before, step[i], before, pages[i].data(), page_count, 1});
    }
    const auto run = [&] {
      if (count == 1) return model->step(slices.data(), {count});
      model->forward(slices);
    };
    run();
    const std::vector<float> found = model->logits(), as_float(wanted.begin(), wanted.end());
    for (int i = 0; i < count; ++i) {
      const size_t at = size_t(i) * shape.vocab;
      errors.push_back(relative(&found[at], &as_float[at], shape.vocab));
      const double share = share_of_limit(past[i], errors.back(), limit);
      worst = std::max(worst, share), ties += share == 0, ++rows;
    }
    for (int repeat = 0; repeat < 20; ++repeat) {
      run();
      moved += model->logits() != found;
    }
  }
  const bool right = worst < 1 && moved == 0 && ties < rows * 3 / 4 && median(errors) < limit;
  if (!right) ++failures;
  std::printf(
      "experts    %-9s %-8s median error %.4f, worst %.2f of its limit, %d of %d rows tied, moved "
      "%d: "
      "%s\n",
      format.c_str(), kernels_name(portable), median(errors), worst, ties, rows, moved,
      right ? "ok" : "WRONG");
}

struct CheckedStep {
  const ModelShape& shape;
  KvFormat kv;
  std::string label;
  const std::vector<std::vector<float>>& wanted;  // by slice
  bool fp8_products = false;
};
void check_step(DeviceModel& model, const std::vector<StepSlice>& slices, const CheckedStep& step) {
  const ModelShape& shape = step.shape;
  model.forward(slices);
  const std::vector<float> found = model.logits();
  double worst = 0;
  for (size_t i = 0; i < slices.size(); ++i) {
    worst = std::max(worst, relative(&found[i * shape.vocab], step.wanted[i].data(), shape.vocab));
  }
  int moved = 0;
  for (int repeat = 0; repeat < 200; ++repeat) {
    model.forward(slices);
    if (repeat % 20 == 0) moved += model.logits() != found;
  }
  // Both round activations to bf16 before each product (cuda_decode_bench.cu has the derivation),
  // and int4's weights too here: the walks of both add.
  const double walk = 1.5 * 4 * std::sqrt(4.0 * shape.layers + 5) / 1024;
  // What is apart by e of its size falls to another byte in e / step of all cases, and is then
  // apart by a step: fp8's are up to 1/8, int8's 1/127 of the largest, 4 times the mean.
  const double byte = step.kv == KvFormat::fp8    ? 1.0 / 8
                      : step.kv == KvFormat::int8 ? 4.0 / 127
                                                  : 0;
  // E4M3 has 4 significant bits: a rounded activation is off by up to 1/16 of itself, by at most
  // 1/16 / sqrt(3) in the root mean square, and so is each of the four GEMMs of a layer.
  const double products =
      step.fp8_products ? 1.5 * std::sqrt(4.0 * shape.layers) / 16 / std::sqrt(3.0) : 0;
  const double limit = walk + std::sqrt(walk * byte) + products;
  const bool right = worst < limit && moved == 0;
  if (!right) ++failures;
  std::printf("%s worst relative error %.4f (limit %.4f), moved %d: %s\n", step.label.c_str(),
              worst, limit, moved, right ? "ok" : "WRONG");
}

// Prompts and single tokens in one step, by both kinds of kernels, against the decode kernel's
// logits of the same tokens (where it has no code for the model: against those of prompts).
void check_model(const std::string& name, const std::string& format,
                 const std::vector<int>& lengths) {
  const ModelShape shape = shape_of(name);
  const int count = int(lengths.size()), page_count = 40;
  const auto [weights, kv] = formats_of(format);
  const auto make = [&, &weight_format = weights, &kv_format = kv](bool portable) {
    force_portable(portable);
    auto made = DeviceModel::make(shape, weight_format, kv_format, page_count * count, kBounds);
    made->randomize(7, 0.1f);
    return made;
  };
  const auto model = make(false);
  std::vector<std::vector<int>> tokens, pages;
  std::vector<StepSlice> slices;
  std::vector<std::vector<float>> wanted;
  for (int i = 0; i < count; ++i) {
    std::vector<int> all;
    for (int t = 0; t < lengths[i] + 24; ++t) all.push_back((t * 37 + i * 101) % shape.vocab);
    tokens.push_back(all);
    pages.push_back(pages_of(i, page_count));
  }
  const int decode_rows = has_variant(decode_variant(shape), weights)
                              ? decode_kernel_tokens(shape, KernelSet::hopper)
                              : 0;
  for (int i = 0; i < count; ++i) {
    slices.push_back({tokens[i].data() + 24, lengths[i], 24, pages[i].data(), page_count, 1});
    if (decode_rows == 0) {  // as one prompt, whose norms and GEMMs are other kernels
      model->forward({{tokens[i].data(), lengths[i] + 24, 0, pages[i].data(), page_count, 1}});
      wanted.push_back(model->logits());
      continue;
    }
    // 24 tokens by the decode kernel, then the rest: first by it too, then by the forward step.
    for (int at = 0; at < int(tokens[i].size());) {
      const int end = std::min<int>(at + decode_rows, int(tokens[i].size()));
      std::vector<DecodeRow> rows;
      for (int t = at; t < end; ++t) {
        rows.push_back({tokens[i][t], at, 0, pages[i].data(), page_count});
      }
      model->decode(rows, 1);
      if (end == int(tokens[i].size())) {
        const std::vector<float>& logits = model->logits();
        wanted.emplace_back(logits.end() - shape.vocab, logits.end());
      }
      at = end;
    }
  }
  const std::string label = name + ' ' + format + ' ';
  int step_tokens = 0;
  for (const int length : lengths) step_tokens += length;
  const bool fp8_products =
      uses_fp8_products(shape, weights, KernelSet::hopper, step_tokens, model->sms());
  check_step(*model, slices,
             {shape, kv, label + (fp8_products ? "fp8 x fp8" : kernels_name(false)), wanted,
              fp8_products});
  const auto portable = make(true);
  std::vector<StepSlice> before;
  for (int i = 0; i < count; ++i) {
    before.push_back({tokens[i].data(), 24, 0, pages[i].data(), page_count, 0});
  }
  portable->forward(before);
  check_step(*portable, slices, {shape, kv, label + kernels_name(true), wanted});
}

// Norms after blocks between skinny GEMMs, of one group of tokens and of two.
void check_post_norms(const std::string& format) {
  for (const char* name : {"tiny-gemma2", "tiny-gemma3", "gemma-3-layer", "gemma-wide-layer"}) {
    check_model(name, format, {1, 3, 1});
    check_model(name, format, std::vector<int>(8, 1));
    check_model(name, format, {1, 1, 7, 1, 1});
    check_model(name, format, std::vector<int>(16, 1));
  }
}

// Runs a step by `queue` and prints what its operators take.
template <typename Queue>
void print_operators(DeviceModel& model, const Queue& queue) {
  const auto start = std::chrono::steady_clock::now();
  queue();
  const double queued =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  model.keep_times(true);
  queue();
  queue();
  std::vector<std::pair<std::string, double>> sums;
  for (const auto& [name, seconds] : model.operators()) {
    auto it = std::find_if(sums.begin(), sums.end(), [&](auto& s) { return s.first == name; });
    if (it == sums.end()) it = sums.insert(it, {name, 0});
    it->second += seconds;
  }
  std::printf("    queued in %.0f us; apart, us:", queued * 1e6);
  for (const auto& [name, seconds] : sums) std::printf(" %s %.0f", name.c_str(), seconds * 1e6);
  // Operators that share a kernel have one each when they are timed.
  const std::vector<float> apart = model.logits();
  model.keep_times(false);
  queue();
  const std::vector<float> together = model.logits();
  int moved = 0;
  for (int repeat = 0; repeat < 20; ++repeat) {
    queue();
    moved += model.logits() != together;
  }
  if (moved > 0) ++failures;
  std::printf("; logits differ by %.1e, moved %d\n",
              relative(together.data(), apart.data(), apart.size()), moved);
}

int run(int count, char** words) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  const std::string what = count > 1 ? words[1] : "check";
  if (what == "check") {
    std::vector<std::string> formats(words + std::min(count, 2), words + count);
    if (!formats.empty() && formats[0] == "post-norms") {
      formats.erase(formats.begin());
      for (const std::string& format : formats) check_post_norms(format);
      return report_failures();
    }
    if (formats.empty()) {
      formats = {"bf16",     "fp8",      "int8",      "int4",    "nf4",
                 "bf16-f16", "bf16-fp8", "bf16-int8", "int4-fp8"};
    }
    std::string only;  // format of the experts
    if (formats[0] == "experts") {
      if (formats.size() > 1) only = formats[1];
      formats.clear();
    }
    for (const std::string& format : formats) {
      for (const char* name : {"tiny", "tiny-wide", "8b-layer"}) {
        check_model(name, format, {300, 40, 1, 77, 1, 200, 5, 1, 1, 33});
        check_model(name, format, {40, 1, 25, 1, 1, 1, 33});  // a chain of 128
        check_model(name, format, {20, 1, 1, 25, 1});         // of 64
        check_model(name, format, std::vector<int>(20, 1));   // of 32
      }
      check_post_norms(format);
      // Whole tiles of the prefill GEMM, with weights in fp8 in E4M3.
      if (format.find('-') == std::string::npos) {
        check_model("8b-layer", format, {600, 600, 600, 200, 46, 1, 1});
      }
    }
    for (const auto& [format, name] : kFormats) {
      if (!only.empty() && only != name) continue;
      const std::vector<int> ones(9, 1), threes(9, 3);  // with and without few tokens
      std::vector<std::vector<int>> singles(24, {1});
      singles.front() = {37};
      for (const bool portable : {false, true}) {
        check_experts(name, {{5, 1, 9, 2, 3, 1, 1, 4, 2}, ones, threes, ones}, portable);
        check_experts(name, {{25, 7, 9, 2, 30, 1, 1, 4, 2}, ones}, portable);
        check_experts(name, singles, portable);
      }
      if (has_row_scale(format)) {
        check_experts(name, {{5, 1, 9, 2, 3, 1, 1, 4, 2}, ones, ones}, false, "tiny-experts-long");
      }
    }
    return report_failures();
  }
  cudaDeviceProp properties;
  check(cudaGetDeviceProperties(&properties, 0), "asking for the device");
  const bool portable = count > 2 && std::strcmp(words[2], "portable") == 0;
  force_portable(portable);
  const double rate = read_ceiling(properties.multiProcessorCount, portable);
  const double peak = portable ? mma_ceiling(properties.multiProcessorCount) : 0;
  std::printf("%s: %s read %.3f TB/s", properties.name, portable ? "plain" : "ring", rate * 1e-12);
  if (portable) std::printf(", mma.sync %.0f TFLOP/s", peak * 1e-12);
  std::printf("\n");
  const char* prefix = portable ? "portable-" : "";
  std::unique_ptr<DeviceModel> model;
  std::string loaded;
  for (int i = portable ? 3 : 2; i + 3 < count;) {
    const bool prefill = std::strcmp(words[i], "prefill") == 0;
    const std::string name = words[i + 1], format = words[i + 2];
    const int batch = prefill ? 1 : std::atoi(words[i + 3]);
    const int context = std::atoi(words[i + (prefill ? 3 : 4)]);
    i += prefill ? 4 : 5;
    const ModelShape shape = shape_of(name);
    const int page_count = context / 16 + 1;
    if (name + format != loaded) {
      model.reset();
      const auto [weights, kv] = formats_of(format);
      model = DeviceModel::make(shape, weights, kv, 128 * 65, kBounds);
      model->randomize(1, 0);
      model->randomize_cache(3);
      loaded = name + format;
    }
    std::vector<int> tokens;
    for (int t = 0; t < std::max(batch, context); ++t) tokens.push_back(t * 37 % shape.vocab);
    std::vector<std::vector<int>> pages;
    std::vector<StepSlice> slices;
    for (int s = 0; s < batch; ++s) pages.push_back(pages_of(s, page_count));
    for (int s = 0; s < batch; ++s) {
      slices.push_back({&tokens[s], prefill ? context : 1, prefill ? 0 : context, pages[s].data(),
                        page_count, 1});
    }
    // The portable kernels' steps as an engine runs them: by the decode kernel where it has code.
    const bool by_decode_kernel = portable && !prefill && model->has_decode_kernel() &&
                                  batch <= (shape.experts > 0 ? 1 : kMaxRows);
    std::vector<DecodeRow> rows;
    for (int s = 0; s < batch && by_decode_kernel; ++s) {
      rows.push_back({tokens[s], context, s, pages[s].data(), page_count});
    }
    const double by_operators = median(model->time_forward(slices, 15));
    const double seconds =
        by_decode_kernel ? median(model->time_decode(rows, 1, 15)) : by_operators;
    if (prefill) {
      const double linear =
          2.0 * shape.layers * context *
          (double(shape.hidden) * (2 * shape.heads + 2 * shape.kv_heads) * shape.head_dim +
           3.0 * shape.hidden * shape.ffn);
      const double attention =
          2.0 * shape.layers * double(context) * context * shape.heads * shape.head_dim;
      const double flops = linear + attention + 2.0 * shape.hidden * shape.vocab;
      std::printf("%-13s %-5s prefill %6d: %8.3f ms  %6.1f TFLOP/s  %8.0f tok/s\n", name.c_str(),
                  format.c_str(), context, seconds * 1e3, flops / seconds * 1e-12,
                  context / seconds);
      if (portable) std::printf("    %.1f %% of mma.sync\n", 100 * flops / seconds / peak);
      std::printf("RESULT %sprefill/%s/%s/%d %.4f ms -\n", prefix, name.c_str(), format.c_str(),
                  context, seconds * 1e3);
    } else {
      const double bytes = model->weight_bytes() -
                           unread_bytes(shape, formats_of(format).weights, batch) +
                           model->cache_bytes_per_token() * batch * seen_keys(shape, context + 1);
      std::printf(
          "%-13s %-5s batch %3d context %5d: %7.3f ms  %5.2f TB/s  %5.1f %% of %.2f  %7.0f tok/s\n",
          name.c_str(), format.c_str(), batch, context, seconds * 1e3, bytes / seconds * 1e-12,
          100 * bytes / seconds / rate, rate * 1e-12, batch / seconds);
      std::printf("RESULT %sdecode/%s/%s/%d/%d %.4f ms %.4f\n", prefix, name.c_str(),
                  format.c_str(), batch, context, seconds * 1e3, bytes / seconds / rate);
    }
    if (by_decode_kernel) {
      std::printf("    the same step operator by operator: %.3f ms\n", by_operators * 1e3);
      print_operators(*model, [&] { model->decode(rows, 1); });
    } else {
      print_operators(*model, [&] { model->forward(slices); });
    }
  }
  return failures > 0;
}

}  // namespace
}  // namespace ridge::cuda

int main(int count, char** words) { return ridge::cuda::run_bench(ridge::cuda::run, count, words); }
