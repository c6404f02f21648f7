// cuBLASLt, opened at run time: a machine without it only lacks what uses it.
#pragma once

#include <cublasLt.h>
#include <dlfcn.h>

#include "base/error.h"

namespace ridge {

class CublasLt {
 public:
  CublasLt() {  // throws Error where it is missing
    for (const char* name : {"libcublasLt.so.13", "libcublasLt.so.12",
                             "/usr/local/cuda/lib64/libcublasLt.so.13", "libcublasLt.so"}) {
      if ((handle_ = dlopen(name, RTLD_LAZY | RTLD_LOCAL))) break;
    }
    if (!handle_) throw Error("libcublasLt was not found");
#define RIDGE_FIND(name) find(name, "cublasLt" #name)
    RIDGE_FIND(Create);
    RIDGE_FIND(Destroy);
    RIDGE_FIND(MatmulDescCreate);
    RIDGE_FIND(MatmulDescDestroy);
    RIDGE_FIND(MatmulDescSetAttribute);
    RIDGE_FIND(MatrixLayoutCreate);
    RIDGE_FIND(MatrixLayoutDestroy);
    RIDGE_FIND(MatrixLayoutSetAttribute);
    RIDGE_FIND(MatmulPreferenceCreate);
    RIDGE_FIND(MatmulPreferenceDestroy);
    RIDGE_FIND(MatmulPreferenceSetAttribute);
    RIDGE_FIND(MatmulAlgoGetHeuristic);
    RIDGE_FIND(Matmul);
#undef RIDGE_FIND
  }
  decltype(&cublasLtCreate) Create;
  decltype(&cublasLtDestroy) Destroy;
  decltype(&cublasLtMatmulDescCreate) MatmulDescCreate;
  decltype(&cublasLtMatmulDescDestroy) MatmulDescDestroy;
  decltype(&cublasLtMatmulDescSetAttribute) MatmulDescSetAttribute;
  decltype(&cublasLtMatrixLayoutCreate) MatrixLayoutCreate;
  decltype(&cublasLtMatrixLayoutDestroy) MatrixLayoutDestroy;
  decltype(&cublasLtMatrixLayoutSetAttribute) MatrixLayoutSetAttribute;
  decltype(&cublasLtMatmulPreferenceCreate) MatmulPreferenceCreate;
  decltype(&cublasLtMatmulPreferenceDestroy) MatmulPreferenceDestroy;
  decltype(&cublasLtMatmulPreferenceSetAttribute) MatmulPreferenceSetAttribute;
  decltype(&cublasLtMatmulAlgoGetHeuristic) MatmulAlgoGetHeuristic;
  decltype(&cublasLtMatmul) Matmul;

 private:
  template <typename Function>
  void find(Function& function, const char* symbol) {
    function = reinterpret_cast<Function>(dlsym(handle_, symbol));
    if (!function) throw Error("libcublasLt lacks {}", symbol);
  }
  void* handle_ = nullptr;  // stays open until the process ends
};

inline void check_blas(cublasStatus_t status, const char* what) {
  if (status != CUBLAS_STATUS_SUCCESS) throw Error("{}: cuBLASLt status {}", what, int(status));
}

}  // namespace ridge
