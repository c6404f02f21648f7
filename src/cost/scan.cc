#include "cost/scan.h"

#include <algorithm>

namespace ridge {
namespace {

constexpr double kChunk = 128;  // tokens a chunked scan handles as one product

double updates_per_entry(ScanKind kind) {
  switch (kind) {
    case ScanKind::delta:
      return 4;
    case ScanKind::mamba1:
    case ScanKind::mamba2:
      return 3;
    case ScanKind::conv:
      return 0;
  }
  return 0;
}

}  // namespace

Work scan_work(const ScanShape& s, double count, double fresh) {
  const double entries = s.heads * s.state_dim * s.value_dim;
  const double tokens = count * fresh;
  const double conv_state = s.conv_channels * std::max(0.0, s.conv_kernel - 1);
  Work work;
  work.vector_flops = tokens * 2 * s.conv_channels * s.conv_kernel;
  const double per_token = 2 * updates_per_entry(s.kind) * entries;
  if (fresh <= 1 || s.kind == ScanKind::mamba1) {
    work.vector_flops += tokens * per_token;
  } else {
    const double chunk = std::min(kChunk, fresh);
    // Inside the chunk scores (chunk x chunk) and their sums; across chunks state in, state out.
    work.flops = tokens * s.heads *
                 (chunk * (s.state_dim + s.value_dim) + 2 * 2 * s.state_dim * s.value_dim);
    if (s.kind == ScanKind::delta) work.flops += tokens * s.heads * chunk * s.state_dim * 2;
    work.padded_flops = work.flops;
  }
  work.kv_bytes = count * 2 * (entries * s.state_bytes + conv_state * s.act_bytes);
  // LFM2's convolution: two gates and the input in, one output (its config has no heads).
  const double columns =
      s.kind == ScanKind::conv ? 4 * s.conv_channels : 2 * s.heads * s.value_dim + s.key_columns;
  work.act_bytes = tokens * columns * s.act_bytes;
  work.chip_bytes = work.kv_bytes + work.act_bytes;
  work.launches = s.conv_channels > 0 ? 2 : 1;  // convolution, scan
  return work;
}

}  // namespace ridge
