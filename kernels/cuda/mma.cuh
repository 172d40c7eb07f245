/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tensor-core instructions for bf16 operands and float32 accumulators: wgmma
 * (one warpgroup, sm_90a), mma.sync and ldmatrix (one warp). Thin wrappers.
 * All threads of the warpgroup or warp call them together.
 *
 * wgmma is asynchronous: between wgmma_commit and the wgmma_wait that covers
 * it, nobody may touch its registers. wgmma_hold after the wait keeps the
 * compiler from moving reads above it.
 */
#ifndef TARN_KERNELS_CUDA_MMA_CUH
#define TARN_KERNELS_CUDA_MMA_CUH

#include <stdint.h>
#include "kernels/cuda/tma.cuh"

static __device__ __forceinline__ void wgmma_fence(void)
{
	asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

static __device__ __forceinline__ void wgmma_commit(void)
{
	asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

/* Waits until at most `pending` committed groups are still running. */
template <int pending> static __device__ __forceinline__ void wgmma_wait(void)
{
	asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(pending) : "memory");
}

template <int nr> static __device__ __forceinline__ void wgmma_hold(float (&d)[nr])
{
#pragma unroll
	for (int i = 0; i < nr; i++)
		asm volatile("" : "+f"(d[i])::"memory");
}

/*
 * Shared-memory operand under the 128-byte swizzle, base 1024-byte aligned
 * plus a k step. lead_bytes: distance of 64-element columns of an operand
 * whose rows run along k (unused otherwise); groups of 8 rows are 1024 apart.
 */
static __device__ __forceinline__ uint64_t wgmma_desc(uint32_t addr, uint32_t lead_bytes)
{
	return (uint64_t)((addr & 0x3ffff) >> 4) | (uint64_t)(lead_bytes >> 4) << 16 |
	       (uint64_t)(1024 >> 4) << 32 | 1ull << 62;
}

/*
 * The lists of an asm statement whose first operands are a thread's 32, 64 or 128 sums: their
 * names in the text, and d[i] on as operands.
 */
#define WGMMA_NAMES_32                             \
	"%0, %1, %2, %3, %4, %5, %6, %7, "         \
	"%8, %9, %10, %11, %12, %13, %14, %15, "   \
	"%16, %17, %18, %19, %20, %21, %22, %23, " \
	"%24, %25, %26, %27, %28, %29, %30, %31"
#define WGMMA_NAMES_64                                            \
	WGMMA_NAMES_32 ", "                                       \
		       "%32, %33, %34, %35, %36, %37, %38, %39, " \
		       "%40, %41, %42, %43, %44, %45, %46, %47, " \
		       "%48, %49, %50, %51, %52, %53, %54, %55, " \
		       "%56, %57, %58, %59, %60, %61, %62, %63"
#define WGMMA_NAMES_128                                                   \
	WGMMA_NAMES_64 ", "                                               \
		       "%64, %65, %66, %67, %68, %69, %70, %71, "         \
		       "%72, %73, %74, %75, %76, %77, %78, %79, "         \
		       "%80, %81, %82, %83, %84, %85, %86, %87, "         \
		       "%88, %89, %90, %91, %92, %93, %94, %95, "         \
		       "%96, %97, %98, %99, %100, %101, %102, %103, "     \
		       "%104, %105, %106, %107, %108, %109, %110, %111, " \
		       "%112, %113, %114, %115, %116, %117, %118, %119, " \
		       "%120, %121, %122, %123, %124, %125, %126, %127"
#define WGMMA_SUMS_4(d, i) "+f"((d)[i]), "+f"((d)[(i) + 1]), "+f"((d)[(i) + 2]), "+f"((d)[(i) + 3])
#define WGMMA_SUMS_16(d, i)                                                     \
	WGMMA_SUMS_4(d, i), WGMMA_SUMS_4(d, (i) + 4), WGMMA_SUMS_4(d, (i) + 8), \
		WGMMA_SUMS_4(d, (i) + 12)
#define WGMMA_SUMS_32(d, i) WGMMA_SUMS_16(d, i), WGMMA_SUMS_16(d, (i) + 16)
#define WGMMA_SUMS_64(d, i) WGMMA_SUMS_32(d, i), WGMMA_SUMS_32(d, (i) + 32)
#define WGMMA_SUMS_128(d, i) WGMMA_SUMS_64(d, i), WGMMA_SUMS_64(d, (i) + 64)

/* d[64 x 128] (+)= a[64 x 16] * b[128 x 16]^T, both with k along the rows. */
static __device__ __forceinline__ void wgmma_m64n128k16_ss(float (&d)[64], uint64_t a, uint64_t b,
							   int accumulate)
{
	asm volatile("{\n"
		     ".reg .pred acc;\n"
		     "setp.ne.b32 acc, %66, 0;\n"
		     "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" WGMMA_NAMES_64 "},"
		     " %64, %65, acc, 1, 1, 0, 0;\n"
		     "}\n"
		     : WGMMA_SUMS_64(d, 0)
		     : "l"(a), "l"(b), "r"(accumulate)
		     : "memory");
}

/* d[64 x 128] (+)= a[64 x 16] * b[16 x 128]; a in registers, b with n along the rows. */
static __device__ __forceinline__ void wgmma_m64n128k16_rs(float (&d)[64], const uint32_t *a,
							   uint64_t b, int accumulate)
{
	asm volatile("{\n"
		     ".reg .pred acc;\n"
		     "setp.ne.b32 acc, %69, 0;\n"
		     "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" WGMMA_NAMES_64 "},"
		     " {%64, %65, %66, %67}, %68, acc, 1, 1, 1;\n"
		     "}\n"
		     : WGMMA_SUMS_64(d, 0)
		     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate)
		     : "memory");
}

