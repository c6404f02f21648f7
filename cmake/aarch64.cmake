# Cross-compiles for 64-bit ARM with Debian's compiler. tools/arm_check downloads the libraries into
# RIDGE_ARM_ROOT; the C and C++ runtimes are the compiler's own.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES RIDGE_ARM_ROOT)
set(CMAKE_FIND_ROOT_PATH ${RIDGE_ARM_ROOT})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
# Headers that differ between architectures; no notes on what GCC 10 changed in the calling convention.
set(CMAKE_CXX_FLAGS_INIT "-Wno-psabi -isystem ${RIDGE_ARM_ROOT}/usr/include/aarch64-linux-gnu")
# What a library needs itself, such as libudev for hwloc.
set(CMAKE_EXE_LINKER_FLAGS_INIT "-Wl,-rpath-link,${RIDGE_ARM_ROOT}/usr/lib/aarch64-linux-gnu")
