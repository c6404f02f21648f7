// RIDGE_HOPPER is defined while device code is compiled for sm_90a, the only target that has wgmma
// and setmaxnreg. Kernels that need Hopper have an empty body for every other target.
#pragma once

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define RIDGE_HOPPER 1
#endif
