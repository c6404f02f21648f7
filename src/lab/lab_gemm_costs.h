// What the engine's GEMMs cost on this CPU beyond reading their weights, by weight format: read on
// a matrix of its own, which no experiment multiplies, before the first step of a model in that
// format is predicted. So predictions hold for any instruction set, and for the kernels as they
// are.
#pragma once

#include <map>
#include <memory>

#include "base/mapped_buffer.h"
#include "base/thread_team.h"
#include "engine/weights/storage.h"
#include "roofline/kernels/cpu.h"

namespace ridge {

class LabGemmCosts {
 public:
  // `others` has the figures of attention and of starts: the stack's, of the nearest instruction
  // set.
  explicit LabGemmCosts(CpuKernels others) : kernels_(std::move(others)) {}

  // Figures for the formats asked for so far and this one. `peak` in fp32 and the time of an empty
  // region are those of the moment.
  std::shared_ptr<const CpuKernels> with(ThreadTeam& team, Storage storage, double peak,
                                         double region_s);

 private:
  CpuKernels kernels_;
  std::map<Storage, CpuGemm> read_;
};

}  // namespace ridge
