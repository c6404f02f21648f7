// Asynchronous copies from global to shared memory: cp.async (a few bytes per thread), bulk copies
// and tensor copies (one thread copies kilobytes, an mbarrier counts the bytes); bulk stores and
// reductions from shared to global memory; prefetches into L2, and the fences between ordinary
// accesses and the asynchronous proxy.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "base/ptx/mbarrier.cuh"

namespace ridge::ptx {

// L2 policies for copies. evict_first is for data that is read once: it leaves L2 first.
__device__ inline uint64_t createpolicy_evict_first() {
  uint64_t policy;
  asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}
__device__ inline uint64_t createpolicy_evict_normal() {
  uint64_t policy;
  asm volatile("createpolicy.fractional.L2::evict_normal.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

// Copies `bytes` (a multiple of 16, both addresses aligned to 16) and counts them on `barrier`.
__device__ inline void cp_async_bulk(void* to, const void* from, int bytes, uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(shared_address(to)),
      "l"(from), "r"(bytes), "r"(shared_address(barrier))
      : "memory");
}
__device__ inline void cp_async_bulk(void* to, const void* from, int bytes, uint64_t* barrier,
                                     uint64_t policy) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
      "[%0], [%1], %2, [%3], %4;" ::"r"(shared_address(to)),
      "l"(from), "r"(bytes), "r"(shared_address(barrier)), "l"(policy)
      : "memory");
}

// Copies the box of tensor map `map` whose corner is (x, y, z). Elements outside the tensor arrive
// as zeros.
__device__ inline void cp_async_bulk_tensor_3d(void* to, const void* map, int x, int y, int z,
                                               uint64_t* barrier, uint64_t policy) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
      "[%0], [%1, {%2, %3, %4}], [%5], %6;" ::"r"(shared_address(to)),
      "l"(map), "r"(x), "r"(y), "r"(z), "r"(shared_address(barrier)), "l"(policy)
      : "memory");
}

// Bulk stores from shared to global memory. The calling thread closes a group of them with
// cp_async_bulk_commit(). Writes to the shared memory they read need fence_proxy_async_shared() and
// a barrier before.
__device__ inline void cp_async_bulk_store(void* to, const void* from, int bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to),
               "r"(shared_address(from)), "r"(bytes)
               : "memory");
}
// Stores the box of tensor map `map` whose corner is (x, y), or adds it to what is there, one
// addition per element. What lies outside the tensor is not written.
__device__ inline void cp_async_bulk_tensor_store_2d(const void* map, int x, int y,
                                                     const void* from) {
  asm volatile(
      "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];" ::"l"(map),
      "r"(x), "r"(y), "r"(shared_address(from))
      : "memory");
}
__device__ inline void cp_async_bulk_tensor_add_2d(const void* map, int x, int y,
                                                   const void* from) {
  asm volatile(
      "cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.bulk_group [%0, {%1, %2}], [%3];" ::
          "l"(map),
      "r"(x), "r"(y), "r"(shared_address(from))
      : "memory");
}
__device__ inline void cp_async_bulk_commit() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
// Until at most kPending groups of the calling thread still have to read shared memory, or until
// all its stores are done.
template <int kPending>
__device__ inline void cp_async_bulk_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kPending) : "memory");
}
__device__ inline void cp_async_bulk_wait_all() {
  asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

// Prefetches into L2: one line, or a contiguous range by the bulk engine.
__device__ inline void prefetch_l2(const void* address) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(address));
}
__device__ inline void cp_async_bulk_prefetch_l2(const void* from, int bytes) {
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes) : "memory");
}

// cp.async of the calling thread: 16 bytes that bypass L1, or 4 bytes. The waits cover the calling
// thread's copies only: all of them, or all but those of its kPending latest groups.
__device__ inline void cp_async_16(uint32_t to_shared, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to_shared), "l"(from) : "memory");
}
__device__ inline void cp_async_16(void* to, const void* from) {
  cp_async_16(shared_address(to), from);
}
// Zeros where not `valid`; nothing is read then.
__device__ inline void cp_async_16(uint32_t to_shared, const void* from, bool valid) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to_shared), "l"(from),
               "r"(valid ? 16 : 0)
               : "memory");
}
__device__ inline void cp_async_16(uint32_t to_shared, const void* from, uint64_t policy) {
  asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2;" ::"r"(to_shared),
               "l"(from), "l"(policy)
               : "memory");
}
__device__ inline void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int kPending>
__device__ inline void cp_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}
__device__ inline void cp_async_4(void* to, const void* from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(shared_address(to)), "l"(from)
               : "memory");
}
__device__ inline void cp_async_wait_all() { asm volatile("cp.async.wait_all;" ::: "memory"); }

// Orders ordinary accesses of the calling thread before later bulk copies to the same memory:
// global and shared, or shared only. Nothing to order before Hopper, which has no bulk copies.
__device__ inline void fence_proxy_async() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("fence.proxy.async;" ::: "memory");
#endif
}
__device__ inline void fence_proxy_async_shared() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

}  // namespace ridge::ptx
