# Kernels that are compiled once for each format of weights, each in a file of its own, because ptxas takes a minute
# for some. Sets INSTANCES: those files, which lie in the build folder.
#
# RIDGE_CUDA_FORMATS names the formats that this build has; `all` stands for every one. The launchers of the others
# throw an Error, and so does DeviceModel::make, before weights are loaded. Small kernels, which are compiled for all
# formats in one file, are in every build.
#   cmake -DOUT=FOLDER -P cmake/instances.cmake    only writes the files, of all formats (tools/gpu_check)
set(ALL_FORMATS bf16 fp8 int8 int4 nf4 mxfp4)
if(CMAKE_SCRIPT_MODE_FILE)
  cmake_minimum_required(VERSION 3.25)
  set(RIDGE_CUDA_FORMATS all)
else()
  set(OUT ${CMAKE_BINARY_DIR}/cuda_instances)
endif()
set(FORMATS ${RIDGE_CUDA_FORMATS})
if(FORMATS STREQUAL "all")
  set(FORMATS ${ALL_FORMATS})
endif()
foreach(FORMAT ${FORMATS})
  if(NOT FORMAT IN_LIST ALL_FORMATS)
    message(FATAL_ERROR "RIDGE_CUDA_FORMATS: there is no format \"${FORMAT}\", only ${ALL_FORMATS}, or all")
  endif()
endforeach()
if(NOT "bf16" IN_LIST FORMATS)
  message(FATAL_ERROR "RIDGE_CUDA_FORMATS needs bf16, the format of routers and of all matrices beside mxfp4 experts")
endif()

set(INSTANCES)
set(LEFT_OUT_LAUNCHERS "")
# FAMILY_FORMAT.cu for each format of ARGN. LAUNCHER: a function template that HEADER defines, with its kernels; the
# file instantiates it.
function(add_instances FAMILY HEADER LAUNCHER)
  foreach(FORMAT ${ARGN})
    string(CONFIGURE "${LAUNCHER}" DECLARATION @ONLY)
    if(FORMAT IN_LIST FORMATS)
      set(FILE ${OUT}/engine/cuda/${FAMILY}_${FORMAT}.cu)
      configure_file(${CMAKE_CURRENT_FUNCTION_LIST_DIR}/instance.cu.in ${FILE} @ONLY)
      list(APPEND INSTANCES ${FILE})
    else()
      string(APPEND LEFT_OUT_LAUNCHERS "template <>\nvoid ${DECLARATION} {\n  refuse(\"${FORMAT}\");\n}\n")
    endif()
  endforeach()
  set(INSTANCES ${INSTANCES} PARENT_SCOPE)
  set(LEFT_OUT_LAUNCHERS "${LEFT_OUT_LAUNCHERS}" PARENT_SCOPE)
endfunction()

add_instances(decode/decode decode/decode_kernel.cuh
  "launch_decode_format<WeightFormat::@FORMAT@, KernelSet::hopper>(cudaStream_t, int, const DecodeArgs&)"
  bf16 fp8 int8 int4 nf4)
add_instances(decode/decode_gemma decode/decode_kernel.cuh
  "launch_decode_gemma<WeightFormat::@FORMAT@>(cudaStream_t, int, const DecodeArgs&)"
  bf16 fp8)
add_instances(portable/decode decode/decode_kernel.cuh
  "launch_decode_format<WeightFormat::@FORMAT@, KernelSet::portable>(cudaStream_t, int, const DecodeArgs&)"
  bf16 fp8 int8 int4 nf4)
add_instances(gemm/linear gemm/linear_kernel.cuh
  "launch_linear_format<WeightFormat::@FORMAT@, false>(cudaStream_t, int, int, const GemmChain&)"
  bf16 fp8 int8 int4 nf4 mxfp4)
add_instances(gemm/linear_w8a8 gemm/linear_kernel.cuh
  "launch_linear_format<WeightFormat::@FORMAT@, true>(cudaStream_t, int, int, const GemmChain&)"
  fp8)
add_instances(gemm/prefill_gemm gemm/prefill_gemm_kernel.cuh
  "prefill::launch<WeightFormat::@FORMAT@, false>(cudaStream_t, int, const PrefillGemmArgs&)"
  bf16 fp8 int8 int4 nf4 mxfp4)
add_instances(gemm/prefill_gemm_w8a8 gemm/prefill_gemm_kernel.cuh
  "prefill::launch<WeightFormat::@FORMAT@, true>(cudaStream_t, int, const PrefillGemmArgs&)"
  fp8)

set(LEFT_OUT_CASES "")
foreach(FORMAT ${ALL_FORMATS})
  if(NOT FORMAT IN_LIST FORMATS)
    string(APPEND LEFT_OUT_CASES "    case WeightFormat::${FORMAT}:\n      refuse(\"${FORMAT}\");\n")
  endif()
endforeach()
string(REPLACE ";" ", " FORMAT_NAMES "${FORMATS}")
configure_file(${CMAKE_CURRENT_LIST_DIR}/left_out.cu.in ${OUT}/engine/cuda/left_out.cu @ONLY)
list(APPEND INSTANCES ${OUT}/engine/cuda/left_out.cu)

# What an earlier choice of formats made must not be found there (tools/gpu_check).
file(GLOB_RECURSE OLD ${OUT}/*.cu)
list(REMOVE_ITEM OLD ${INSTANCES})
if(OLD)
  file(REMOVE ${OLD})
endif()
