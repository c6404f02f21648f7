#include "engine/cpu/matmul_kernels.h"

#include <atomic>
#include <string_view>

namespace ridge::cpu {
namespace {

std::atomic<int> chosen = 0;

// "AVX3" of "AVX3_VNNI".
std::string_view family(std::string_view isa) { return isa.substr(0, isa.find('_')); }

// Pairs plain and block kernels of the same family into levels; each level adds the next plain or
// block kernels.
std::vector<MatmulKernels> pair_up() {
  const std::vector<PlainKernels> plain = plain_kernels();
  const std::vector<BlockKernels> blocks = block_kernels();
  std::vector<MatmulKernels> all;
  for (size_t p = 0, b = 0;;) {
    all.push_back(
        {plain[p], blocks[b], family(plain[p].isa) == plain[p].isa ? blocks[b].isa : plain[p].isa});
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
    default:
      return blocks.of[static_cast<int>(layout_of(storage))];
  }
}

const std::vector<MatmulKernels>& all_matmul_kernels() {
  static const std::vector<MatmulKernels> all = pair_up();
  return all;
}

const MatmulKernels& matmul_kernels() {
  return all_matmul_kernels()[static_cast<size_t>(chosen.load(std::memory_order_relaxed))];
}

void choose_matmul_kernels(int index) { chosen.store(index, std::memory_order_relaxed); }

}  // namespace ridge::cpu
