// Math warps of the decode kernel: GEMMs with K split over the warps, the rope table, attention.
//
// Group g of 64 columns of K belongs to warp g mod 8. Each warp loads the activations of its own
// groups only, and accumulates its share of K for a 16-row block. An epilogue warp adds up the 8
// shares. So no math warp waits for another one in a GEMM, only with norms after blocks before it.
#pragma once

#include "engine/cuda/decode/decode_operands.cuh"
#include "engine/cuda/decode/decode_page_attention.cuh"

#ifdef __CUDA_ARCH__
namespace ridge::cuda {

// The GEMMs of a math warp, with kColumns columns of activations: the rows of the batch, or twice
// as many (input_columns).
template <WeightFormat kFormat, int kRows, int kColumns, DecodeVariant kVariant>
struct MathGemm {
  const DecodeArgs& args;
  DecodeShared& shared;
  int warp, lane;
  PipelineState& stage;     // the next stage of the ring
  PipelineState& partials;  // the next buffer of partial sums

  static constexpr bool kExperts = kVariant == DecodeVariant::experts;
  using Ops = Operands<kFormat, kColumns>;
  using Accumulators = typename Ops::Accumulators;
  static constexpr int kStage = stage_bytes(kFormat);
  static constexpr int kChunk = format_info(kFormat).chunk_bytes;
  static constexpr int kActivationChunk = activation_chunk_bytes(kFormat, kColumns);

  // acc += the next stage, of `chunks`, times its activations. With kFull all addresses but two are
  // constants: every warp passes through every stage, so the instructions around the MMAs count.
  template <bool kFull>
  __device__ void multiply_stage(Accumulators& acc, int chunks,
                                 const typename Ops::LaneActivations& at) {
    const int first = warp * Ops::kChunksPerGroup;
    ptx::mbarrier_wait(&shared.control.full[stage.stage], stage.phase);
    Ops::template multiply<kFull>(acc, shared.ring + stage.stage * kStage + first * kChunk, at,
                                  lane, chunks - first);
    release_stage(args, shared, stage, lane);
  }

  // acc += a slice of K of `chunks`, whose activations are in shared memory from a column on.
  __device__ void multiply_slice(Accumulators& acc, int chunks, int first_column = 0) {
    typename Ops::LaneActivations at(shared, warp, lane);
    at.skip(first_column);
#pragma unroll 1
    for (; chunks >= kChunksPerStage; chunks -= kChunksPerStage) {
      multiply_stage<true>(acc, kChunksPerStage, at);
      at.advance();
    }
    if (chunks > 0) multiply_stage<false>(acc, chunks, at);
  }

  // Passes this warp's sums of a block to an epilogue warp, as [column][16].
  __device__ void store_partials(const Accumulators& acc) {
    acquire_partials(shared, partials);
    constexpr int kOfWarp = kBlockRows * input_columns(kVariant, kRows);
    float* to = shared.partials + (partials.stage * kMathWarps + warp) * kOfWarp;
    const int g = lane / 4, t = lane % 4;
#pragma unroll
    for (int i = 0; i < (kColumns + 7) / 8; ++i) {
#pragma unroll
      for (int v = 0; v < 4; v += kColumns == 1 ? 2 : 1) {
        const int output = g + v / 2 * 8, column = i * 8 + t * 2 + v % 2;
        const float sum = Ops::result(acc, i, v);
        if (column < kColumns) to[column * kBlockRows + output] = sum;
      }
    }
    publish_partials(shared, partials, lane);
  }

  // Loads this warp's activations into shared memory past L1, which may hold those of an earlier
  // step, and converts them to operands in place. Polls until they are ready, and converts units as
  // they arrive. A short loop was faster than unrolled code, perhaps because it runs once per
  // operator and its instructions are cold.
  __device__ void load_activations(const uint16_t* from, int bytes) {
    using Unit = typename Ops::ActivationUnit;
    constexpr int kUnitsInFlight = Unit::kPerColumns > 2 ? Unit::kPerColumns : 2;
    const uint4* const source = reinterpret_cast<const uint4*>(from);
    uint4* const raw = reinterpret_cast<uint4*>(shared.activations);
    const int count = bytes / 16, units = Unit::count(count);
#pragma unroll 1
    for (int unit = 0; unit < units; ++unit) {
      const int at = Unit(unit, warp, lane).index();
      if (at < count) ptx::cp_async_16(raw + at, source + at);
    }
#pragma unroll 1
    for (int base = 0; base < units; base += kUnitsInFlight) {
      uint4 v[kUnitsInFlight];
      while (true) {
        ptx::cp_async_wait_all();
        bool again = false;
#pragma unroll
        for (int i = 0; i < kUnitsInFlight; ++i) {
          const Unit unit(base + i, warp, lane);
          v[i] = unit.index() < count ? raw[unit.index()] : uint4{0, 0, 0, 0};
          const int row = kColumns > kRows ? unit.row % kRows : unit.row;
          again |= row < args.row_count && not_ready(v[i]);
        }
        if (!__any_sync(0xffffffffu, again)) break;
          // Reload all units that are not ready, the later ones too.
#pragma unroll 1
        for (int u = base; u < units; ++u) {
          const Unit unit(u, warp, lane);
          const int at = unit.index();
          if (at < count && not_ready(raw[at])) ptx::cp_async_16(raw + at, source + at);
        }
      }
      if constexpr (Ops::kType != OperandType::bf16) {
#pragma unroll
        for (int i = 0; i < kUnitsInFlight; i += 2) {
          const Unit pair[2] = {{base + i, warp, lane}, {base + i + 1, warp, lane}};
          const uint4 values[2] = {v[i], v[i + 1]};
          Ops::store_operands(shared, pair, values, count);
        }
      }
    }
    __syncwarp();
  }

