// Models of the CUDA benchmarks by name (shapes only, weights are random), and what the benchmarks
// share: formats by name, page tables, checks, main.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <vector>

#include "engine/cuda/host/device_model.h"
#include "engine/cuda/layout/tiles.cuh"

namespace ridge::cuda {

inline ModelShape shape_of(const std::string& name) {
  ModelShape s;
  double theta = 500000, local_theta = 0;  // local: of layers with a window; 0: the same
  if (name == "llama-2-7b") {
    s.layers = 32, s.hidden = 4096, s.heads = 32, s.kv_heads = 32, s.head_dim = 128;
    s.ffn = 11008, s.vocab = 32000, theta = 10000;
  } else if (name == "llama-3-8b") {
    s.layers = 32, s.hidden = 4096, s.heads = 32, s.kv_heads = 8, s.head_dim = 128;
    s.ffn = 14336, s.vocab = 128256;
  } else if (name == "llama-3.2-1b") {
    s.layers = 16, s.hidden = 2048, s.heads = 32, s.kv_heads = 8, s.head_dim = 64;
    s.ffn = 8192, s.vocab = 128256;
  } else if (name == "qwen3-30b-a3b") {
    s.layers = 48, s.hidden = 2048, s.heads = 32, s.kv_heads = 4, s.head_dim = 128;
    s.ffn = 768, s.vocab = 151936, s.qk_norm = true, s.moe.assign(48, true);
    s.experts = 128, s.top_k = 8, s.expert_ffn = 768, s.normalize_top_k = true, theta = 1000000;
  } else if (name == "mixtral-8x7b") {
    s.layers = 32, s.hidden = 4096, s.heads = 32, s.kv_heads = 8, s.head_dim = 128;
    s.ffn = 14336, s.vocab = 32000, s.moe.assign(32, true);
    s.experts = 8, s.top_k = 2, s.expert_ffn = 14336, s.normalize_top_k = true, theta = 1000000;
  } else if (name == "gpt-oss-20b" || name == "gpt-oss-120b") {
    const bool large = name == "gpt-oss-120b";
    s.layers = large ? 36 : 24, s.hidden = 2880, s.heads = 64, s.kv_heads = 8, s.head_dim = 64;
    s.vocab = 201088, s.experts = large ? 128 : 32, s.top_k = 4, s.expert_ffn = 2880;
    s.moe.assign(s.layers, true), s.normalize_top_k = true, s.clamped_swiglu = true;
    s.qkv_bias = s.out_bias = s.expert_bias = s.sinks = true, theta = 150000;
    for (int l = 0; l < s.layers; ++l) s.window.push_back(l % 2 ? 0 : 128);
  } else if (name == "gemma-3-12b") {
    s.layers = 48, s.hidden = 3840, s.heads = 16, s.kv_heads = 8, s.head_dim = 256;
    s.ffn = 15360, s.vocab = 262208, s.qk_norm = true, s.gelu = true, s.post_norms = true;
    theta = 1000000, local_theta = 10000;
    for (int l = 0; l < s.layers; ++l) s.window.push_back(l % 6 == 5 ? 0 : 1024);
  } else if (name == "tiny") {
    s.layers = 2, s.hidden = 512, s.heads = 8, s.kv_heads = 2, s.head_dim = 64;
    s.ffn = 1536, s.vocab = 1000;
  } else if (name == "tiny-wide") {  // MHA, head_dim 128, q/k norms, biases, a window
    s.layers = 2, s.hidden = 576, s.heads = 4, s.kv_heads = 4, s.head_dim = 128;
    s.ffn = 1040, s.vocab = 777, s.qk_norm = true, s.qkv_bias = true, s.window = {0, 40};
  } else if (name == "tiny-heads") {  // so many KV heads that an SM gets several splits of a row
    s.layers = 1, s.hidden = 128, s.heads = 64, s.kv_heads = 32, s.head_dim = 64;
    s.ffn = 512, s.vocab = 500;
  } else if (name == "tiny-experts") {
    s.layers = 2, s.hidden = 576, s.heads = 4, s.kv_heads = 4, s.head_dim = 64;
    s.ffn = 272, s.vocab = 777, s.moe.assign(2, true);
    s.experts = 40, s.top_k = 4, s.expert_ffn = 272, s.normalize_top_k = true;
  } else if (name == "tiny-experts-long") {  // two slabs of K in both GEMMs (expert_mlp.cuh)
    s.layers = 1, s.hidden = 2304, s.heads = 4, s.kv_heads = 4, s.head_dim = 64;
    s.ffn = 2320, s.vocab = 777, s.moe.assign(1, true);
    s.experts = 12, s.top_k = 3, s.expert_ffn = 2320, s.normalize_top_k = true;
  } else if (name == "tiny-gemma2") {  // norms after blocks, soft caps
    s.layers = 2, s.hidden = 576, s.heads = 4, s.kv_heads = 2, s.head_dim = 256;
    s.ffn = 1040, s.vocab = 777, s.gelu = true, s.post_norms = true, s.window = {40, 0};
    s.embed_scale = 24, s.attention_softcap = 2, s.logit_softcap = 3;
  } else if (name == "tiny-gemma3") {  // norms after blocks, q/k norms, two RoPE tables
    s.layers = 3, s.hidden = 512, s.heads = 4, s.kv_heads = 1, s.head_dim = 128;
    s.ffn = 1536, s.vocab = 1000, s.gelu = true, s.post_norms = true, s.window = {24, 0, 24};
    s.embed_scale = 20, s.qk_norm = true, theta = 1000000, local_theta = 10000;
  } else if (name == "gemma-3-layer") {  // the shape of gemma-3-12b
    s.layers = 1, s.hidden = 3840, s.heads = 16, s.kv_heads = 8, s.head_dim = 256;
    s.ffn = 15360, s.vocab = 2048, s.qk_norm = true, s.gelu = true, s.post_norms = true;
  } else if (name == "gemma-wide-layer") {  // two rows at most: their inputs fill shared memory
    s.layers = 1, s.hidden = 5376, s.heads = 32, s.kv_heads = 16, s.head_dim = 128;
    s.ffn = 21504, s.vocab = 2048, s.qk_norm = true, s.gelu = true, s.post_norms = true;
  } else if (name == "8b-layer") {
    s.layers = 1, s.hidden = 4096, s.heads = 32, s.kv_heads = 8, s.head_dim = 128;
    s.ffn = 14336, s.vocab = 2048;
  } else {
    std::fprintf(stderr, "no model %s\n", name.c_str());
    std::exit(2);
  }
  s.query_scale = 1 / std::sqrt(float(s.head_dim));
  for (const double base : {theta, local_theta}) {
    if (base == 0) continue;
    s.ropes.emplace_back();
    for (int i = 0; i < s.head_dim / 2; ++i) {
      s.ropes.back().frequency.push_back(float(std::pow(base, -2.0 * i / s.head_dim)));
    }
  }
  if (local_theta > 0) {
    for (const int window : s.window) s.rope.push_back(window > 0);
  }
  return s;
}

// Keys that a token at the end of `context` sees, averaged over the layers.
inline double seen_keys(const ModelShape& s, int context) {
  if (s.window.empty()) return context;
  double keys = 0;
  for (const int window : s.window) keys += window > 0 ? std::min(window, context) : context;
  return keys / double(s.window.size());
}

// Whether dequantizing rounds: the group scales of MXFP4 are powers of two.
constexpr bool rounds_weights(WeightFormat format) {
  return has_group_scale(format) && format != WeightFormat::mxfp4;
}

// Weights of the experts that no token of the batch is expected to choose.
inline double unread_bytes(const ModelShape& s, WeightFormat format, int batch) {
  if (s.experts == 0) return 0;
  const FormatInfo info = format_info(format);
  const double layers = double(std::count(s.moe.begin(), s.moe.end(), true));
  const double unchosen = std::pow(1 - double(s.top_k) / s.experts, batch);
  return unchosen * layers * s.experts * 3.0 * s.hidden * s.expert_ffn * info.chunk_bytes /
         (kBlockRows * info.columns);
}

inline constexpr std::pair<WeightFormat, const char*> kFormats[] = {
    {WeightFormat::bf16, "bf16"}, {WeightFormat::fp8, "fp8"}, {WeightFormat::int8, "int8"},
    {WeightFormat::int4, "int4"}, {WeightFormat::nf4, "nf4"}, {WeightFormat::mxfp4, "mxfp4"}};

inline WeightFormat format_of(const std::string& name) {
  for (const auto& [format, candidate] : kFormats) {
    if (name == candidate) return format;
  }
  std::fprintf(stderr, "no format %s\n", name.c_str());
  std::exit(2);
}

inline constexpr std::pair<KvFormat, const char*> kKvFormats[] = {{KvFormat::bf16, "bf16"},
                                                                  {KvFormat::f16, "f16"},
                                                                  {KvFormat::fp8, "fp8"},
                                                                  {KvFormat::int8, "int8"}};

inline KvFormat kv_format_of(const std::string& name) {
  for (const auto& [format, candidate] : kKvFormats) {
    if (name == candidate) return format;
  }
  std::fprintf(stderr, "no KV format %s\n", name.c_str());
  std::exit(2);
}

// The pages of a sequence, out of order as an allocator gives them after a while.
inline std::vector<int> pages_of(int sequence, int count) {
  std::vector<int> pages(count);
  for (int i = 0; i < count; ++i) pages[i] = sequence * count + (i * 7 + 3) % count;
  return pages;
}

// Checks of a benchmark that failed. tools/gpu_check reads WRONG and the last line.
inline int failures = 0;
inline void expect(bool right, const char* what, double value, double limit) {
  std::printf("  %-46s %10.3g (limit %.3g) %s\n", what, value, limit, right ? "ok" : "WRONG");
  if (!right) ++failures;
}
inline int report_failures() {  // returns the exit status
  std::printf("%d wrong\n", failures);
  return failures != 0;
}

// main() of a benchmark: an exception becomes one line and exit status 1.
template <typename Run>
int run_bench(const Run& run, int count, char** words) {
  try {
    return run(count, words);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}

}  // namespace ridge::cuda
