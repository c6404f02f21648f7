#include "roofline/kernels/traits.h"

#include <algorithm>

#include "base/error.h"

namespace ridge {
namespace {

constexpr std::string_view kArchNames[kArchCount] = {"ampere",    "ada",           "hopper",
                                                     "blackwell", "blackwell-rtx", "other"};

Arch arch_of(const Machine& machine) {
  // Compute capability decides: sm_120 shares a name with sm_100 but not its tensor cores or
  // copy engines.
  const std::string& isa = machine.isa;
  if (isa == "sm_80" || isa == "sm_86" || isa == "sm_87") return Arch::ampere;
  if (isa == "sm_89") return Arch::ada;
  if (isa == "sm_90" || isa == "sm_90a") return Arch::hopper;
  if (isa.starts_with("sm_10")) return Arch::blackwell;
  if (isa.starts_with("sm_12")) return Arch::blackwell_rtx;
  return Arch::other;
}

}  // namespace

std::string_view arch_name(Arch arch) { return kArchNames[static_cast<int>(arch)]; }

Arch arch_from_name(std::string_view name) {
  for (int i = 0; i < kArchCount; ++i)
    if (kArchNames[i] == name) return static_cast<Arch>(i);
  throw Error("unknown architecture '{}': ampere, ada, hopper, blackwell, blackwell-rtx or other",
              name);
}

GpuTraits gpu_traits(const Machine& machine) {
  GpuTraits traits;
  const Maybe bf16 = machine.peak_of(DType::bf16);
  const Maybe fp16 = machine.peak_of(DType::fp16);
  const Maybe bandwidth = machine.memory().read_bandwidth;
  if (!machine.units || !bandwidth || !(bf16 || fp16))
    throw Error("{}: kernel times need units, a memory bandwidth and a 16-bit peak", machine.name);
  traits.arch = arch_of(machine);
  traits.sms = *machine.units;
  traits.clock = machine.clock.value_or(1.5e9);
  traits.tick = 2e9 / traits.clock;
  traits.bandwidth = *bandwidth;
  // Ada's fits are of an L40S, whose GDDR6 spends bandwidth on in-band ECC: they stream 0.78 of the
  // datasheet. GeForce cards run without ECC (an RTX 4090 decodes at 0.86), and GDDR7, on Blackwell
  // RTX, which takes Ada's numbers, has its ECC on the die (0.95 on an RTX PRO 6000).
  const bool geforce = machine.title.find("GeForce") != std::string::npos;
  const bool no_ecc = traits.arch == Arch::blackwell_rtx || (traits.arch == Arch::ada && geforce);
  traits.stream = *bandwidth * (no_ecc ? 1.1 : 1);
  const Level* l2 = machine.cache();
  traits.l2_bytes = l2 ? l2->total_capacity().value_or(0) : 0;
  // GB300 does not publish its L2; Blackwell data-centre parts share one die pair.
  if (traits.l2_bytes < 4e6) traits.l2_bytes = traits.arch == Arch::blackwell ? 132e6 : 6e6;
  traits.l2_total = traits.l2_bytes;
  // A100, H100 and the Blackwell die pair split their L2; data used from both sides is held twice.
  const bool split =
      machine.isa == "sm_80" || traits.arch == Arch::hopper || traits.arch == Arch::blackwell;
  if (split) traits.l2_bytes /= 2;
  for (const Link& link : machine.links) {
    if (!link.bandwidth) continue;
    traits.link = *link.bandwidth;
    traits.link_devices = link.max_devices;
    traits.p2p = link.p2p.value_or(true);
    traits.switched = link.name.starts_with("NVLink");
    break;
  }
  // An L40S runs its tensor cores into the power limit: its fits reach 0.70 of the peak. A GeForce
  // card runs them at half the rate with more power, and GEMMs come close to that.
  const double unthrottled = geforce && traits.arch == Arch::ada ? 1.25 : 1;
  const double half = bf16.value_or(fp16.value_or(0)) * unthrottled;
  traits.peak.fill(half);
  const auto set = [&](DType dtype, double fallback) {
    const Maybe known = machine.peak_of(dtype);
    traits.peak[static_cast<int>(dtype)] = known ? *known * unthrottled : fallback;
  };
  set(DType::fp32, half / 16);
  set(DType::tf32, half / 2);
  set(DType::fp16, half);
  set(DType::fp8, half);  // without fp8 units the product runs in 16 bits
  set(DType::int8, half);
  set(DType::fp4, traits.peak_of(DType::fp8));
  // Blackwell Ultra's dense fp4 peak is 6 times the 16-bit one, but GEMMs stay at the power
  // limit: measured shares of the peak fall as the peak rises. Four times is what B200 has.
  double& fp4 = traits.peak[static_cast<int>(DType::fp4)];
  fp4 = std::min(fp4, 4 * half);
  return traits;
}

}  // namespace ridge