/*
 * d[64 x 64] (+)= a[64 x 16] * b[64 x 16]^T; a in registers, in each warp laid
 * out as mma_m16n8k16's; b with k along the rows. d[4 i + e] is what d[e] of
 * mma_m16n8k16 is for columns 8 i to 8 i + 7.
 */
template <int accumulate>
static __device__ __forceinline__ void wgmma_m64n64k16_rs(float (&d)[32], const uint32_t (&a)[4],
							  uint64_t b)
{
	asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" WGMMA_NAMES_32 "},"
		     " {%32, %33, %34, %35}, %36, %37, 1, 1, 0;\n"
		     : WGMMA_SUMS_32(d, 0)
		     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(accumulate)
		     : "memory");
}

/*
 * d[64 x n] += a[64 x 16] * b[n x 16]^T, n = 256 or 128 by d's size; a in
 * registers, which stay untouched until the wait; layouts as wgmma_m64n64k16_rs's.
 */
static __device__ __forceinline__ void wgmma_rs(float (&d)[128], const uint32_t *a, uint64_t b)
{
	asm volatile("wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {" WGMMA_NAMES_128 "},"
		     " {%128, %129, %130, %131}, %132, 1, 1, 1, 0;\n"
		     : WGMMA_SUMS_128(d, 0)
		     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b)
		     : "memory");
}

static __device__ __forceinline__ void wgmma_rs(float (&d)[64], const uint32_t *a, uint64_t b)
{
	asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" WGMMA_NAMES_64 "},"
		     " {%64, %65, %66, %67}, %68, 1, 1, 1, 0;\n"
		     : WGMMA_SUMS_64(d, 0)
		     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b)
		     : "memory");
}

/*
 * d[16 x 8] += a[16 x 16] * b[16 x 8]. Lane l holds, with g = l / 4 and
 * c = l % 4: d rows g (0, 1) and g + 8 (2, 3), columns 2c and 2c + 1; b column
 * g, rows 2c, 2c + 1 (0) and 2c + 8, 2c + 9 (1).
 */
static __device__ __forceinline__ void mma_m16n8k16(float (&d)[4], const uint32_t (&a)[4],
						    uint32_t b0, uint32_t b1)
{
	asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"
		     " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
		     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
		     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* Four 8 x 8 matrices; lane l gives the address of row l % 8 of matrix l / 8. */
static __device__ __forceinline__ void ldmatrix_x4(uint32_t (&a)[4], uint32_t addr)
{
	asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
		     : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]), "=r"(a[3])
		     : "r"(addr)
		     : "memory");
}

static __device__ __forceinline__ void ldmatrix_x4_trans(uint32_t (&a)[4], uint32_t addr)
{
	asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
		     : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]), "=r"(a[3])
		     : "r"(addr)
		     : "memory");
}

/* Stores four 8 x 8 matrices transposed; lane l gives the address of row l % 8 of matrix l / 8. */
static __device__ __forceinline__ void stmatrix_x4_trans(uint32_t addr, const uint32_t (&a)[4])
{
	asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(
			     addr),
		     "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3])
		     : "memory");
}

#endif
