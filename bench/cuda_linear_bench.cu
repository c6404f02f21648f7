// GEMMs alone, linear.cuh, prefill_gemm.cuh and skinny_gemm.cuh: `check` compares them with double
// precision on the host, `time` prints their rates for the shapes of Llama-3-8B.
//   cuda_linear_bench check [FORMAT] | time [FORMAT [TOKENS]]
#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "bench/cuda_models.h"
#include "engine/cuda/elementwise/quantize_tokens.cuh"
#include "engine/cuda/gemm/prefill_gemm.cuh"
#include "engine/cuda/gemm/skinny_gemm.cuh"
#include "engine/cuda/layout/pack.cuh"

namespace ridge::cuda {
namespace {

int sms() {
  int count = 0;
  check(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, 0),
        "reading the number of SMs");
  return count;
}

struct Weights {
  Weights(WeightFormat weight_format, int matrices, int row_count, int column_count, bool pairs)
      : format(weight_format), rows(row_count), columns(column_count) {
    const FormatInfo info = format_info(format);
    tiles.blocks = (rows + kBlockRows - 1) / kBlockRows;
    tiles.chunks = (columns + info.columns - 1) / info.columns;
    tiles.stride = size_t(tiles.blocks) * tiles.chunks * info.chunk_bytes;
    data = DeviceBuffer<uint8_t>(tiles.stride * matrices);
    scales = DeviceBuffer<float>(size_t(matrices) * tiles.blocks * kBlockRows);
    DeviceBuffer<uint16_t> plain(size_t(rows) * columns);
    for (int m = 0; m < matrices; ++m) {
      fill_normal(nullptr, plain.data(), plain.size(), m + 5, 0.02f);
      const uint16_t* second = pairs ? plain.data() + size_t(rows / 2) * columns : nullptr;
      pack(nullptr, format, plain.data(), second, pairs ? rows / 2 : rows, columns,
           data.data() + tiles.stride * m, scales.data() + size_t(m) * tiles.blocks * kBlockRows,
           tiles.chunks);
      check(cudaDeviceSynchronize(), "packing");
    }
    tiles.data = data.data();
    tiles.row_scale = has_row_scale(format) ? scales.data() : nullptr;
  }
  std::vector<float> plain(int matrix) {
    DeviceBuffer<float> all(size_t(tiles.blocks) * kBlockRows * tiles.chunks *
                            format_info(format).columns);
    unpack(nullptr, format, data.data() + tiles.stride * matrix,
           scales.data() + size_t(matrix) * tiles.blocks * kBlockRows, tiles.blocks, tiles.chunks,
           all.data());
    check(cudaDeviceSynchronize(), "unpacking");
    return all.host();
  }
  WeightFormat format;
  int rows, columns;
  Tiles tiles;
  DeviceBuffer<uint8_t> data;
  DeviceBuffer<float> scales;
};

float value_of(uint16_t bits) {
  const uint32_t wide = uint32_t{bits} << 16;
  float value;
  std::memcpy(&value, &wide, 4);
  return value;
}

float e4m3_value(uint8_t bits) {
  const int exponent = bits >> 3 & 15, mantissa = bits & 7;
  const float size =
      exponent ? std::ldexp(8.0f + mantissa, exponent - 10) : std::ldexp(float(mantissa), -9);
  return bits & 0x80 ? -size : size;
}

// An activation at fp8_group_at() with its scale.
float group_value(const std::vector<uint8_t>& bytes, int column, int token, int tokens) {
  float scale;
  std::memcpy(&scale, &bytes[fp8_group_scale_at(column, token, tokens)], 4);
  return scale * e4m3_value(bytes[fp8_group_at(column, token, tokens)]);
}

// In E4M3: prefill_fp8 with a scale per token, chain_fp8 with one per 64 columns, which the kernel
// makes from bf16, chain_fp8_wide with one per 128 columns.
enum class Kernel { wgmma, skinny, prefill, prefill_fp8, chain_fp8, chain_fp8_wide };
constexpr const char* kKernelNames[] = {"wgmma", "skinny", "prefill", "e4m3", "chain", "wide"};

// Activations in E4M3 at fp8_group_at(), of sizes 1/4 to 4, with a scale per 128 columns.
std::vector<uint8_t> random_groups(int columns, int tokens) {
  std::vector<uint8_t> bytes(size_t(columns / 64) * fp8_group_bytes(tokens));
  uint32_t state = 77;
  const auto random = [&] { return (state = state * 1664525 + 1013904223) >> 8; };
  for (int token = 0; token < tokens; ++token) {
    for (int k = 0; k < columns; ++k) {
      const uint32_t sign = random() % 2, exponent = 5 + random() % 4, mantissa = random() % 8;
      bytes[fp8_group_at(k, token, tokens)] = uint8_t(sign << 7 | exponent << 3 | mantissa);
    }
    for (int k = 0; k < columns; k += 128) {
      const float scale = float(1 + random() % 1000) / 500;
      for (int half = 0; half < 128; half += 64) {
        std::memcpy(&bytes[fp8_group_scale_at(k + half, token, tokens)], &scale, 4);
      }
    }
  }
  return bytes;
}

// The largest error of a correct GEMM, of the root mean square of the results.
double error_limit(Kernel kernel, const Weights& w, Epilogue epilogue) {
  const bool gate = epilogue == Epilogue::gate;
  // The tensor cores add 32 products of E4M3 to a sum at a time. They cut each addend after 13 bits
  // below the largest, so a step loses up to 2^-13 of the sum, half of it on average and always
  // toward zero. The sum grows like the root of the columns, which makes 2/3 over all steps:
  // columns / 32 * 2^-14 * 2/3. A gate multiplies two such results and rounds to bf16.
  if (kernel == Kernel::prefill_fp8) {
    return (gate ? 2 : 1) * (w.columns / 32.0 / 16384 * 2 / 3) + (gate ? 4e-3 : 1e-5);
  }
  // In a chain every 64 columns are summed apart: two steps, the first of which adds to nothing;
  // or every 128, which are four steps.
  // Such errors are a random walk over the groups of columns, as the sums are.
  if (kernel >= Kernel::chain_fp8) {
    const double sums = (kernel == Kernel::chain_fp8 ? 1.0 : 2.0) / 16384;
    return gate ? 2 * sums + 4e-3 : sums;
  }
  // Weights with group scales are rounded to bf16 after scaling: up to 2^-8 each, a random walk
  // over the columns.
  if (rounds_weights(w.format)) return gate ? 8e-3 : 5e-3;
  return gate ? 4e-3 : 1e-5;
}

void check_case(Kernel kernel, Linear& linear, Weights& w, const char* name, int tokens,
                Epilogue epilogue) {
  const int padded = Linear::padded(tokens), tile = Linear::tile_tokens(tokens);
  const int columns = (w.columns + 63) / 64 * 64,
            stored = w.tiles.chunks * format_info(w.format).columns;
  DeviceBuffer<uint16_t> x(size_t(padded) * columns), out(size_t(padded) * (w.rows / 2 + 64));
  fill_normal(nullptr, x.data(), x.size(), 77, 1.0f);
  DeviceBuffer<float> rows(size_t(tokens) * w.rows), bias(w.tiles.blocks * kBlockRows);
  fill_normal(nullptr, bias.data(), bias.size(), 3, 1.0f, 0.0f);
  fill_normal(nullptr, rows.data(), rows.size(), 9, 1.0f, 0.0f);
  check(cudaDeviceSynchronize(), "filling");
  const std::vector<float> before = rows.host(), weights = w.plain(1), b = bias.host();
  if (epilogue == Epilogue::store) rows.fill_bytes(0xff);
  out.fill_bytes(0xff);
  LinearArgs args;
  args.tiles = w.tiles, args.matrix = 1, args.row_count = w.rows, args.x = x.data();
  args.tokens = tokens, args.padded = padded, args.epilogue = epilogue;
  args.bias = epilogue == Epilogue::store ? bias.data() : nullptr;
  args.rows = rows.data(), args.stride = w.rows, args.out = out.data();
  const bool chain = kernel >= Kernel::chain_fp8, quantized = kernel == Kernel::prefill_fp8;
  DeviceBuffer<uint8_t> bytes(quantized || chain ? 2 * x.size() : 1);
  DeviceBuffer<float> scales(padded);
  if (chain) args.fp8_tokens = true, args.quantized_x = bytes.data(), args.fp8_group = 64;
  if (kernel == Kernel::chain_fp8_wide) {
    const std::vector<uint8_t> groups = random_groups(w.columns, padded);
    bytes.copy_from(groups.data(), groups.size());
    args.x = reinterpret_cast<const uint16_t*>(bytes.data());
    args.quantized_x = nullptr, args.fp8_group = 128;
  }
  if (quantized) {
    quantize_tokens(nullptr, {x.data(), bytes.data(), scales.data(), w.columns, padded});
    args.x = reinterpret_cast<const uint16_t*>(bytes.data());
  }
  const auto multiply = [&] {
    switch (kernel) {
      case Kernel::wgmma:
      case Kernel::chain_fp8:
      case Kernel::chain_fp8_wide:
        return linear.launch(nullptr, {args}, tile);
      case Kernel::skinny:
        return skinny_gemm(nullptr, w.format, sms(), {args});
      case Kernel::prefill:
        return prefill_gemm(nullptr, w.format, sms(), args);
      case Kernel::prefill_fp8:
        return prefill_gemm_fp8(nullptr, sms(), args, scales.data());
    }
  };
  multiply();
  check(cudaDeviceSynchronize(), "multiplying");
  const std::vector<uint16_t> given = x.host(), activated = out.host();
  const std::vector<float> found = rows.host(), token_scale = scales.host();
  const std::vector<uint8_t> e4m3 = bytes.host();
  const auto value = [&](int column, int token) {
    if (chain) return group_value(e4m3, column, token, padded);
    return quantized ? token_scale[token] * e4m3_value(e4m3[fp8_at(column, token, padded)])
                     : value_of(given[wide_at(column, token, padded)]);
  };
  const auto dot = [&](int row, int token) {
    double sum = 0;
    for (int c = 0; c < w.columns; ++c) {
      sum += double(weights[size_t(row) * stored + c]) * value(c, token);
    }
    return sum;
  };
  double difference = 0, size = 0;
  for (int i = 0; i < 1500; ++i) {
    const int row = int(i * 7919ll % w.rows), token = int(i * 104729ll / 13 % tokens);
    double expected, actual;
    if (epilogue == Epilogue::gate) {
      const int pair = row / 2, block = pair / 8;
      const double gate = dot(block * 16 + pair % 8, token),
                   up = dot(block * 16 + 8 + pair % 8, token);
      expected = gate / (1 + std::exp(-gate)) * up;
      actual = value_of(activated[wide_at(pair, token, padded)]);
    } else {
      expected = dot(row, token) +
                 (epilogue == Epilogue::store ? b[row] : before[size_t(token) * w.rows + row]);
      actual = found[size_t(token) * w.rows + row];
    }
    difference += (actual - expected) * (actual - expected), size += expected * expected;
  }
  const double error = std::sqrt(difference / size);
  const double limit = error_limit(kernel, w, epilogue);
  // Repeated launches must give the same bits.
  int changed = 0;
  if (epilogue != Epilogue::add) {
    for (int i = 0; i < 50; ++i) multiply();
    check(cudaDeviceSynchronize(), "multiplying again");
    if (epilogue == Epilogue::gate) {
      const std::vector<uint16_t> again = out.host();
      for (int t = 0; t < tokens; ++t)
        for (int r = 0; r < w.rows / 2; ++r)
          changed += again[wide_at(r, t, padded)] != activated[wide_at(r, t, padded)];
    } else {
      changed = rows.host() != found;
    }
  }
  const bool passed = error < limit && changed == 0;
  if (!passed) ++failures;
  std::printf(
      "%-7s %-5s %5d x %5d tokens %5d epilogue %d: error %.2e (limit %.0e), changed %d %s\n",
      kKernelNames[int(kernel)], name, w.rows, w.columns, tokens, int(epilogue), error, limit,
      changed, passed ? "ok" : "WRONG");
}

// What a chain in E4M3 passes from GEMM to GEMM: results in E4M3 with a scale for every 64, and the
// sums of squares of a folded norm.
void check_fp8_results(Linear& linear, Weights& w, int tokens, Epilogue epilogue) {
  const bool gate = epilogue == Epilogue::gate;
  const int padded = Linear::padded(tokens), columns = gate ? w.rows / 2 : w.rows;
  DeviceBuffer<uint16_t> x(size_t(padded) * w.columns);
  DeviceBuffer<uint8_t> bytes(2 * x.size()), out(size_t(columns / 64) * fp8_group_bytes(padded));
  DeviceBuffer<float> rows(size_t(tokens) * w.rows), norm(w.rows),
      squares(size_t(w.rows) / 128 * padded);
  fill_normal(nullptr, x.data(), x.size(), 77, 1.0f);
  fill_normal(nullptr, rows.data(), rows.size(), 9, 1.0f, 0.0f);
  fill_normal(nullptr, norm.data(), norm.size(), 7, 0.1f, 1.0f);
  check(cudaDeviceSynchronize(), "filling");
  const std::vector<float> before = rows.host(), weights = w.plain(1), factor = norm.host();
  LinearArgs args;
  args.tiles = w.tiles, args.matrix = 1, args.row_count = w.rows, args.x = x.data();
  args.fp8_tokens = true, args.quantized_x = bytes.data(), args.fp8_group = 64;
  args.tokens = tokens, args.padded = padded, args.epilogue = epilogue;
  args.rows = rows.data(), args.stride = w.rows;
  args.out = reinterpret_cast<uint16_t*>(out.data()), args.fp8_out = true;
  if (!gate) args.next_norm = norm.data(), args.next_squares = squares.data();
  out.fill_bytes(0xff);
  linear.launch(nullptr, {args}, Linear::tile_tokens(tokens));
  check(cudaDeviceSynchronize(), "multiplying");
  const std::vector<uint8_t> given = bytes.host(), found = out.host();
  const std::vector<float> sums = rows.host(), squared = squares.host();
  const auto dot = [&](int row, int token) {
    double sum = 0;
    for (int c = 0; c < w.columns; ++c) {
      sum += double(weights[size_t(row) * w.columns + c]) * group_value(given, c, token, padded);
    }
    return sum;
  };
  double difference = 0, size = 0, worst_squares = 0;
  for (int i = 0; i < 1500; ++i) {
    const int column = int(i * 7919ll % columns), token = int(i * 104729ll / 13 % tokens);
    double expected;
    if (gate) {
      const double g = dot(column / 8 * 16 + column % 8, token);
      expected = g / (1 + std::exp(-g)) * dot(column / 8 * 16 + 8 + column % 8, token);
    } else {
      expected = (before[size_t(token) * w.rows + column] + dot(column, token)) * factor[column];
    }
    const double actual = group_value(found, column, token, padded);
    difference += (actual - expected) * (actual - expected), size += expected * expected;
  }
  for (int i = 0; i < 100 && !gate; ++i) {
    const int tile = i * 7 % (w.rows / 128), token = i * 13 % tokens;
    double expected = 0;
    for (int r = 0; r < 128; ++r) {
      const double sum = sums[size_t(token) * w.rows + tile * 128 + r];
      expected += sum * sum;
    }
    worst_squares =
        std::max(worst_squares, std::abs(squared[size_t(tile) * padded + token] / expected - 1));
  }
  // E4M3 has 4 significant bits: a result is off by up to 1/16 of itself, by at most 1/16 / sqrt(3)
  // in the root mean square.
  const double error = std::sqrt(difference / size), limit = 1.0 / 16 / std::sqrt(3.0);
  const bool passed = error < limit && worst_squares < 1e-5;
  if (!passed) ++failures;
  std::printf(
      "e4m3 results %5d x %5d tokens %3d epilogue %d: error %.2e (limit %.0e), squares %.1e %s\n",
      w.rows, w.columns, tokens, int(epilogue), error, limit, worst_squares,
      passed ? "ok" : "WRONG");
}

// Skinny GEMM of routed experts: gate_up gathers the tokens, down reads the slots. One expert has
// two tiles, one has none. With biases the gate is gpt-oss's.
void check_experts(WeightFormat format, const char* name, int rows, int columns, bool biased) {
  constexpr int kExperts = 4, kTokens = 19, kTiles = 4, kPadded = 32;
  const int tile_matrix[kTiles] = {0, 2, 2, 3}, count[kTiles] = {1, 8, 3, 5};
  std::vector<int> source(kTiles * kSkinnyTile, -1);
  for (int t = 0; t < kTiles; ++t) {
    for (int i = 0; i < count[t]; ++i) source[t * kSkinnyTile + i] = (t * 7 + i * 5) % kTokens;
  }
  const int slots = kTiles * kSkinnyTile, wide = (columns + 63) / 64 * 64;
  DeviceBuffer<int> lists(1 + kTiles + slots);
  std::vector<int> all = {kTiles};
  all.insert(all.end(), tile_matrix, tile_matrix + kTiles);
  all.insert(all.end(), source.begin(), source.end());
  lists.copy_from(all.data(), all.size());
  DeviceBuffer<uint16_t> x(size_t(wide) * kPadded), of_slots(size_t(wide) * slots),
      out(size_t(slots) * (rows / 2 + 64));
  DeviceBuffer<float> to(size_t(slots) * rows), bias(size_t(kExperts) * rows);
  fill_normal(nullptr, bias.data(), bias.size(), 3, biased ? 1.0f : 0.0f, 0.0f);
  fill_normal(nullptr, x.data(), x.size(), 77, 1.0f);
  fill_normal(nullptr, of_slots.data(), of_slots.size(), 78, 1.0f);
  Weights w(format, kExperts, rows, columns, false), pairs(format, kExperts, rows, columns, true);
  const int stored = w.tiles.chunks * format_info(format).columns;
  for (const bool gate : {true, false}) {
    Weights& matrix = gate ? pairs : w;
    SkinnyGemmArgs args;
    args.tiles = matrix.tiles, args.row_count = rows, args.matrices = kExperts;
    args.x = gate ? x.data() : of_slots.data(), args.tokens = args.padded = slots;
    args.tile_count = lists.data(), args.tile_matrix = lists.data() + 1;
    args.source = lists.data() + 1 + kTiles, args.gathers = gate, args.x_padded = kPadded;
    args.epilogue = gate ? Epilogue::gate : Epilogue::store, args.out = out.data();
    args.rows = to.data(), args.stride = rows;
    if (biased) args.bias = bias.data(), args.bias_stride = rows;
    if (biased) args.activation = Activation::clamped_swiglu;
    out.fill_bytes(0xff);
    to.fill_bytes(0xff);
    skinny_gemm(nullptr, format, sms(), args);
    check(cudaDeviceSynchronize(), "multiplying");
    const std::vector<uint16_t> given = gate ? x.host() : of_slots.host(), activated = out.host();
    const std::vector<float> found = to.host(), b = bias.host();
    // On 3 SMs the runs of the thread blocks cross tiles. The bits must not depend on it.
    skinny_gemm(nullptr, format, 3, args);
    check(cudaDeviceSynchronize(), "multiplying again");
    int changed = 0;
    const std::vector<uint16_t> activated_again = out.host();
    const std::vector<float> found_again = to.host();
    for (size_t i = 0; i < activated.size(); ++i) changed += activated_again[i] != activated[i];
    changed += std::memcmp(found.data(), found_again.data(), found.size() * sizeof(float)) != 0;
    double difference = 0, size = 0;
    int touched = 0;
    std::vector<float> weights;  // of the tile's expert
    for (int slot = 0; slot < slots; ++slot) {
      if (slot % kSkinnyTile == 0) weights = matrix.plain(tile_matrix[slot / kSkinnyTile]);
      const auto dot = [&](int row) {
        double sum = b[size_t(tile_matrix[slot / kSkinnyTile]) * rows + row];
        for (int c = 0; c < columns; ++c) {
          const size_t at = gate ? wide_at(c, source[slot], kPadded) : wide_at(c, slot, slots);
          sum += double(weights[size_t(row) * stored + c]) * value_of(given[at]);
        }
        return sum;
      };
      for (int i = 0; i < (gate ? rows / 2 : rows); i += 5) {
        const double actual =
            gate ? value_of(activated[wide_at(i, slot, slots)]) : found[size_t(slot) * rows + i];
        if (source[slot] < 0) {
          touched += !std::isnan(actual);
          continue;
        }
        double expected;
        if (gate) {
          double y = dot(i / 8 * 16 + i % 8), up = dot(i / 8 * 16 + 8 + i % 8);
          if (biased) y = std::min(7.0, y), up = std::clamp(up, -7.0, 7.0) + 1;
          expected = y / (1 + std::exp(biased ? -1.702 * y : -y)) * up;
        } else {
          expected = dot(i);
        }
        difference += (actual - expected) * (actual - expected), size += expected * expected;
      }
    }
    const double error = std::sqrt(difference / size);
    const double limit = rounds_weights(format) ? (gate ? 8e-3 : 5e-3) : gate ? 4e-3 : 1e-5;
    const bool passed = error < limit && touched == 0 && changed == 0;
    if (!passed) ++failures;
    std::printf(
        "experts %-5s %5d x %5d gate %d: error %.2e (limit %.0e), padding touched %d, changed %d "
        "%s\n",
        name, rows, columns, gate, error, limit, touched, changed, passed ? "ok" : "WRONG");
  }
}

// Prefill GEMM of routed experts: every tile of 256 slots has a matrix and a bias of its own.
void check_grouped(WeightFormat format, const char* name, int rows, int columns) {
  constexpr int kExperts = 3, kTiles = 4, kSlots = kTiles * 256;
  const int lists[1 + kTiles] = {kTiles, 2, 0, 0, 1};
  DeviceBuffer<int> tiles(1 + kTiles);
  tiles.copy_from(lists, 1 + kTiles);
  Weights w(format, kExperts, rows, columns, false), pairs(format, kExperts, rows, columns, true);
  const int stored = w.tiles.chunks * format_info(format).columns,
            bias_stride = w.tiles.blocks * 16;
  DeviceBuffer<uint16_t> x(size_t(kSlots) * columns), out(size_t(kSlots) * (rows / 2 + 64));
  DeviceBuffer<float> to(size_t(kSlots) * rows), bias(size_t(kExperts) * bias_stride);
  fill_normal(nullptr, x.data(), x.size(), 78, 1.0f);
  fill_normal(nullptr, bias.data(), bias.size(), 3, 1.0f, 0.0f);
  check(cudaDeviceSynchronize(), "filling");
  const std::vector<float> b = bias.host();
  const std::vector<uint16_t> given = x.host();
  for (const bool gate : {true, false}) {
    Weights& matrix = gate ? pairs : w;
    LinearArgs args;
    args.tiles = matrix.tiles, args.row_count = rows, args.matrices = kExperts, args.x = x.data();
    args.tokens = args.padded = kSlots;
    args.tile_count = tiles.data(), args.tile_matrix = tiles.data() + 1;
    args.bias = bias.data(), args.bias_stride = bias_stride;
    args.epilogue = gate ? Epilogue::gate : Epilogue::store;
    args.activation = gate ? Activation::clamped_swiglu : Activation::silu;
    args.rows = to.data(), args.stride = rows, args.out = out.data();
    out.fill_bytes(0xff), to.fill_bytes(0xff);
    prefill_gemm(nullptr, format, sms(), args);
    check(cudaDeviceSynchronize(), "multiplying");
    const std::vector<uint16_t> activated = out.host();
    const std::vector<float> found = to.host();
    double difference = 0, size = 0;
    for (int tile = 0; tile < kTiles; ++tile) {
      const int expert = lists[1 + tile];
      const std::vector<float> weights = matrix.plain(expert);
      for (int i = 0; i < 300; ++i) {
        const int slot = tile * 256 + i * 37 % 256, row = i * 53 % (gate ? rows / 2 : rows);
        const auto dot = [&](int of_row) {
          double sum = b[size_t(expert) * bias_stride + of_row];
          for (int c = 0; c < columns; ++c) {
            sum += double(weights[size_t(of_row) * stored + c]) *
                   value_of(given[wide_at(c, slot, kSlots)]);
          }
          return sum;
        };
        double expected = 0, actual = 0;
        if (gate) {
          const double g = std::min(7.0, dot(row / 8 * 16 + row % 8));
          const double u = std::clamp(dot(row / 8 * 16 + 8 + row % 8), -7.0, 7.0);
          expected = g / (1 + std::exp(-1.702 * g)) * (u + 1);
          actual = value_of(activated[wide_at(row, slot, kSlots)]);
        } else {
          expected = dot(row), actual = found[size_t(slot) * rows + row];
        }
        difference += (actual - expected) * (actual - expected), size += expected * expected;
      }
    }
    const double error = std::sqrt(difference / size);
    const double limit = error_limit(Kernel::prefill, w, args.epilogue);
    if (!(error < limit)) ++failures;
    std::printf("grouped %-5s %5d x %5d gate %d: error %.2e (limit %.0e) %s\n", name, rows, columns,
                gate, error, limit, error < limit ? "ok" : "WRONG");
  }
}

void check_all(const std::string& only) {
  for (const auto& [format, name] : kFormats) {
    if (!only.empty() && only != name) continue;
    Linear linear(format, sms());
    for (const auto& [rows, columns] :
         {std::pair(512, 512), {776, 576}, {4096, 4096}, {1040, 1040}, {6144, 1024}}) {
      Weights w(format, 2, rows, columns, false), pairs(format, 2, rows, columns, true);
      for (const int tokens : {1, 9, 16, 17, 32, 64, 100, 200, 520}) {
        for (const Kernel kernel :
             {Kernel::wgmma, Kernel::skinny, Kernel::prefill, Kernel::prefill_fp8,
              Kernel::chain_fp8, Kernel::chain_fp8_wide}) {
          if (kernel == Kernel::skinny && tokens > kSkinnyDenseTokens) continue;
          if (kernel >= Kernel::chain_fp8 &&
              (format != WeightFormat::fp8 || tokens > 128 || columns % 128 || rows % 128)) {
            continue;
          }
          if ((kernel == Kernel::prefill || kernel == Kernel::prefill_fp8) && tokens <= 128) {
            continue;
          }
          if (kernel == Kernel::prefill_fp8 &&
              (format != WeightFormat::fp8 || columns < 1024 || columns % 128)) {
            continue;
          }
          check_case(kernel, linear, w, name, tokens, Epilogue::store);
          check_case(kernel, linear, w, name, tokens, Epilogue::add);
          check_case(kernel, linear, pairs, name, tokens, Epilogue::gate);
          if (kernel == Kernel::chain_fp8 && rows % 128 == 0) {
            check_fp8_results(linear, w, tokens, Epilogue::add);
            check_fp8_results(linear, pairs, tokens, Epilogue::gate);
          }
        }
      }
    }
    // Shapes whose thread blocks compute two row tiles each on 132 SMs, in narrow formats and at
    // most 64 tokens. In the second shape the last thread block has one.
    for (const auto& [rows, columns] : {std::pair(28672, 512), {24656, 576}}) {
      Weights pairs(format, 2, rows, columns, true);
      for (const int tokens : {9, 64, 100}) {
        check_case(Kernel::wgmma, linear, pairs, name, tokens, Epilogue::gate);
      }
    }
    check_grouped(format, name, 784, 576);
    for (const auto& [rows, columns] :
         {std::pair(512, 512), {784, 144}, {4096, 768}, {272, 4672}}) {
      check_experts(format, name, rows, columns, false);
      check_experts(format, name, rows, columns, true);
    }
  }
}

struct Timer {
  Timer() { cudaEventCreate(&start), cudaEventCreate(&stop); }
  template <typename F>
  double median(int repeats, const F& f) {
    f();
    std::vector<double> times;
    for (int i = 0; i < repeats; ++i) {
      cudaEventRecord(start);
      f();
      cudaEventRecord(stop);
      check(cudaDeviceSynchronize(), "timing");
      float ms;
      cudaEventElapsedTime(&ms, start, stop);
      times.push_back(ms / 1e3);
    }
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
  }
  cudaEvent_t start, stop;
};

// `only_format` empty: all formats; `only_tokens` 0: all numbers of tokens.
void time_all(const std::string& only_format, int only_tokens) {
  Timer timer;
  for (const auto& [format, name] : kFormats) {
    if (!only_format.empty() && only_format != name) continue;
    constexpr int kLayers = 6;
    Linear linear(format, sms());
    Weights qkv(format, kLayers, 6144, 4096, false), out(format, kLayers, 4096, 4096, false);
    Weights gate_up(format, kLayers, 28672, 4096, true), down(format, kLayers, 4096, 14336, false);
    DeviceBuffer<uint16_t> x(size_t(8192) * 14336), activated(size_t(8192) * 14336);
    DeviceBuffer<float> rows(size_t(8192) * 6144), norm(4096), squares(size_t(128) * 32);
    DeviceBuffer<uint16_t> normed(size_t(128) * 4096), quantized(size_t(128) * 4096);
    fill_normal(nullptr, norm.data(), norm.size(), 7, 0.1f, 1.0f);
    fill_normal(nullptr, x.data(), x.size(), 77, 1.0f);
    rows.fill_bytes(0);
    struct Case {
      const char* name;
      Weights* w;
      Epilogue epilogue;
    };
    const Case cases[] = {{"qkv", &qkv, Epilogue::store},
                          {"out", &out, Epilogue::add},
                          {"gate_up", &gate_up, Epilogue::gate},
                          {"down", &down, Epilogue::add}};
    for (const int tokens : {1, 8, 16, 32, 64, 128, 256, 512, 2048, 8192}) {
      if (only_tokens && only_tokens != tokens) continue;
      const auto one = [&](const Case& c, int layer) {
        LinearArgs args;
        args.tiles = c.w->tiles, args.matrix = layer, args.row_count = c.w->rows, args.x = x.data();
        args.tokens = tokens, args.padded = Linear::padded(tokens), args.epilogue = c.epilogue;
        args.rows = rows.data(), args.stride = c.w->rows, args.out = activated.data();
        if (tokens <= kSkinnyDenseTokens) return skinny_gemm(nullptr, format, sms(), {args});
        linear.launch(nullptr, {args}, Linear::tile_tokens(tokens));
      };
      const auto print = [&](const char* what, double seconds, double bytes, double weights) {
        std::printf("%-5s %5d tokens %-8s %9.2f us  %6.3f TB/s  %7.1f TFLOP/s\n", name, tokens,
                    what, seconds * 1e6, bytes / seconds * 1e-12,
                    2 * weights * tokens / seconds * 1e-12);
      };
      double bytes = 0, count = 0;
      for (const Case& c : cases) {
        bytes += double(c.w->tiles.stride), count += double(c.w->rows) * c.w->columns;
        const double s = timer.median(9, [&] {
          for (int l = 0; l < kLayers; ++l) one(c, l);
        }) / kLayers;
        print(c.name, s, double(c.w->tiles.stride), double(c.w->rows) * c.w->columns);
      }
      const double s = timer.median(9, [&] {
        for (int l = 0; l < kLayers; ++l)
          for (const Case& c : cases) one(c, l);
      }) / kLayers;
      print("layer", s, bytes, count);
      if (tokens > Linear::kMaxChainedTokens) continue;
      // The chain of a layer, with folded norms.
      const auto chained = [&](int layer, bool fp8) {
        std::vector<LinearArgs> ops;
        for (const Case& c : {cases[1], cases[2], cases[3], cases[0]}) {
          LinearArgs args;
          args.tiles = c.w->tiles, args.matrix = layer, args.row_count = c.w->rows;
          args.tokens = tokens, args.padded = Linear::padded(tokens), args.epilogue = c.epilogue;
          args.x = c.w == &out ? x.data() : c.w == &down ? activated.data() : normed.data();
          args.rows = c.w == &qkv ? rows.data() + size_t(tokens) * 4096 : rows.data();
          args.stride = c.w->rows, args.out = activated.data();
          args.fp8_tokens = fp8, args.fp8_out = fp8 && c.w != &qkv;
          args.fp8_group = c.w == &down || c.w == &out ? 64 : 128;
          if (fp8 && c.w == &out) args.quantized_x = reinterpret_cast<uint8_t*>(quantized.data());
          if (c.epilogue == Epilogue::add) {
            args.next_norm = norm.data(), args.next_squares = squares.data();
            args.out = normed.data();
          } else {
            args.squares = squares.data(), args.square_tiles = 32, args.square_columns = 4096;
            args.eps = 1e-5f;
          }
          ops.push_back(args);
        }
        linear.launch(nullptr, ops, Linear::tile_tokens(tokens));
      };
      for (const bool fp8 : {false, true}) {
        if (fp8 && format != WeightFormat::fp8) continue;
        const double chain = timer.median(9, [&] {
          for (int l = 0; l < kLayers; ++l) chained(l, fp8);
        }) / kLayers;
        print(fp8 ? "in E4M3" : "chain", chain, bytes, count);
      }
    }
  }
}

int run(int count, char** words) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  if (count > 1 && std::string(words[1]) == "time") {
    time_all(count > 2 ? words[2] : "", count > 3 ? std::atoi(words[3]) : 0);
    return 0;
  }
  check_all(count > 2 ? words[2] : "");
  return report_failures();
}

}  // namespace
}  // namespace ridge::cuda

int main(int count, char** words) { return ridge::cuda::run_bench(ridge::cuda::run, count, words); }