  static __device__ void clear(Accumulators& acc) {
#pragma unroll
    for (auto& chain : acc) {
#pragma unroll
      for (auto& tile : chain) {
#pragma unroll
        for (auto& value : tile) value = 0;
      }
    }
  }

  // K in slices whose activations fit in shared memory. The accumulators of kBlocksHeld blocks stay
  // in registers, so a slice is loaded once for them.
  __device__ void gemm_sliced(const DecodeOp& op, int chunks, int slice, const uint16_t* x) {
    const int grid = gridDim.x;
    for (int item = op.first; item < op.items; item += grid * kBlocksHeld) {
      Accumulators acc[kBlocksHeld];
#pragma unroll
      for (int held = 0; held < kBlocksHeld; ++held) clear(acc[held]);
      for (int begin = 0; begin < chunks; begin += slice) {
        const int end = min(begin + slice, chunks);
        __syncwarp();  // all lanes have read the previous slice
        load_activations(x + size_t(begin) * kActivationChunk / 2,
                         (end - begin) * kActivationChunk);
#pragma unroll
        for (int held = 0; held < kBlocksHeld; ++held) {
          if (item + held * grid >= op.items) break;
          multiply_slice(acc[held], end - begin);
        }
      }
#pragma unroll
      for (int held = 0; held < kBlocksHeld; ++held) {
        if (item + held * grid < op.items) store_partials(acc[held]);
      }
    }
  }

  // One row of int4 or nf4 and full stages: the weights of the next stage are waited for and loaded
  // while the MMAs of this one run. With kStagesHeld, K has that many stages, and the activations
  // stay in registers: a warp's columns are the same for every block.
  template <int kStagesHeld>
  __device__ void gemm_one_row(const DecodeOp& op, int stages) {
    using Row = OneRow<kFormat>;
    constexpr int kHeld = kStagesHeld ? kStagesHeld : 1;
    const typename Ops::LaneActivations first(shared, warp, lane);
    const Nf4Tables tables;
    typename Row::WeightFragment weights;
    typename Row::ActivationFragment activations[kHeld];
    PipelineState next = stage;
    const auto load_weights = [&] {
      ptx::mbarrier_wait(&shared.control.full[next.stage], next.phase);
      Row::load(weights, shared.ring + next.stage * kStage + warp * kChunk, lane);
      next.advance(args.stages);
    };
    load_weights();
    typename Ops::LaneActivations at = first;
#pragma unroll
    for (auto& held : activations) {
      Row::load(held, at.x, at.scales);
      at.advance();
    }
#pragma unroll 1
    for (int item = op.first; item < op.items; item += gridDim.x) {
      const bool last_block = item + gridDim.x >= op.items;
      Accumulators acc;
      clear(acc);
      const auto multiply = [&](typename Row::ActivationFragment& x, bool last_stage) {
        typename Row::StageSums sums;
        Row::multiply(sums, weights, x, tables);
        release_stage(args, shared, stage, lane);
        if (!last_stage || !last_block) {
          load_weights();
          if (!kStagesHeld) {
            if (last_stage) at = first;
            Row::load(x, at.x, at.scales);
            at.advance();
          }
        }
        Row::add(acc[0][0], sums);
      };
      if constexpr (kStagesHeld > 0) {
#pragma unroll
        for (int s = 0; s < kStagesHeld; ++s) multiply(activations[s], s + 1 == kStagesHeld);
      } else {
#pragma unroll 1
        for (int s = 1; s <= stages; ++s) multiply(activations[0], s == stages);
      }
      store_partials(acc);
    }
  }

  // All blocks of this SM, with all activations in shared memory.
  __device__ void gemm(const DecodeOp& op, int chunks) {
    if constexpr (Ops::kOverlapsLoads) {
      if (chunks == 2 * kChunksPerStage) return gemm_one_row<2>(op, 2);
      if (chunks % kChunksPerStage == 0) return gemm_one_row<0>(op, chunks / kChunksPerStage);
    }
    for (int item = op.first; item < op.items; item += gridDim.x) {
      Accumulators acc;
      clear(acc);
      multiply_slice(acc, chunks);
      store_partials(acc);
    }
  }

