// Matrices and activations as the GEMMs read them.
#include <cassert>
#include <new>
#include <utility>

#include "base/mapped_buffer.h"
#include "engine/cpu/elementwise.h"
#include "engine/cpu/matmul_access.h"

namespace ridge::cpu {
namespace {

std::shared_ptr<MappedBuffer> map_pages(int64_t bytes) {
  auto buffer = std::make_shared<MappedBuffer>(static_cast<size_t>(bytes));
  if (!*buffer) throw std::bad_alloc();
  return buffer;
}

// Memory aligned to a cache line, in huge pages and not touched. Small pieces are cut from a shared
// buffer, since less than a huge page has none: the k and v projections of a 1.1B model in 4 bits
// were read at half the rate for want of it.
std::shared_ptr<std::byte> allocate(int64_t bytes) {
  constexpr int64_t kLarge = 8 << 20, kShared = 32 << 20;
  if (bytes >= kLarge) {
    const std::shared_ptr<MappedBuffer> buffer = map_pages(bytes);
    return {buffer, buffer->as<std::byte>()};
  }
  thread_local std::weak_ptr<MappedBuffer> last;
  thread_local int64_t used = 0;
  std::shared_ptr<MappedBuffer> shared = last.lock();
  if (!shared || used + bytes > kShared) {
    shared = map_pages(kShared);
    last = shared;
    used = 0;
  }
  std::byte* const piece = shared->as<std::byte>() + used;
  used += round_up(bytes, 64);
  return {shared, piece};
}

}  // namespace

int64_t packed_group_bytes(Storage storage, int64_t columns) {
  const Layout layout = layout_of(storage);
  if (layout != Layout::plain) return group_bytes(layout, columns);
  const MatmulKernel& kernel = matmul_kernels().of(storage);
  return kernel.pack ? kernel.packed_bytes(columns) : 0;
}

PackedMatrix::PackedMatrix(const Matrix& matrix, ThreadTeam& team, bool invariant)
    : rows_(matrix.rows), columns_(matrix.columns), invariant_(invariant), view_(matrix) {
  group_bytes_ = packed_group_bytes(matrix.storage, columns_);
  if (rows_ == 0 || group_bytes_ == 0) return;
  const bool plain = layout_of(matrix.storage) == Layout::plain;
  const auto pack = plain ? matmul_kernels().of(matrix.storage).pack : pack_group;
  const int64_t groups = group_count(rows_);
  std::shared_ptr<std::byte> packed = allocate(groups * group_bytes_);
  // Each thread packs the part that it reads in decode, so that it touches those pages first.
  team.run([&](int index) {
    const int64_t first = groups * index / team.size();
    const int64_t last = groups * (index + 1) / team.size();
    for (int64_t g = first; g < last; ++g) pack(matrix, g, packed.get() + g * group_bytes_);
  });
  packed_ = std::move(packed);
}

InputKind PackedMatrix::input_kind(int tokens) const {
  return MatmulAccess::kernel(*this, tokens).input;
}

double PackedMatrix::repacked_bytes() const {
  return packed_ ? double(group_count(rows_)) * double(group_bytes_) : 0;
}

std::span<const std::byte> PackedMatrix::memory() const {
  if (packed_) return {packed_.get(), static_cast<size_t>(repacked_bytes())};
  return {view_.data, static_cast<size_t>(rows_ * view_.row_stride)};
}

Input::Input(int64_t max_tokens, int64_t max_columns) : room_(std::make_unique<Room>()) {
  const int64_t tokens = std::max<int64_t>(1, max_tokens), columns = round_up(max_columns, kPad);
  // Untouched memory costs nothing, and activation types that no matrix reads are not touched.
  const int64_t f32 = tokens * odd_lines(columns, 4) * 4;
  const int64_t bf16 = tokens * odd_lines(columns, 2) * 2;
  const int64_t blocks = tokens * (columns / kBlock | 1) * int64_t{sizeof(InputBlock)};
  room_->memory = allocate(f32 + 2 * bf16 + blocks);
  std::byte* at = room_->memory.get();
  const auto take = [&at](int64_t size) { return std::exchange(at, at + size); };
  room_->f32 = reinterpret_cast<float*>(take(f32));
  room_->bf16 = reinterpret_cast<uint16_t*>(take(bf16));
  room_->pairs = reinterpret_cast<int16_t*>(take(bf16));
  room_->blocks = reinterpret_cast<InputBlock*>(take(blocks));
  room_->max_tokens = max_tokens;
  room_->max_columns = max_columns;
}

Input::~Input() = default;

void Input::set_parts(ThreadTeam& team, const float* x, int64_t stride, int tokens, int64_t columns,
                      int64_t step, int parts, std::span<const InputKind> kinds,
                      const InputNorm& norm) {
  const int64_t rows = int64_t{tokens} * parts;
  assert(rows <= room_->max_tokens && columns <= room_->max_columns);
  tokens_ = tokens;
  columns_ = columns;
  stride_ = stride;
  x_ = x;
  bool wanted[3] = {};
  for (const InputKind kind : kinds) wanted[static_cast<int>(kind)] = true;
  const MatmulKernels& kernels = matmul_kernels();
  const InputView view = MatmulAccess::input(*this, 0);
  const int64_t padded = round_up(columns, kPad);
  const auto convert = [&](int64_t t) {
    const float* row = x + t % tokens * stride + t / tokens * step;
    if (norm.w) {
      thread_local std::vector<float> normed;  // it grows to the widest row, and stays in the L1
      if (normed.size() < static_cast<size_t>(columns)) normed.resize(static_cast<size_t>(columns));
      rms_norm_row(row, norm.w, static_cast<int>(columns), norm.eps, normed.data());
      row = normed.data();
    }
    if (wanted[static_cast<int>(InputKind::f32)]) {
      kernels.plain.input.copy(row, columns, padded, room_->f32 + t * view.f32_stride);
    }
    if (wanted[static_cast<int>(InputKind::bf16)]) {
      kernels.plain.input.round(row, columns, padded, room_->bf16 + t * view.bf16_stride);
    }
    if (wanted[static_cast<int>(InputKind::int8)]) {
      int16_t* const pairs = kernels.blocks.pairs ? room_->pairs + t * view.pairs_stride : nullptr;
      kernels.plain.input.quantize(row, columns, room_->blocks + t * view.blocks_stride, pairs);
    }
  };
  // About a microsecond of work costs less than synchronizing the threads.
  if (rows * columns <= (8 << 10)) {
    for (int64_t t = 0; t < rows; ++t) convert(t);
    return;
  }
  team.run([&](int index) {
    const int64_t last = rows * (index + 1) / team.size();
    for (int64_t t = rows * index / team.size(); t < last; ++t) convert(t);
  });
}

void Input::open(int tokens, int64_t columns) {
  assert(tokens <= room_->max_tokens && columns <= room_->max_columns);
  tokens_ = tokens;
  columns_ = columns;
  const InputView view = MatmulAccess::input(*this, 0);
  const int64_t padded = round_up(columns, kPad);
  for (int64_t t = 0; t < tokens && columns < padded; ++t) {
    uint16_t* const row = room_->bf16 + t * view.bf16_stride;
    std::fill(row + columns, row + padded, uint16_t{0});
  }
}

}  // namespace ridge::cpu
