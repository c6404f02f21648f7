// Fitted kernels of the serving stacks: which parameters time a kernel on a GPU, and how sure.
//
// The numbers live in atlas/stacks/<stack>.json under "calibration", written by tools/fit. A GPU,
// framework or format without data takes the nearest fit; how near is a distance, and the band
// widens with it.
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
  KernelFamily family = KernelFamily::gemm;
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

struct Calibration {
  std::vector<KernelFit> fits;
};

// What is to be timed. Empty kernel: what the stack runs most. Head width 0: any.
struct KernelKey {
  KernelFamily family = KernelFamily::gemm;
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
KernelMatch find_fit(const Calibration& calibration, const KernelKey& key);

// The fit's band for a call's stratum, wider for a transferred fit.
Band band_of(const KernelMatch& match, int stratum);

// Every stack of the built-in atlas.
const Calibration& builtin_calibration();

// Adds the fits under "calibration" of a stack file; a file without any adds nothing. Throws Error.
void read_calibration(const nlohmann::json& stack_file, std::string_view where, Calibration& out);
// One line per fit: the value of the "calibration" key for one stack.
std::string write_calibration(const Calibration& calibration, std::string_view stack);

}  // namespace ridge
