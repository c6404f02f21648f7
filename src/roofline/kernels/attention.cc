#include "roofline/kernels/attention.h"

#include <algorithm>

namespace ridge {
namespace {

constexpr Field<PrefillParams> kPrefillFields[] = {
    {"t0", &PrefillParams::t0, 1e-6, 5e-4},
    {"compute", &PrefillParams::compute, 0.05, 1.3},
    {"pair", &PrefillParams::pair, 0.05, 100},
    {"wide", &PrefillParams::wide, -0.5, 0.8},
    {"tile", &PrefillParams::tile, 16, 512},
    {"block", &PrefillParams::block, 1e-8, 2e-5},
    {"longest", &PrefillParams::longest, 0.1, 4},
    {"overlap", &PrefillParams::overlap, 1, 12},
    {"prepass", &PrefillParams::prepass, 0.05, 20},
    {"l2_speed", &PrefillParams::l2_speed, 1, 8},
    {"throttle", &PrefillParams::throttle, 0, 0.6},
    {"throttle_s", &PrefillParams::throttle_s, 2e-5, 1e-2},
    {"pack", &PrefillParams::pack, 0, 1},
    {"narrow", &PrefillParams::narrow, -0.5, 0.8},
    {"window_waste", &PrefillParams::window_waste, 0, 4},
};
constexpr Field<DecodeParams> kDecodeFields[] = {
    {"t0", &DecodeParams::t0, 1e-6, 5e-4},
    {"memory", &DecodeParams::memory, 0.1, 1.1},
    {"l2", &DecodeParams::l2, 0.05, 2},
    {"l2_speed", &DecodeParams::l2_speed, 1, 10},
    {"sm_rate", &DecodeParams::sm_rate, 1, 400},
    {"compute", &DecodeParams::compute, 0.01, 1.2},
    {"rows", &DecodeParams::rows, 1, 128},
    {"chunk", &DecodeParams::chunk, 16, 4096},
    {"block", &DecodeParams::block, 1e-8, 2e-5},
    {"wave", &DecodeParams::wave, 0, 1},
    {"combine", &DecodeParams::combine, 1e-8, 2e-5},
    {"sequence", &DecodeParams::sequence, 1e-11, 1e-6},
    {"overlap", &DecodeParams::overlap, 1, 12},
    {"single", &DecodeParams::single, 0.2, 3},
    {"split_waves", &DecodeParams::split_waves, 0.2, 8},
    {"wide", &DecodeParams::wide, -0.5, 0.8},
    {"unit", &DecodeParams::unit, 1e-12, 1e-7},
    {"group_most", &DecodeParams::group_most, 1, 300, true},
    {"window_groups", &DecodeParams::window_groups, 0, 1, true},
};

double head_loss(double dim, double wide, double narrow) {
  const double octaves = std::log2(dim / 128);
  const double loss = octaves > 0 ? wide * octaves : -narrow * octaves;
  return 1 / std::max(0.1, 1 - std::min(loss, 0.9));
}

}  // namespace

std::span<const Field<PrefillParams>> PrefillParams::fields() { return kPrefillFields; }
std::span<const Field<DecodeParams>> DecodeParams::fields() { return kDecodeFields; }

double prefill_seconds(const AttentionCall& c, const GpuTraits& gpu, const PrefillParams& p) {
  const double group = c.heads / c.kv_heads;
  // Query tiles of one head; packing lets the heads of a group share a tile when prompts are short.
  const double alone = blocks(c.length, p.tile);
  const double packed = blocks(c.length * group, p.tile) / group;
  const double tiles = alone + p.pack * (packed - alone);
  const double seen = c.past + c.length;
  const double window = c.window > 0 ? c.window : seen;
  // Queries that do not see a full window yet, and those that do.
  const double growing = std::clamp(window - c.past, 0.0, c.length), full = c.length - growing;
  // Keys a query tile reads on average: the past, half of what the causal triangle covers, plus the
  // diagonal.
  const double keys = (growing * (c.past + growing / 2) + full * window) / c.length +
                      (full > 0 ? p.window_waste : 0.5) * std::min(p.tile, c.length);
  const double ideal_s =
      c.batch * c.heads * c.length * keys * 2 * (c.head_dim + c.v_head_dim) / gpu.peak_of(c.math);
  const double peak =
      gpu.peak_of(c.math) / gpu.sms * p.compute * power_share(ideal_s, p.throttle_s, p.throttle, 0);
  // One (tile x key) column: QK^T, PV and the softmax of its pairs.
  const double key_s = p.tile * (2 * (c.head_dim + c.v_head_dim) / peak *
                                     head_loss((c.head_dim + c.v_head_dim) / 2, p.wide, p.narrow) +
                                 p.pair / 128 / gpu.clock);
  const double count = c.batch * c.heads * tiles;
  const double all = count * (keys * key_s + p.block * gpu.tick) / gpu.sms;
  // Kernels split the keys of the past over SMs that would idle (FlashAttention-3, FlashInfer), so
  // that the past lengthens no block beyond the mean.
  const double own = std::min(window, c.length), past = std::min(window, seen) - own;
  const double longest = p.longest * (own * key_s) + p.block * gpu.tick;
  const double qkv =
      c.batch * c.length * 2 *
      (c.heads * (c.head_dim + c.v_head_dim) + c.kv_heads * (c.head_dim + c.v_head_dim));
  const double fit = std::min(1.0, gpu.l2_bytes / qkv);
  const double bytes_s = p.prepass * qkv * (1 - fit * (1 - 1 / p.l2_speed)) / gpu.stream;
  const double cached_s =
      c.batch * past * c.kv_heads * (c.head_dim + c.v_head_dim) * c.kv_bytes / gpu.stream;
  return p.t0 * gpu.tick + bytes_s +
         smooth_max(smooth_max(all, cached_s, p.overlap), longest, p.overlap);
}

double decode_seconds(const AttentionCall& c, const GpuTraits& gpu, const DecodeParams& p) {
  const double heads_per_kv = c.heads / c.kv_heads;
  const bool windowed = c.window > 0;
  const bool grouped = heads_per_kv <= p.group_most && (!windowed || p.window_groups >= 0.5);
  const double group = grouped ? heads_per_kv : 1, repeats = grouped ? 1 : heads_per_kv;
  const double tokens = windowed ? std::min(c.length, c.window) : c.length;
  const double dims = c.shared_kv ? c.head_dim : c.head_dim + c.v_head_dim;
  const double token_bytes = dims * c.kv_bytes;
  const double kv = c.batch * c.kv_heads * tokens * token_bytes;
  const double fit = c.resident ? p.l2 * gpu.l2_bytes / kv : 0;
  const double fit2 = fit * fit, kept = fit2 * fit2 / (1 + fit2 * fit2);
  const double rate =
      gpu.stream * p.memory * (group > 1 ? 1 : p.single) / head_loss(dims / 2, p.wide, 0);
  // Heads that are not grouped read the same KV again, from L2.
  const double bytes_s = kv * (1 - kept * (1 - 1 / p.l2_speed) + (repeats - 1) / p.l2_speed) / rate;

  const double row_tiles = blocks(group, 64);
  const double units = c.batch * c.kv_heads * repeats * row_tiles;
  double splits = whole(p.split_waves * gpu.sms / units);
  splits = std::max(1.0, std::min(splits, whole(tokens / p.chunk)));
  const double per_block = tokens / splits;
  const double rows = std::max(p.rows, std::min(group, 64.0));
  const double token_s = std::max(
      token_bytes / (p.sm_rate * gpu.clock),
      rows * 2 * (c.head_dim + c.v_head_dim) * gpu.sms / (gpu.peak_of(c.math) * p.compute));
  const double total = units * splits / gpu.sms;
  const double waves = total <= 1 ? 1 : total + p.wave * (round_up(total) - total);
  const double blocks_s = waves * (per_block * token_s + p.block * gpu.tick);
  const double fixed = p.t0 +
                       p.sequence * c.batch * c.heads * (c.head_dim + c.v_head_dim) / (64 * 256) +
                       p.unit * c.batch * c.kv_heads + (splits > 1 ? p.combine : 0);
  return fixed * gpu.tick + smooth_max(bytes_s, blocks_s, p.overlap);
}

}  // namespace ridge
