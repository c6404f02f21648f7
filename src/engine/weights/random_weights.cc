// Random weights, which need no file. A counter-based generator lets any thread generate any row.
#include "engine/weights/random_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/affinity.h"
#include "base/error.h"
#include "base/file.h"
#include "base/memory_limit.h"
#include "base/random.h"
#include "base/units.h"
#include "engine/weights/embedded_model.h"
#include "engine/weights/load_tensors.h"
#include "engine/weights/storage_blocks.h"
#include "hub/hub_cache.h"
#include "model/gguf.h"
#include "model/read.h"

namespace ridge {

namespace {

namespace fs = std::filesystem;

constexpr double kDeviation = 0.02;

// Midpoints of 4096 equally likely slices of the normal distribution: 12 random bits select one.
constexpr size_t kSlices = 4096;

double normal_quantile(double p) {  // by bisection of erfc; only used to build tables
  double low = -8, high = 8;
  for (int i = 0; i < 60; ++i) {
    const double middle = (low + high) / 2;
    (0.5 * std::erfc(-middle / std::sqrt(2.0)) < p ? low : high) = middle;
  }
  return (low + high) / 2;
}

const std::array<float, kSlices>& normal_table() {
  static const auto kTable = [] {
    std::array<float, kSlices> table;
    for (size_t i = 0; i < kSlices; ++i) {
      table[i] = float(normal_quantile((double(i) + 0.5) / double(kSlices)));
    }
    return table;
  }();
  return kTable;
}

template <typename T, typename Make>
std::array<T, kSlices> table_of(Make make) {
  std::array<T, kSlices> table;
  for (size_t i = 0; i < kSlices; ++i) table[i] = make(i);
  return table;
}

// Draws five table elements from each 64 random bits.
template <typename T>
void fill_from(const std::array<T, kSlices>& table, SplitMix64& random, T* to, int64_t count) {
  int64_t i = 0;
  for (; i + 5 <= count; i += 5) {
    uint64_t bits = random.next();
    for (int j = 0; j < 5; ++j, bits >>= 12) to[i + j] = table[bits & (kSlices - 1)];
  }
  for (uint64_t bits = random.next(); i < count; ++i, bits >>= 12) {
    to[i] = table[bits & (kSlices - 1)];
  }
}

template <typename T>
void fill_plain(const std::array<T, kSlices>& table, SplitMix64& random, std::byte* to,
                int64_t count) {
  fill_from(table, random, reinterpret_cast<T*>(to), count);  // make_memory aligned `to`
}

uint16_t half(double value) { return f32_to_f16(float(value)); }

// Integers distributed as if normal numbers had been quantized: the largest of 32 (about 2.1
// standard deviations) uses the whole range.
constexpr double kPeak = 2.1;

void fill_block(SplitMix64& random, BlockQ8_0& block) {
  static const auto kTable = table_of<int8_t>([](size_t i) {
    return int8_t(std::clamp(std::round(normal_table()[i] * (127 / kPeak)), -127.0, 127.0));
  });
  block.d = half(kDeviation * kPeak / 127);
  fill_from(kTable, random, block.q, 32);
}

void fill_block(SplitMix64& random, BlockQ4_0& block) {
  // 6 bits for each of the two nibbles in a byte.
  static const auto kTable = table_of<uint8_t>([](size_t i) {
    auto nibble = [](size_t slice) {
      const double normal = normal_table()[slice * 64 + 32];
      return size_t(std::clamp(std::round(normal * (8 / kPeak)) + 8, 0.0, 15.0));
    };
    return uint8_t(nibble(i % 64) | nibble(i / 64) << 4);
  });
  block.d = half(kDeviation * kPeak / 8);
  fill_from(kTable, random, block.q, 16);
}

// The other formats: every integer is equally likely, and the scale gives the right standard
// deviation. Uniform 0 .. n has the deviation sqrt((n + 1)^2 - 1) / sqrt(12) around n / 2.
double uniform_scale(int most) {
  return kDeviation / std::sqrt((std::pow(most + 1.0, 2) - 1) / 12);
}

void fill_bytes(SplitMix64& random, void* to, size_t count) {
  auto* bytes = static_cast<std::byte*>(to);
  for (size_t i = 0; i < count; i += 8) {
    const uint64_t bits = random.next();
    std::memcpy(bytes + i, &bits, std::min<size_t>(8, count - i));
  }
}

void fill_block(SplitMix64& random, BlockQ5_0& block) {
  block.d = half(uniform_scale(31));
  fill_bytes(random, block.high, sizeof(block) - 2);
}

template <typename Block>
void fill_ranged(SplitMix64& random, Block& block, int most) {
  const double d = uniform_scale(most);
  block.d = half(d);
  block.m = half(-d * most / 2);
  fill_bytes(random, reinterpret_cast<std::byte*>(&block) + 4, sizeof(block) - 4);
}
void fill_block(SplitMix64& random, BlockQ4_1& block) { fill_ranged(random, block, 15); }
void fill_block(SplitMix64& random, BlockQ5_1& block) { fill_ranged(random, block, 31); }

// Scales are 32 .. 63 (root mean square 48.4); mins centre the range on zero.
template <typename Block>
void fill_k(SplitMix64& random, Block& block, int most) {
  const double d = uniform_scale(most) / 48.4;
  fill_bytes(random, &block, sizeof(block));
  block.d = half(d);
  block.dmin = half(d * most / 2);
  std::memset(block.scales, 0, sizeof(block.scales));
  uint64_t bits = random.next();
  for (int g = 0; g < 8; ++g, bits >>= 8) {
    const auto scale = uint8_t(32 + (bits & 31));
    set_scale_min(block.scales, g, {scale, scale});
  }
}
void fill_block(SplitMix64& random, BlockQ4K& block) { fill_k(random, block, 15); }
void fill_block(SplitMix64& random, BlockQ5K& block) { fill_k(random, block, 31); }

void fill_block(SplitMix64& random, BlockQ6K& block) {
  fill_bytes(random, &block, sizeof(block));
  for (int8_t& scale : block.scales) scale = int8_t(64 + (scale & 63));  // root mean square 97.3
  block.d = half(uniform_scale(63) / 97.3);
}

// All codes are equally likely: the mean square of e2m1's numbers is 8.56. With a scale of 2^-7 in
// eleven blocks of sixteen and of 2^-8 in the others that is the deviation of 0.02.
void fill_block(SplitMix64& random, BlockMxfp4& block) {
  block.exponent = random.next() % 16 < 11 ? 127 - 7 : 127 - 8;
  fill_bytes(random, block.q, sizeof(block.q));
}

// Normal numbers, the largest of 128 (about 2.7 standard deviations) near 448.
void fill_block(SplitMix64& random, BlockFp8& block) {
  constexpr double kUnit = 448 / 2.7;
  static const auto kTable =
      table_of<uint8_t>([](size_t i) { return f32_to_e4m3(float(normal_table()[i] * kUnit)); });
  block.d = float(kDeviation / kUnit);
  fill_from(kTable, random, block.q, 128);
}

template <typename Block>
void fill_blocks(SplitMix64& random, std::byte* to, int64_t count, int elements) {
  for (int64_t i = 0; i < count / elements; ++i) {
    Block block;
    fill_block(random, block);
    std::memcpy(to + i * int64_t{sizeof(Block)}, &block, sizeof(Block));
  }
}

void fill_row(Storage storage, SplitMix64 random, std::byte* to, int64_t count) {
  static const auto kF32 =
      table_of<float>([](size_t i) { return float(kDeviation) * normal_table()[i]; });
  static const auto kF16 = table_of<uint16_t>([](size_t i) { return f32_to_f16(kF32[i]); });
  static const auto kBf16 = table_of<uint16_t>([](size_t i) { return f32_to_bf16(kF32[i]); });
  switch (storage) {
    case Storage::f32:
      return fill_plain(kF32, random, to, count);
    case Storage::f16:
      return fill_plain(kF16, random, to, count);
    case Storage::bf16:
      return fill_plain(kBf16, random, to, count);
    case Storage::q8_0:
      return fill_blocks<BlockQ8_0>(random, to, count, 32);
    case Storage::q4_0:
      return fill_blocks<BlockQ4_0>(random, to, count, 32);
    case Storage::q4_1:
      return fill_blocks<BlockQ4_1>(random, to, count, 32);
    case Storage::q5_0:
      return fill_blocks<BlockQ5_0>(random, to, count, 32);
    case Storage::q5_1:
      return fill_blocks<BlockQ5_1>(random, to, count, 32);
    case Storage::q4_k:
      return fill_blocks<BlockQ4K>(random, to, count, 256);
    case Storage::q5_k:
      return fill_blocks<BlockQ5K>(random, to, count, 256);
    case Storage::q6_k:
      return fill_blocks<BlockQ6K>(random, to, count, 256);
    case Storage::mxfp4:
      return fill_blocks<BlockMxfp4>(random, to, count, 32);
    case Storage::fp8:
      return fill_blocks<BlockFp8>(random, to, count, 128);
    case Storage::kCount:
      break;
  }
}

// Start of a row's random sequence, different for every slot and row.
uint64_t row_start(uint64_t seed, size_t slot, int64_t row) {
  return mix64(mix64(mix64(seed + 1) + slot) + uint64_t(row));
}

struct Piece {  // some rows of one slot
  size_t slot;
  int64_t first, last;
};

void fill_pieces(const std::vector<Slot>& slots, const std::vector<Piece>& pieces,
                 std::byte* memory, uint64_t seed, int threads) {
  std::atomic<size_t> next{0};
  auto work = [&] {
    for (size_t i = next++; i < pieces.size(); i = next++) {
      const Piece& piece = pieces[i];
      const Matrix& matrix = *slots[piece.slot].matrix;
      std::byte* data = memory + (matrix.data - memory);
      for (int64_t row = piece.first; row < piece.last; ++row) {
        fill_row(matrix.storage, SplitMix64(row_start(seed, piece.slot, row)),
                 data + row * matrix.row_stride, matrix.columns);
      }
    }
  };
  std::vector<std::jthread> workers;
  for (int t = 1; t < threads; ++t) workers.emplace_back(work);
  work();
}

// Every matrix starts on a cache line, and so do the rows if their size is a whole number of lines.
size_t place(const Model& model, const std::vector<Slot>& slots, Storage storage,
             std::vector<Piece>& pieces) {
  const bool released = storage == Storage::bf16 && has_mxfp4_experts(model);
  constexpr int64_t kPieceBytes = 1 << 20;
  size_t offset = 0;
  for (size_t i = 0; i < slots.size(); ++i) {
    if (!slots[i].matrix) continue;
    Matrix& matrix = *slots[i].matrix;
    const bool mxfp4 = released && slots[i].expert >= 0;
    matrix.storage = storage_for(slots[i].role, slots[i].columns, mxfp4 ? Storage::mxfp4 : storage);
    matrix.rows = slots[i].rows;
    matrix.columns = slots[i].columns;
    matrix.row_stride = int64_t(storage_bytes(matrix.storage, matrix.columns));
    // An offset until the memory is allocated.
    matrix.data = reinterpret_cast<const std::byte*>(offset);
    const int64_t rows = std::max<int64_t>(1, kPieceBytes / matrix.row_stride);
    for (int64_t row = 0; row < matrix.rows; row += rows) {
      pieces.push_back({i, row, std::min(matrix.rows, row + rows)});
    }
    offset += (size_t(matrix.bytes()) + 63) / 64 * 64;
  }
  return offset;
}

void describe_gguf(Weights& weights, std::string_view file, const std::string& where) {
  const GgufHeader header = parse_gguf(file, where);
  weights.model = model_from_gguf_header(header, where);
  weights.architecture = architecture_of(weights.model);
  weights.model.name = weights.model.title = fs::path(where).stem().string();
}

void describe(Weights& weights, const std::string& name) {
  std::error_code error;
  const fs::path path = name;
  const bool exists = fs::exists(path, error);
  if (!exists && !embedded_model(name).empty()) {
    return describe_gguf(weights, embedded_model(name), name.empty() ? "ridge-7m" : name);
  }
  if (path.extension() == ".gguf") return describe_gguf(weights, MappedFile(name).bytes(), name);
  weights.model = find_model(name);
  weights.architecture = architecture_of(weights.model);
}

// The matrices lie in fresh memory, not filled; the vectors are.
std::shared_ptr<std::byte> lay_out_random(Weights& weights, const std::vector<Slot>& slots,
                                          const std::string& name, Storage storage, uint64_t seed,
                                          int hosts, std::vector<Piece>& pieces) {
  const size_t bytes = place(weights.model, slots, storage, pieces);
  if (double(bytes) / hosts > 0.95 * free_bytes()) {
    throw Error("{}: random weights need {}, {} of memory are free", name,
                pretty_bytes(double(bytes) / hosts), pretty_bytes(free_bytes()));
  }
  std::shared_ptr<std::byte> memory = make_memory(bytes);
  for (size_t i = 0; i < slots.size(); ++i) {
    if (slots[i].matrix) {
      slots[i].matrix->data = memory.get() + reinterpret_cast<uintptr_t>(slots[i].matrix->data);
    } else if (is_norm(slots[i].role)) {
      slots[i].vector->assign(size_t(slots[i].rows), 1.0f);
    } else {
      slots[i].vector->resize(size_t(slots[i].rows));
      fill_row(Storage::f32, SplitMix64(row_start(seed, i, 0)),
               reinterpret_cast<std::byte*>(slots[i].vector->data()), slots[i].rows);
    }
  }
  weights.owners.push_back(memory);
  weights.described_by = name;
  weights.source = fmt::format("{}, random:{}", name, seed);
  return memory;
}

int filling_threads(int wanted) {
  return wanted > 0 ? wanted : static_cast<int>(usable_processors().size());
}

void fill_randomly(Weights& weights, const std::string& name, Storage storage, uint64_t seed,
                   int threads) {
  const std::vector<Slot> slots = make_slots(weights);
  std::vector<Piece> pieces;
  const std::shared_ptr<std::byte> memory =
      lay_out_random(weights, slots, name, storage, seed, 1, pieces);
  fill_pieces(slots, pieces, memory.get(), seed, filling_threads(threads));
  finish_weights(weights);
}

// A matrix of the whole, as it was before anybody could cut it.
struct RandomMatrix {
  size_t slot;
  Matrix whole;
};

// Every row of the view is generated from its start, because the numbers of a row follow each
// other; its columns are kept.
void fill_view(const RandomMatrix& from, std::byte* memory, const Matrix& view, uint64_t seed,
               int threads) {
  const int64_t offset = view.data - from.whole.data;
  const int64_t first = offset / from.whole.row_stride, skipped = offset % from.whole.row_stride;
  const size_t kept = storage_bytes(view.storage, view.columns);
  std::byte* to = memory + (view.data - memory);
  std::atomic<int64_t> next{0};
  const auto work = [&] {
    constexpr int64_t kRows = 16;
    std::vector<std::byte> row(static_cast<size_t>(from.whole.row_stride));
    for (int64_t at = next.fetch_add(kRows); at < view.rows; at = next.fetch_add(kRows)) {
      for (int64_t r = at; r < std::min(view.rows, at + kRows); ++r) {
        fill_row(view.storage, SplitMix64(row_start(seed, from.slot, first + r)), row.data(),
                 from.whole.columns);
        std::memcpy(to + r * view.row_stride, row.data() + skipped, kept);
      }
    }
  };
  std::vector<std::jthread> workers;
  for (int t = 1; t < threads; ++t) workers.emplace_back(work);
  work();
}

}  // namespace

Architecture read_architecture(const std::string& name) {
  if (const std::optional<std::string> cached = find_cached_model(name)) {
    return read_architecture(*cached);
  }
  Weights described;
  const fs::path path = name;
  const bool file = path.extension() == ".safetensors";  // next to its config.json
  describe(described, file ? (path.parent_path() / ".").string() : name);
  return described.architecture;
}

Weights random_weights(const std::string& name, Storage storage, uint64_t seed, int threads) {
  if (const std::optional<std::string> cached = find_cached_model(name)) {
    Weights cached_weights = random_weights(*cached, storage, seed, threads);
    cached_weights.source = fmt::format("{}, random:{}", name, seed);
    return cached_weights;
  }
  Weights weights;
  describe(weights, name);
  fill_randomly(weights, name.empty() ? "ridge-7m" : name, storage, seed, threads);
  return weights;
}

Weights random_weights_of(const nlohmann::json& config, const std::string& name, Storage storage,
                          uint64_t seed, int threads) {
  Weights weights;
  weights.model = read_config(config, name);
  weights.model.name = weights.model.title = name;
  weights.architecture = architecture_of(weights.model);
  fill_randomly(weights, name, storage, seed, threads);
  return weights;
}

Weights undrawn_weights_of(const nlohmann::json& config, const std::string& name) {
  Weights weights;
  weights.model = read_config(config, name);
  weights.model.name = weights.model.title = name;
  weights.architecture = architecture_of(weights.model);
  const std::vector<Slot> slots = make_slots(weights);
  std::vector<Piece> unused;
  place(weights.model, slots, Storage::bf16, unused);
  for (const Slot& slot : slots) {
    if (slot.matrix) {
      slot.matrix->data = nullptr;
    } else {
      slot.vector->assign(size_t(slot.rows), 1.0f);
    }
  }
  weights.described_by = name;
  weights.source = fmt::format("{}, random on the device", name);
  finish_weights(weights);
  return weights;
}

LazyWeights lazy_random_weights(const std::string& name, Storage storage, uint64_t seed,
                                int threads, int hosts) {
  if (const std::optional<std::string> cached = find_cached_model(name)) {
    LazyWeights parts = lazy_random_weights(*cached, storage, seed, threads, hosts);
    parts.whole.source = fmt::format("{}, random:{}", name, seed);
    return parts;
  }
  LazyWeights parts;
  describe(parts.whole, name);
  const std::vector<Slot> slots = make_slots(parts.whole);
  std::vector<Piece> pieces;
  const std::shared_ptr<std::byte> memory = lay_out_random(
      parts.whole, slots, name.empty() ? "ridge-7m" : name, storage, seed, hosts, pieces);
  std::vector<RandomMatrix> matrices;
  for (size_t i = 0; i < slots.size(); ++i) {
    if (slots[i].matrix) matrices.push_back({i, *slots[i].matrix});
  }
  finish_weights(parts.whole);
  parts.make = [memory, matrices, seed, threads](const Matrix& view) {
    for (const RandomMatrix& matrix : matrices) {
      const int64_t bytes = matrix.whole.rows * matrix.whole.row_stride;
      if (view.data < matrix.whole.data || view.data >= matrix.whole.data + bytes) continue;
      return fill_view(matrix, memory.get(), view, seed, filling_threads(threads));
    }
  };
  return parts;
}

}  // namespace ridge
