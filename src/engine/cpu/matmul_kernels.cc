#include "engine/cpu/matmul_kernels.h"

#include <atomic>
#include <string_view>

namespace ridge::cpu {
namespace {

std::atomic<const MatmulKernels*> chosen = nullptr;  // the best

// "AVX3" of "AVX3_VNNI".
std::string_view family(std::string_view isa) { return isa.substr(0, isa.find('_')); }

// See blocks-inl.h. Without VNNI prefetches alone would remain, which were not tried on Intel's
// cores.
bool prefetching_helps() {
#if defined(__x86_64__)
  return __builtin_cpu_is("intel") && __builtin_cpu_supports("avx512vnni");
#else
  return false;
#endif
}

// Pairs plain and block kernels of the same family into levels; each level adds the next plain or
// block kernels.
std::vector<MatmulKernels> pair_up() {
  const std::vector<PlainKernels> plain = plain_kernels();
  const std::vector<BlockKernels> blocks = block_kernels();
  std::vector<MatmulKernels> all;
  for (size_t p = 0, b = 0;;) {
    MatmulKernels& level = all.emplace_back();
    level.plain = plain[p];
    level.blocks = blocks[b];
    level.isa = family(plain[p].isa) == plain[p].isa ? blocks[b].isa : plain[p].isa;
    if (prefetching_helps()) level = with_prefetches(level);
    if (plain[p].bf16.begin) level = with_tiles(level, plain[p].bf16);
    const bool next_plain = p + 1 < plain.size(), next_block = b + 1 < blocks.size();
    if (!next_plain && !next_block) return all;
    const bool plain_stays = next_plain && family(plain[p + 1].isa) == family(plain[p].isa);
    const bool block_stays = next_block && family(blocks[b + 1].isa) == family(blocks[b].isa);
    if (plain_stays || !block_stays) ++p;
    if (!plain_stays) ++b;
  }
}

}  // namespace

const MatmulKernel& MatmulKernels::of(Storage storage) const {
  switch (storage) {
    case Storage::f32:
      return plain.f32;
    case Storage::f16:
      return plain.f16;
    case Storage::bf16:
      return plain.bf16;
    case Storage::fp8:
      return plain.fp8;
    default:
      return blocks.of[static_cast<int>(layout_of(storage))];
  }
}

const MatmulKernel& MatmulKernels::of(Storage storage, int tokens) const {
  const MatmulKernel& many = tiled[static_cast<int>(layout_of(storage))];
  return tokens >= kTiledTokens && many.multiply ? many : of(storage);
}

MatmulKernels with_prefetches(MatmulKernels kernels) {
  for (int layout = 0; layout < kLayoutCount; ++layout) {
    kernels.blocks.of[layout].stream = kernels.blocks.stream_ahead[layout];
  }
  return kernels;
}

MatmulKernels with_tiles(MatmulKernels kernels, const MatmulKernel& tiles) {
  kernels.plain.bf16 = tiles;
  for (int layout = 0; layout < kLayoutCount; ++layout) {
    if (kernels.blocks.bf16[layout] == nullptr) continue;  // plain
    MatmulKernel& tiled = kernels.tiled[layout];
    tiled = tiles;
    tiled.stream_tokens = 0;
    tiled.stream = nullptr;
    tiled.pack = nullptr;
    tiled.packed_bytes = nullptr;
    tiled.unpack = kernels.blocks.bf16[layout];
  }
  return kernels;
}

const std::vector<MatmulKernels>& all_matmul_kernels() {
  static const std::vector<MatmulKernels> all = pair_up();
  return all;
}

const MatmulKernels& matmul_kernels() {
  const MatmulKernels* const kernels = chosen.load(std::memory_order_acquire);
  return kernels ? *kernels : all_matmul_kernels().front();
}

void choose_matmul_kernels(const MatmulKernels& kernels) {
  chosen.store(&kernels, std::memory_order_release);
}

}  // namespace ridge::cpu
