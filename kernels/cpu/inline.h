/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How functions are declared that the CPU's kernels and those of kernels/cuda share: in a .cu
 * file they are for host and device.
 */
#ifndef TARN_KERNELS_CPU_INLINE_H
#define TARN_KERNELS_CPU_INLINE_H

#ifdef __CUDACC__
#define KERNEL_INLINE static inline __host__ __device__
#else
#define KERNEL_INLINE static inline
#endif

#endif /* TARN_KERNELS_CPU_INLINE_H */
