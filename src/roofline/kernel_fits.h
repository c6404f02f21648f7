// The stored fits of the calibrated stacks: which parameters time a kernel on a GPU, and how
// certain they are.
//
// The numbers are in atlas/stacks/<stack>.json under "calibration"; tools/fit writes them. A GPU,
// framework or format without data takes the nearest fit. The distance to that fit widens the band.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "roofline/kernels/call.h"

namespace ridge {

using KernelParams =
    std::variant<GemmParams, PrefillParams, DecodeParams, MoeParams, CollectiveParams>;

// 80 % of measured times lie between low and high times the expected one.
struct Band {
  double low = 1, high = 1;
};

struct KernelFit {
  std::string stack;  // "vllm"
  KernelKind family = KernelKind::gemm;
  Arch arch = Arch::other;
  std::string dtype;   // as the tables name it; attention: "math/cache"; "any" where it is moot
  std::string kernel;  // what the stack ran
  std::vector<double> head_dims;  // attention: widths it was seen with
  std::vector<std::string> gpus;  // measured on
  double rows = 0;                // measured
  double mape = 0, median = 0;    // percent, on shape sites the fit had not seen
  KernelParams params;
  std::vector<Band> bands;  // by stratum
};

double kernel_seconds(const KernelFit& fit, const KernelCall& call, const GpuTraits& gpu);

using KernelFits = std::vector<KernelFit>;

// The kernel to be timed. Empty kernel name: the one the stack runs most. Head width 0: any.
struct KernelKey {
  KernelKind family = KernelKind::gemm;
  std::string_view stack, dtype, kernel;
  Arch arch = Arch::other;
  double head_dim = 0;
};

struct KernelMatch {
  const KernelFit* fit = nullptr;  // null only where no fit of the family exists
  double distance = 0;             // 0: fitted on this architecture, stack, format and kernel
};
// The nearest fit. The rule, in order of weight: number format, architecture family, kernel
// library, stack. docs/accuracy.md shows what each step costs.
KernelMatch find_fit(const KernelFits& fits, const KernelKey& key);

// The fit's band for a call's stratum, wider for a transferred fit.
Band band_of(const KernelMatch& match, int stratum);

// Every stack of the built-in atlas.
const KernelFits& builtin_fits();

// Adds the fits under "calibration" of a stack file; a file without any adds nothing. Throws Error.
void read_fits(const nlohmann::json& stack_file, std::string_view where, KernelFits& out);
// One line per fit: the value of the "calibration" key for one stack.
std::string write_fits(const KernelFits& fits, std::string_view stack);

}  // namespace ridge
