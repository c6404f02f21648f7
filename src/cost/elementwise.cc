#include "cost/elementwise.h"

namespace ridge {

Work elementwise_work(double in, double out, double bytes, double ops) {
  Work work;
  work.vector_flops = out * ops;
  work.act_bytes = (in + out) * bytes;
  work.chip_bytes = work.act_bytes;
  return work;
}

Work norm_work(double tokens, double width, double bytes, bool with_residual) {
  const double n = tokens * width;
  return with_residual ? elementwise_work(2 * n, 2 * n, bytes, 2.5)  // add; then as below
                       : elementwise_work(n, n, bytes, 4);
}

Work residual_work(double tokens, double width, double bytes) {
  const double n = tokens * width;
  return elementwise_work(2 * n, n, bytes, 1);
}

Work activation_work(double tokens, double inner, double bytes, bool gated) {
  const double n = tokens * inner;
  return elementwise_work(gated ? 2 * n : n, n, bytes, gated ? 5 : 4);
}

Work rope_work(double tokens, double rotated, double bytes) {
  const double n = tokens * rotated;
  return elementwise_work(n, n, bytes, 3);  // two multiplies and an add per element
}

Work cache_write_work(double tokens, double columns, double bytes, double cache_bytes) {
  Work work = elementwise_work(tokens * columns, 0, bytes, 0);
  work.kv_bytes = tokens * columns * cache_bytes;
  work.chip_bytes += work.kv_bytes;
  return work;
}

Work rope_cache_work(double tokens, double q_columns, double kv_columns, double bytes,
                     double cache_bytes) {
  const double q = tokens * q_columns;
  Work work = elementwise_work(q + tokens * kv_columns, q, bytes, 3);
  work.kv_bytes = tokens * kv_columns * cache_bytes;
  work.vector_flops += tokens * kv_columns * 1.5;  // k is rotated, v is not
  work.chip_bytes += work.kv_bytes;
  return work;
}

Work quantize_work(double tokens, double width, double bytes) {
  const double n = tokens * width;
  Work work = elementwise_work(n, 0, bytes, 0);
  work.act_bytes += n;
  work.chip_bytes = work.act_bytes;
  work.vector_flops = 3 * n;  // absolute maximum, scale, round
  return work;
}

Work embed_work(double tokens, double width, double table_bytes, double bytes) {
  Work work;
  work.weight_bytes = tokens * width * table_bytes;
  work.act_bytes = tokens * width * bytes;
  work.chip_bytes = work.device_bytes();
  return work;
}

Work sample_work(double sequences, double vocab) {
  return elementwise_work(sequences * vocab, sequences, 4, 5 * vocab);
}

}  // namespace ridge
