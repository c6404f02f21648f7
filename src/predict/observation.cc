#include "predict/observation.h"

#include "base/error.h"
#include "base/units.h"

namespace ridge {
namespace {

void check_positive(std::optional<double> value, const char* name) {
  if (value && !(*value > 0 && *value < 1e12)) throw Error("{} must be positive", name);
}

void check_share(std::optional<double> value, const char* name) {
  if (value && !(*value >= 0 && *value <= 1)) throw Error("{} must be from 0 to 1", name);
}

}  // namespace

void check_observation(const Observation& seen) {
  if (!seen.tokens_per_s && !seen.itl_s && !seen.ttft_s) {
    throw Error("nothing to explain: give at least one of --observed (tok/s), --itl or --ttft");
  }
  check_positive(seen.tokens_per_s, "--observed");
  check_positive(seen.batch, "--batch");
  check_positive(seen.itl_s, "--itl");
  check_positive(seen.ttft_s, "--ttft");
  check_positive(seen.output, "--output");
  check_positive(seen.power_w, "--power");
  check_share(seen.dram_active, "--dram-active");
  check_share(seen.tensor_active, "--tensor-active");
  check_share(seen.gpu_util, "--gpu-util");
  check_share(seen.kv_usage, "--kv-usage");
  if (seen.waiting && !(*seen.waiting >= 0 && *seen.waiting < 1e12)) {
    throw Error("--waiting must be zero or more");
  }
  // Little's law: sequences at once = rate x time each takes per token.
  if (seen.batch && seen.tokens_per_s && seen.itl_s) {
    const double running = *seen.tokens_per_s * *seen.itl_s;
    if (running > kDisagree * *seen.batch) {
      throw Error("--observed x --itl means {} sequences decoding at once, but --batch says {}",
                  pretty_number(running), pretty_number(*seen.batch));
    }
  }
}

}  // namespace ridge