  // down of experts: the sums of each choice of a block, which have their own weights and scales.
  __device__ void gemm_of_choices(const DecodeOp& op, int chunks) {
    for (int item = op.first; item < op.items; item += gridDim.x) {
#pragma unroll 1
      for (int choice = 0; choice < args.top_k; ++choice) {
        Accumulators acc;
        clear(acc);
        multiply_slice(acc, chunks, choice * args.choice_stride);
        store_partials(acc);
      }
    }
  }

  __device__ __forceinline__ void run(const DecodeOp& op) {
    const Tiles& tiles = tiles_of(args, op.kind);
    if (kExperts && op.kind == OpKind::down) {
      wait_ops_completed(shared.control, ops_before_input(op), lane);
      load_activations(args.mlp_hidden, args.top_k * args.choice_stride * kColumns * 2);
      if (warp == 0 && lane == 0) stamp(args, op, 0);
      gemm_of_choices(op, tiles.chunks);
      if (warp == 0 && lane == 0) stamp(args, op, 1);
      return;
    }
    // A warp's part of the activations begins elsewhere than in the operator before, which had
    // another number of columns: a slower warp may still read there.
    if constexpr (kVariant == DecodeVariant::gemma) ptx::bar_sync<kMathBarrier>(kMathWarps * 32);
    const int slice = resident_chunks<kFormat, kRows>(args, tiles.chunks);
    const uint16_t* x = activations_of(args, op.kind);
    if constexpr (constexpr int kCopies = input_copies(kFormat, kVariant, kRows); kCopies > 1) {
      x += blockIdx.x % kCopies * copy_stride(input_size(args, op.kind));
    }
    wait_ops_completed(shared.control, ops_before_input(op), lane);
    if (kColumns > 1 && slice < tiles.chunks) {  // the activations of one row always fit
      gemm_sliced(op, tiles.chunks, slice, x);
    } else {
      load_activations(x, tiles.chunks * kActivationChunk);
      if (warp == 0 && lane == 0) stamp(args, op, 0);
      gemm(op, tiles.chunks);
    }
    if (warp == 0 && lane == 0) stamp(args, op, 1);
  }
};

template <WeightFormat kFormat, int kRows, DecodeVariant kVariant>
struct MathWarp {
  const DecodeArgs& args;
  DecodeShared& shared;
  int warp, lane;
  PipelineState stage, partials;

  static constexpr int kMathThreads = kMathWarps * 32;

  template <int kColumns>
  __device__ __forceinline__ void run_gemm(const DecodeOp& op) {
    MathGemm<kFormat, kRows, kColumns, kVariant>{args, shared, warp, lane, stage, partials}.run(op);
  }

  // Cosines and sines of the positions of this step.
  __device__ void compute_rope_tables(int step) {
    const int half = args.head_dim / 2;
    const int tables = kVariant == DecodeVariant::gemma ? args.ropes : 1;
#pragma unroll 1
    for (int table = 0; table < tables; ++table) {
      for (int i = threadIdx.x; i < args.row_count * half; i += kMathThreads) {
        const int row = i / half;
        const RowContext& at = shared.control.rows[row];
        const float frequency = args.rope_frequency[table * half + i % half];
        const float magnitude = frequency == 0 ? 1 : args.rope_magnitude[table];  // 0: not rotated
        float sine, cosine;
        sincosf(static_cast<float>(at.past + step + row - at.first) * frequency, &sine, &cosine);
        shared.rope[table * kRows * half + i] = {cosine * magnitude, sine * magnitude};
      }
    }
    ptx::bar_sync<kMathBarrier>(kMathThreads);
  }

  // Everything in here must be part of the kernel. As a function of its own, which the compiler
  // makes of it where it finds it long, it has its state and the addresses of shared memory in
  // local memory: int4 took 4.7 instead of 2.9 ms at 8 rows.
  __device__ __forceinline__ void run() {
    const auto run_op = [&](const DecodeOp& op) __attribute__((always_inline)) {
      if (op.kind == OpKind::embed) {
        compute_rope_tables(op.step);
        return;
      }
      if (op.first >= op.items || op.kind == OpKind::route) return;
      if (op.kind != OpKind::attention) {
        constexpr int kInputColumns = input_columns(kVariant, kRows);
        if (kInputColumns > kRows && follows_norm(op.kind)) {
          run_gemm<kInputColumns>(op);
        } else {
          run_gemm<kRows>(op);
        }
        return;
      }
      attention<kFormat, kRows, kVariant>(args, shared, op, stage_bytes(kFormat), warp, lane,
                                          stage);
      if (warp == 0 && lane == 0) {
        stamp(args, op, 1);
        ptx::mbarrier_arrive(&shared.control.attention_done);
      }
    };
    for_each_op<kVariant>(args, run_op);
  }
};

}  // namespace ridge::cuda
#endif
