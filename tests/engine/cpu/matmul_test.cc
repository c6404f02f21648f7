#include "engine/cpu/matmul.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string_view>

#include "engine/cpu/elementwise.h"
#include "engine/cpu/matmul_amx.h"
#include "engine/cpu/matmul_kernels.h"
#include "engine/reference/activation.h"
#include "engine/reference/matmul.h"
#include "engine/weights/storage_blocks.h"

namespace ridge::cpu {
namespace {

constexpr float kSentinel = 12345;

// Ends where readable memory ends: reading past a matrix is a fault. `shift` bytes off alignment.
class EdgeMemory {
 public:
  explicit EdgeMemory(size_t bytes) {
    const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    mapped_ = (bytes + page - 1) / page * page + page;
    base_ = mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    std::byte* const end = static_cast<std::byte*>(base_) + mapped_ - page;
    mprotect(end, page, PROT_NONE);
    data_ = end - bytes;
  }
  ~EdgeMemory() { munmap(base_, mapped_); }
  EdgeMemory(const EdgeMemory&) = delete;
  EdgeMemory& operator=(const EdgeMemory&) = delete;
  std::byte* data() const { return data_; }

 private:
  size_t mapped_;
  void* base_;
  std::byte* data_;
};

struct TestMatrix {
  Matrix view;
  std::unique_ptr<EdgeMemory> memory;
};

std::vector<float> normal(size_t count, std::mt19937& random, float deviation = 1) {
  std::normal_distribution<float> distribution(0, deviation);
  std::vector<float> values(count);
  for (float& value : values) value = distribution(random);
  return values;
}

// Weights that quantize() makes, or blocks of random integers with ordinary scales.
TestMatrix make_matrix(Storage storage, int64_t rows, int64_t columns, std::mt19937& random) {
  const size_t row_bytes = storage_bytes(storage, columns);
  TestMatrix matrix;
  matrix.memory = std::make_unique<EdgeMemory>(row_bytes * static_cast<size_t>(rows));
  std::byte* const data = matrix.memory->data();
  matrix.view = {storage, rows, columns, data, static_cast<int64_t>(row_bytes)};
  const uint16_t scale = f32_to_f16(0.01f);
  for (int64_t r = 0; r < rows; ++r) {
    std::byte* const row = data + static_cast<size_t>(r) * row_bytes;
    if (storage != Storage::q5_k && storage != Storage::q6_k) {
      quantize(storage, normal(static_cast<size_t>(columns), random, 0.02f).data(), columns, row);
      continue;
    }
    for (size_t i = 0; i < row_bytes; ++i) row[i] = std::byte(random());
    for (int64_t b = 0; b < columns / 256; ++b) {
      std::byte* const block = row + b * storage_info(storage).bytes;
      if (storage == Storage::q6_k) {
        std::memcpy(block + 208, &scale, 2);
      } else {
        std::memcpy(block, &scale, 2);
        std::memcpy(block + 2, &scale, 2);
      }
    }
  }
  return matrix;
}

// What the kernels take for x: rounded to bf16, or to 127ths of a block's largest magnitude.
std::vector<float> as_input(InputKind kind, const std::vector<float>& x, size_t columns) {
  std::vector<float> rounded = x;
  if (kind == InputKind::bf16) {
    for (float& value : rounded) value = bf16_to_f32(f32_to_bf16(value));
  } else if (kind == InputKind::int8) {
    EXPECT_EQ(columns % 32, 0u);
    for (size_t at = 0; at < x.size(); at += 32) {
      float peak = 0;
      for (size_t i = at; i < at + 32; ++i) peak = std::max(peak, std::abs(x[i]));
      for (size_t i = at; i < at + 32; ++i) {
        rounded[i] = peak / 127 * std::nearbyint(x[i] * (127 / peak));
        EXPECT_LE(std::abs(rounded[i] - x[i]), peak / 127 * 0.501f);
      }
    }
  }
  return rounded;
}

// Sum over c of the magnitudes that meet in a sum: |w x|, or with mins |scale q x| + |min x|.
double magnitude(const Matrix& m, int64_t row, const float* x) {
  std::vector<float> w(static_cast<size_t>(m.columns));
  dequantize(m.storage, m.row(row), m.columns, w.data());
  const bool k = m.storage == Storage::q4_k || m.storage == Storage::q5_k;
  double sum = 0;
  for (size_t c = 0; c < w.size(); ++c) {
    float min = 0;
    if (k) {
      BlockQ4K head;  // q5_k starts alike
      std::memcpy(&head, m.row(row) + c / 256 * static_cast<size_t>(storage_info(m.storage).bytes),
                  offsetof(BlockQ4K, q));
      min = f16_to_f32(head.dmin) * scale_min(head.scales, static_cast<int>(c % 256 / 32)).min;
    } else if (m.storage == Storage::q4_1 || m.storage == Storage::q5_1) {
      uint16_t bits;
      std::memcpy(&bits,
                  m.row(row) + c / 32 * static_cast<size_t>(storage_info(m.storage).bytes) + 2, 2);
      min = std::abs(f16_to_f32(bits));
    }
    sum += (double(std::abs(w[c])) + 2 * double(min)) * double(std::abs(x[c]));
  }
  return sum;
}

// Against the reference on the rounded activations what remains is f32's rounding: each sum passes
// at most `depth` roundings of 2^-24 (plain: 512 / 4 lanes, or 1024 / 32 of bf16 pairs twice, then
// the lanes' tree and the chunks; blocks: three a block). K formats round their scales to f16. In
// tiles, the weights of block formats are rounded to bf16.
double relative_bound(Storage storage, int64_t columns, InputKind kind) {
  const double eps = std::ldexp(1, -24);
  if (layout_of(storage) == Layout::plain) return eps * (128 + 8 + double(columns) / 512 + 1);
  const bool k = storage == Storage::q4_k || storage == Storage::q5_k || storage == Storage::q6_k;
  return eps * (3 * double(columns) / 32 + 18) + (k ? std::ldexp(1, -11) : 0) +
         (kind == InputKind::bf16 ? std::ldexp(1, -9) : 0);
}

struct Case {
  Storage storage;
  int64_t rows, columns;
  int tokens;
};

struct Output {
  std::vector<float> y;
  int64_t stride;
  float* at() { return y.data() + stride; }
  float get(int t, int64_t r) const { return y[static_cast<size_t>((t + 1) * stride + r)]; }
};
// A row of sentinels before and after, and three columns.
Output make_output(int64_t rows, int tokens, float value = kSentinel) {
  Output out{std::vector<float>(static_cast<size_t>((rows + 3) * (tokens + 2)), kSentinel),
             rows + 3};
  for (int t = 0; t < tokens; ++t) std::fill_n(out.at() + t * out.stride, rows, value);
  return out;
}
void expect_sentinels(const Output& out, int64_t rows, int tokens) {
  for (int t = -1; t <= tokens; ++t) {
    for (int64_t r = t < 0 || t == tokens ? 0 : rows; r < out.stride; ++r) {
      ASSERT_EQ(out.get(t, r), kSentinel) << t << ' ' << r;
    }
  }
}

void check(const Case& c, ThreadTeam& team, std::mt19937& random) {
  const TestMatrix matrix = make_matrix(c.storage, c.rows, c.columns, random);
  const size_t columns = static_cast<size_t>(c.columns);
  const auto x = normal(columns * static_cast<size_t>(c.tokens), random);
  const auto bias = normal(static_cast<size_t>(c.rows), random);
  const PackedMatrix packed(matrix.view, team);
  Input input(c.tokens, c.columns);
  const InputKind kind = packed.input_kind(c.tokens);
  input.set(team, x.data(), c.columns, c.tokens, c.columns, {&kind, 1});
  Output out = make_output(c.rows, c.tokens, 3);
  const Gemm gemm{.w = &packed,
                  .x = &input,
                  .y = out.at(),
                  .stride = out.stride,
                  .bias = bias.data(),
                  .accumulate = true};
  multiply(team, {&gemm, 1});
  expect_sentinels(out, c.rows, c.tokens);

  const auto rounded = as_input(kind, x, columns);
  Output want = make_output(c.rows, c.tokens, 3);
  reference::multiply({.w = &matrix.view,
                       .x = rounded.data(),
                       .x_stride = c.columns,
                       .tokens = c.tokens,
                       .y = want.at(),
                       .stride = want.stride,
                       .bias = bias.data(),
                       .accumulate = true});
  for (int t = 0; t < c.tokens; ++t) {
    for (int64_t r = 0; r < c.rows; ++r) {
      const double all =
          magnitude(matrix.view, r, rounded.data() + static_cast<size_t>(t) * columns);
      const double bound = relative_bound(c.storage, c.columns, kind) * (all + 16);
      ASSERT_NEAR(out.get(t, r), want.get(t, r), bound)
          << storage_info(c.storage).name << ' ' << c.rows << 'x' << c.columns << " token " << t
          << " of " << c.tokens << " row " << r;
    }
  }
}

// All kernels of this CPU, and the best of them with modelled tiles. RIDGE_TEST_KERNELS=ends: of
// the first the best and the last, where each of them takes long (CI's sanitizers).
const std::vector<MatmulKernels>& tested_kernels() {
  static const std::vector<MatmulKernels> all = [] {
    std::vector<MatmulKernels> kernels = all_matmul_kernels();
    const char* const which = std::getenv("RIDGE_TEST_KERNELS");
    if (which != nullptr && std::string_view(which) == "ends" && kernels.size() > 2) {
      kernels.erase(kernels.begin() + 1, kernels.end() - 1);
    }
    kernels.push_back(with_tiles(kernels[0], AmxKernel<ModelTiles>::kernel()));
    kernels.back().isa = "ModelledTiles";
    return kernels;
  }();
  return all;
}

class Matmul : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override { choose_matmul_kernels(tested_kernels()[size_t(GetParam())]); }
  void TearDown() override { choose_matmul_kernels(all_matmul_kernels()[0]); }
  std::mt19937 random_{7};
};

TEST_P(Matmul, AgreesWithTheReference) {
  ThreadTeam team(2);
  for (int s = 0; s < kStorageCount; ++s) {
    const auto storage = static_cast<Storage>(s);
    const int64_t block = storage_info(storage).block;
    for (const int64_t rows : {1, 15, 16, 17, 100}) {
      for (const int tokens : {1, 2, 3, 7, 8, 33}) {
        check({storage, rows, 3 * std::max<int64_t>(block, 32), tokens}, team, random_);
        if (block == 1) check({storage, rows, 77, tokens}, team, random_);
      }
    }
    check({storage, 33, 5632, 1}, team, random_);
    check({storage, 33, 5632, 19}, team, random_);
    check({storage, 16, 2048, 140}, team, random_);
    if (block == 1) check({storage, 5, 2061, 9}, team, random_);
  }
}

// Tokens alone or together, one thread or two, all rows or some: the same bits of what is
// invariant.
TEST_P(Matmul, SumsDoNotDependOnTheirCompany) {
  ThreadTeam one(1), two(2);
  for (int s = 0; s < kStorageCount; ++s) {
    const auto storage = static_cast<Storage>(s);
    const int64_t rows = 50, columns = storage_info(storage).block == 1 ? 1099 : 1280;
    const TestMatrix matrix = make_matrix(storage, rows, columns, random_);
    const int tokens = 37;
    const auto x = normal(static_cast<size_t>(columns * tokens), random_);
    const PackedMatrix packed(matrix.view, two, true);
    const InputKind kind = packed.input_kind(tokens);
    Input input(tokens, columns);
    const auto run = [&](ThreadTeam& team, int first, int count, Output& out) {
      input.set(team, x.data() + first * columns, columns, count, columns, {&kind, 1});
      const Gemm gemm{
          .w = &packed, .x = &input, .y = out.at() + first * out.stride, .stride = out.stride};
      multiply(team, {&gemm, 1});
    };
    Output together = make_output(rows, tokens), other = make_output(rows, tokens);
    run(two, 0, tokens, together);
    run(one, 0, tokens, other);
    ASSERT_EQ(other.y, together.y) << storage_info(storage).name;
    for (const int each : {1, 2, 5, 8, 11}) {
      Output apart = make_output(rows, tokens);
      for (int t = 0; t < tokens; t += each) run(two, t, std::min(each, tokens - t), apart);
      ASSERT_EQ(apart.y, together.y) << storage_info(storage).name << ' ' << each;
    }
    Matrix part = matrix.view;
    part.data = part.row(3);
    part.rows = 21;
    const PackedMatrix some(part, one, true);
    Output rows_only = make_output(part.rows, tokens);
    input.set(one, x.data(), columns, tokens, columns, {&kind, 1});
    const Gemm gemm{.w = &some, .x = &input, .y = rows_only.at(), .stride = rows_only.stride};
    multiply(one, {&gemm, 1});
    for (int t = 0; t < tokens; ++t) {
      for (int64_t r = 0; r < part.rows; ++r) {
        ASSERT_EQ(rows_only.get(t, r), together.get(t, r + 3)) << storage_info(storage).name;
      }
    }
  }
}

// Experts: GEMMs over ranges of one input, of few tokens and of many, in one call. The same bits as
// each of them alone.
TEST_P(Matmul, RangesOfAnInputRunTogether) {
  ThreadTeam team(2);
  const int ranges[] = {1, 40, 3, 8, 9, 1, 26};
  int tokens = 0;
  for (const int range : ranges) tokens += range;
  const int64_t rows = 50, columns = 512;
  for (const Storage storage : {Storage::bf16, Storage::q8_0, Storage::fp8}) {
    const auto x = normal(static_cast<size_t>(columns * tokens), random_);
    std::vector<TestMatrix> matrices;
    std::vector<PackedMatrix> packed;
    std::vector<InputKind> kinds;
    for (const int range : ranges) {
      matrices.push_back(make_matrix(storage, rows, columns, random_));
      packed.emplace_back(matrices.back().view, team);
      kinds.push_back(packed.back().input_kind(range));
    }
    Input all(tokens, columns), one(tokens, columns);
    all.set(team, x.data(), columns, tokens, columns, kinds);
    Output together = make_output(rows, tokens), apart = make_output(rows, tokens);
    std::vector<Gemm> gemms;
    int first = 0;
    for (size_t i = 0; i < std::size(ranges); ++i) {
      gemms.push_back({.w = &packed[i],
                       .x = &all,
                       .first = first,
                       .tokens = ranges[i],
                       .y = together.at() + first * together.stride,
                       .stride = together.stride});
      one.set(team, x.data() + first * columns, columns, ranges[i], columns, {&kinds[i], 1});
      const Gemm alone{.w = &packed[i],
                       .x = &one,
                       .y = apart.at() + first * apart.stride,
                       .stride = apart.stride};
      multiply(team, {&alone, 1});
      first += ranges[i];
    }
    multiply(team, gemms);
    EXPECT_EQ(together.y, apart.y) << storage_info(storage).name;
  }
}

// y = act(g) u: an error e_g of g counts |act'| <= 1.13 times, an error of u |act(g)| <= |g| times;
// the exponential and the division add a few 2^-24 of the result.
TEST_P(Matmul, GatedProducts) {
  ThreadTeam team(2);
  for (const Storage storage :
       {Storage::f32, Storage::bf16, Storage::q8_0, Storage::q4_k, Storage::mxfp4, Storage::fp8}) {
    for (const Activation activation :
         {Activation::silu, Activation::gelu_tanh, Activation::clamped_swiglu}) {
      const bool clamped = activation == Activation::clamped_swiglu;
      for (const int tokens : {1, 20, 40}) {
        const int64_t rows = 75, columns = 512;
        const TestMatrix gate = make_matrix(storage, rows, columns, random_);
        const TestMatrix up = make_matrix(storage, rows, columns, random_);
        const PackedMatrix gate_packed(gate.view, team), up_packed(up.view, team);
        const auto x = normal(static_cast<size_t>(columns * tokens), random_, 10);
        const InputKind kind = gate_packed.input_kind(tokens);
        Input input(tokens, columns);
        input.set(team, x.data(), columns, tokens, columns, {&kind, 1});
        const auto bias = normal(static_cast<size_t>(rows), random_);
        const auto up_bias = normal(static_cast<size_t>(rows), random_);
        Output out = make_output(rows, tokens), want = out, g = out, u = out;
        const Gemm gemm{.w = &gate_packed,
                        .x = &input,
                        .y = out.at(),
                        .stride = out.stride,
                        .bias = bias.data(),
                        .up = &up_packed,
                        .up_bias = up_bias.data(),
                        .activation = activation};
        multiply(team, {&gemm, 1});
        expect_sentinels(out, rows, tokens);
        const auto rounded = as_input(kind, x, static_cast<size_t>(columns));
        reference::Gemm same{.w = &gate.view,
                             .x = rounded.data(),
                             .x_stride = columns,
                             .tokens = tokens,
                             .y = g.at(),
                             .stride = g.stride,
                             .bias = bias.data()};
        reference::multiply(same);
        same.w = &up.view;
        same.y = u.at();
        same.bias = up_bias.data();
        reference::multiply(same);
        same.w = &gate.view;
        same.bias = bias.data();
        same.up = &up.view;
        same.up_bias = up_bias.data();
        same.activation = activation;
        same.y = want.at();
        reference::multiply(same);
        for (int t = 0; t < tokens; ++t) {
          for (int64_t r = 0; r < rows; ++r) {
            const float* const row = rounded.data() + t * columns;
            const double relative = relative_bound(storage, columns, kind);
            const double bound = 1.13 * relative * magnitude(gate.view, r, row) *
                                     (std::abs(u.get(t, r)) + (clamped ? 1 : 0)) +
                                 relative * magnitude(up.view, r, row) * std::abs(g.get(t, r)) +
                                 1e-6 * std::abs(want.get(t, r)) + 1e-30;
            ASSERT_NEAR(out.get(t, r), want.get(t, r), bound) << storage_info(storage).name;
          }
        }
      }
    }
  }
}

// Two GEMMs in a row: activations normed as they are converted, and results that the first one
// rounds into the second one's input, have the bits of separate passes. With a gate such results
// may round to the other neighbour, since the activation is then less accurate than in f32.
TEST_P(Matmul, RoundsAndNormsOnTheWay) {
  ThreadTeam team(2);
  const int64_t columns = 96, middle = 75, rows = 33;
  for (const Storage storage : {Storage::bf16, Storage::q8_0, Storage::f32}) {
    const TestMatrix first = make_matrix(storage, middle, columns, random_);
    const TestMatrix up = make_matrix(storage, middle, columns, random_);
    const TestMatrix second = make_matrix(Storage::bf16, rows, middle, random_);
    const PackedMatrix gate_packed(first.view, team), up_packed(up.view, team),
        packed(second.view, team);
    for (const int tokens : {1, 20, 40}) {
      const auto x = normal(static_cast<size_t>(columns * tokens), random_, 10);
      const auto w = normal(static_cast<size_t>(columns), random_);
      const InputKind kind = gate_packed.input_kind(tokens), next = packed.input_kind(tokens);
      std::vector<float> normed(x.size()), inner(static_cast<size_t>(middle * tokens));
      rms_norm(team, x.data(), columns, tokens, int(columns), w.data(), 1e-5f, normed.data(),
               columns);
      Input input(tokens, columns), apart(tokens, middle), together(tokens, middle);
      input.set(team, normed.data(), columns, tokens, columns, {&kind, 1});
      Gemm gemm{
          .w = &gate_packed, .x = &input, .y = inner.data(), .stride = middle, .up = &up_packed};
      multiply(team, {&gemm, 1});
      apart.set(team, inner.data(), middle, tokens, middle, {&next, 1});
      input.set(team, x.data(), columns, tokens, columns, {&kind, 1}, {w.data(), 1e-5f});
      if (next == InputKind::bf16) {
        together.open(tokens, middle);
        gemm.to = &together;
        multiply(team, {&gemm, 1});
      } else {  // the norm alone
        multiply(team, {&gemm, 1});
        together.set(team, inner.data(), middle, tokens, middle, {&next, 1});
      }
      Output want = make_output(rows, tokens), got = want;
      Gemm down{.w = &packed, .x = &apart, .y = want.at(), .stride = want.stride};
      multiply(team, {&down, 1});
      down.x = &together;
      down.y = got.at();
      multiply(team, {&down, 1});
      if (next != InputKind::bf16) {
        EXPECT_EQ(got.y, want.y) << storage_info(storage).name << ' ' << tokens;
        continue;
      }
      for (int t = 0; t < tokens; ++t) {
        for (int64_t r = 0; r < rows; ++r) {
          // The two neighbours of a bf16 result are at most 2^-8 of it apart.
          const double bound =
              std::ldexp(1.0, -8) * magnitude(second.view, r, &inner[size_t(t * middle)]);
          ASSERT_NEAR(got.get(t, r), want.get(t, r), bound) << storage_info(storage).name;
        }
      }
    }
  }
}

// Without a gate: the bits of separate passes.
TEST_P(Matmul, RoundsOnTheWay) {
  ThreadTeam team(2);
  const int64_t columns = 96, middle = 75;
  const TestMatrix first = make_matrix(Storage::bf16, middle, columns, random_);
  const TestMatrix second = make_matrix(Storage::bf16, 33, middle, random_);
  const PackedMatrix packed(first.view, team), next(second.view, team);
  if (next.input_kind(1) != InputKind::bf16) GTEST_SKIP() << "no bf16 activations";
  for (const int tokens : {1, 20, 40}) {
    const auto x = normal(static_cast<size_t>(columns * tokens), random_, 10);
    const InputKind kind = InputKind::bf16;
    std::vector<float> inner(static_cast<size_t>(middle * tokens));
    Input input(tokens, columns), apart(tokens, middle), together(tokens, middle);
    input.set(team, x.data(), columns, tokens, columns, {&kind, 1});
    Gemm gemm{.w = &packed, .x = &input, .y = inner.data(), .stride = middle};
    multiply(team, {&gemm, 1});
    apart.set(team, inner.data(), middle, tokens, middle, {&kind, 1});
    together.open(tokens, middle);
    gemm.to = &together;
    multiply(team, {&gemm, 1});
    Output want = make_output(33, tokens), got = want;
    Gemm down{.w = &next, .x = &apart, .y = want.at(), .stride = want.stride};
    multiply(team, {&down, 1});
    down.x = &together;
    down.y = got.at();
    multiply(team, {&down, 1});
    EXPECT_EQ(got.y, want.y) << tokens;
  }
}

// The activation alone, over its whole range: within 2e-6 of the value.
TEST_P(Matmul, ActivationIsAccurate) {
  ThreadTeam team(1);
  const float weights[2] = {1, 1};
  const Matrix one{Storage::f32, 1, 1, reinterpret_cast<const std::byte*>(weights), 4};
  const PackedMatrix packed(one, team);
  for (const Activation activation :
       {Activation::silu, Activation::gelu_tanh, Activation::clamped_swiglu}) {
    for (float x = -30; x < 30; x += 0.37f) {
      if (activation == Activation::gelu_tanh && x < -3) continue;  // below 1e-2: cancels itself
      Input input(1, 1);
      const InputKind kind = InputKind::f32;
      input.set(team, &x, 1, 1, 1, {&kind, 1});
      float y = 0;
      const Gemm gemm{
          .w = &packed, .x = &input, .y = &y, .stride = 1, .up = &packed, .activation = activation};
      multiply(team, {&gemm, 1});
      const double want = reference::gate_times_up(activation, x, x);
      EXPECT_NEAR(y, want, 2e-6 * std::abs(want) + 1e-30) << x;
    }
  }
}

// Several GEMMs of different sizes and formats in one region, one of them without tokens.
TEST_P(Matmul, ManyProductsAtOnce) {
  ThreadTeam two(2);
  for (const int tokens : {1, 12, 40}) {
    const Storage storages[] = {Storage::q8_0, Storage::f32, Storage::q4_0, Storage::bf16};
    const int64_t columns = 256;
    const auto x = normal(static_cast<size_t>(columns * tokens), random_);
    const InputKind kinds[] = {InputKind::f32, InputKind::bf16, InputKind::int8};
    Input input(tokens, columns), none(1, columns);
    input.set(two, x.data(), columns, tokens, columns, kinds);
    std::vector<TestMatrix> matrices;
    std::vector<PackedMatrix> packed;
    std::vector<Output> together, alone;
    for (size_t i = 0; i < 40; ++i) {
      const int64_t rows = 1 + int64_t(i) * 7 % 83;
      matrices.push_back(make_matrix(storages[i % 4], rows, columns, random_));
      packed.emplace_back(matrices.back().view, two);
      together.push_back(make_output(rows, tokens));
      alone.push_back(together.back());
    }
    std::vector<Gemm> gemms;
    for (size_t i = 0; i < packed.size(); ++i) {
      gemms.push_back({.w = &packed[i],
                       .x = i == 9 ? &none : &input,
                       .y = together[i].at(),
                       .stride = together[i].stride});
    }
    multiply(two, gemms);
    for (size_t i = 0; i < packed.size(); ++i) {
      gemms[i].y = alone[i].at();
      multiply(two, {&gemms[i], 1});
      ASSERT_EQ(together[i].y, alone[i].y) << i;
      expect_sentinels(alone[i], packed[i].rows(), i == 9 ? 0 : tokens);
    }
  }
}

// Zeros, infinities and NaN in the activations end in what arithmetic says, or at least in no harm.
TEST_P(Matmul, StrangeActivations) {
  ThreadTeam team(1);
  for (int s = 0; s < kStorageCount; ++s) {
    const auto storage = static_cast<Storage>(s);
    const TestMatrix matrix = make_matrix(storage, 16, 256, random_);
    const PackedMatrix packed(matrix.view, team);
    const InputKind kind = packed.input_kind(1);
    Input input(1, 256);
    for (const float value : {0.0f, 1e-40f, INFINITY, NAN}) {
      std::vector<float> x(256, 0.0f);
      x[40] = value;
      Output out = make_output(16, 1);
      input.set(team, x.data(), 256, 1, 256, {&kind, 1});
      const Gemm gemm{.w = &packed, .x = &input, .y = out.at(), .stride = out.stride};
      multiply(team, {&gemm, 1});
      expect_sentinels(out, 16, 1);
      if (value < 1) {
        for (int64_t r = 0; r < 16; ++r) ASSERT_NEAR(out.get(0, r), 0, 1e-36);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, Matmul,
                         ::testing::Range(0, static_cast<int>(tested_kernels().size())),
                         [](const auto& param) {
                           return std::string(tested_kernels()[size_t(param.param)].isa);
                         });

// Two chains and prefetches change no bit.
TEST(MatmulKernels, PrefetchingStreamsGiveTheSameBits) {
  std::mt19937 random(3);
  ThreadTeam team(1);
  for (const MatmulKernels& kernels : all_matmul_kernels()) {
    const MatmulKernels ahead = with_prefetches(kernels);
    for (int s = 0; s < kStorageCount; ++s) {
      const auto storage = static_cast<Storage>(s);
      if (layout_of(storage) == Layout::plain) continue;
      const TestMatrix matrix = make_matrix(storage, 19, 768, random);
      const auto x = normal(768 * 8, random);
      Output one[2] = {make_output(19, 8), make_output(19, 8)};
      for (int i = 0; i < 2; ++i) {
        choose_matmul_kernels(i == 0 ? kernels : ahead);
        const PackedMatrix packed(matrix.view, team);
        for (int tokens : {1, 2, 5}) {  // 8 in all
          Input input(tokens, 768);
          const InputKind kind = packed.input_kind(tokens);
          const int first = tokens == 1 ? 0 : tokens == 2 ? 1 : 3;
          input.set(team, x.data() + first * 768, 768, tokens, 768, {&kind, 1});
          const Gemm gemm{.w = &packed,
                          .x = &input,
                          .y = one[i].at() + first * one[i].stride,
                          .stride = one[i].stride};
          multiply(team, {&gemm, 1});
        }
      }
      choose_matmul_kernels(all_matmul_kernels()[0]);
      EXPECT_EQ(one[0].y, one[1].y) << kernels.isa << ' ' << storage_info(storage).name;
    }
  }
}

TEST(MatmulKernels, AreNamed) {
  for (int s = 0; s < kStorageCount; ++s) EXPECT_NE(kernel_name(static_cast<Storage>(s)), "");
}

}  // namespace
}  // namespace ridge::cpu
