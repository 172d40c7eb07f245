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

/* d[64 x 128] (+)= a[64 x 16] * b[128 x 16]^T, both with k along the rows. */
static __device__ __forceinline__ void wgmma_m64n128k16_ss(float (&d)[64], uint64_t a, uint64_t b,
							   int accumulate)
{
	asm volatile("{\n"
		     ".reg .pred acc;\n"
		     "setp.ne.b32 acc, %66, 0;\n"
		     "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
		     " %0, %1, %2, %3, %4, %5, %6, %7,"
		     " %8, %9, %10, %11, %12, %13, %14, %15,"
		     " %16, %17, %18, %19, %20, %21, %22, %23,"
		     " %24, %25, %26, %27, %28, %29, %30, %31,"
		     " %32, %33, %34, %35, %36, %37, %38, %39,"
		     " %40, %41, %42, %43, %44, %45, %46, %47,"
		     " %48, %49, %50, %51, %52, %53, %54, %55,"
		     " %56, %57, %58, %59, %60, %61, %62, %63},"
		     " %64, %65, acc, 1, 1, 0, 0;\n"
		     "}\n"
		     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]),
		       "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]),
		       "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]),
		       "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
		       "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]),
		       "+f"(d[30]), "+f"(d[31]), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]),
		       "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]), "+f"(d[41]),
		       "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]),
		       "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]),
		       "+f"(d[54]), "+f"(d[55]), "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]),
		       "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])
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
		     "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
		     " %0, %1, %2, %3, %4, %5, %6, %7,"
		     " %8, %9, %10, %11, %12, %13, %14, %15,"
		     " %16, %17, %18, %19, %20, %21, %22, %23,"
		     " %24, %25, %26, %27, %28, %29, %30, %31,"
		     " %32, %33, %34, %35, %36, %37, %38, %39,"
		     " %40, %41, %42, %43, %44, %45, %46, %47,"
		     " %48, %49, %50, %51, %52, %53, %54, %55,"
		     " %56, %57, %58, %59, %60, %61, %62, %63},"
		     " {%64, %65, %66, %67}, %68, acc, 1, 1, 1;\n"
		     "}\n"
		     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]),
		       "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]),
		       "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]),
		       "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
		       "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]),
		       "+f"(d[30]), "+f"(d[31]), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]),
		       "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]), "+f"(d[41]),
		       "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]),
		       "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]),
		       "+f"(d[54]), "+f"(d[55]), "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]),
		       "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])
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
	asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {"
		     " %0, %1, %2, %3, %4, %5, %6, %7,"
		     " %8, %9, %10, %11, %12, %13, %14, %15,"
		     " %16, %17, %18, %19, %20, %21, %22, %23,"
		     " %24, %25, %26, %27, %28, %29, %30, %31},"
		     " {%32, %33, %34, %35}, %36, %37, 1, 1, 0;\n"
		     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]),
		       "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]),
		       "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]),
		       "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
		       "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]),
		       "+f"(d[30]), "+f"(d[31])
		     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b),
		       "n"(accumulate)
		     : "memory");
}

/*
 * d[64 x n] += a[64 x 16] * b[n x 16]^T, n = 256 or 128 by d's size; a in
 * registers, which stay untouched until the wait; layouts as wgmma_m64n64k16_rs's.
 */
static __device__ __forceinline__ void wgmma_rs(float (&d)[128], const uint32_t *a, uint64_t b)
{
	asm volatile("wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {"
		     " %0, %1, %2, %3, %4, %5, %6, %7,"
		     " %8, %9, %10, %11, %12, %13, %14, %15,"
		     " %16, %17, %18, %19, %20, %21, %22, %23,"
		     " %24, %25, %26, %27, %28, %29, %30, %31,"
		     " %32, %33, %34, %35, %36, %37, %38, %39,"
		     " %40, %41, %42, %43, %44, %45, %46, %47,"
		     " %48, %49, %50, %51, %52, %53, %54, %55,"
		     " %56, %57, %58, %59, %60, %61, %62, %63,"
		     " %64, %65, %66, %67, %68, %69, %70, %71,"
		     " %72, %73, %74, %75, %76, %77, %78, %79,"
		     " %80, %81, %82, %83, %84, %85, %86, %87,"
		     " %88, %89, %90, %91, %92, %93, %94, %95,"
		     " %96, %97, %98, %99, %100, %101, %102, %103,"
		     " %104, %105, %106, %107, %108, %109, %110, %111,"
		     " %112, %113, %114, %115, %116, %117, %118, %119,"
		     " %120, %121, %122, %123, %124, %125, %126, %127},"
		     " {%128, %129, %130, %131}, %132, 1, 1, 1, 0;\n"
		     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]),
		       "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]),
		       "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]),
		       "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
		       "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]),
		       "+f"(d[30]), "+f"(d[31]), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]),
		       "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]), "+f"(d[41]),
		       "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]),
		       "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]),
		       "+f"(d[54]), "+f"(d[55]), "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]),
		       "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63]), "+f"(d[64]), "+f"(d[65]),
		       "+f"(d[66]), "+f"(d[67]), "+f"(d[68]), "+f"(d[69]), "+f"(d[70]), "+f"(d[71]),
		       "+f"(d[72]), "+f"(d[73]), "+f"(d[74]), "+f"(d[75]), "+f"(d[76]), "+f"(d[77]),
		       "+f"(d[78]), "+f"(d[79]), "+f"(d[80]), "+f"(d[81]), "+f"(d[82]), "+f"(d[83]),
		       "+f"(d[84]), "+f"(d[85]), "+f"(d[86]), "+f"(d[87]), "+f"(d[88]), "+f"(d[89]),
		       "+f"(d[90]), "+f"(d[91]), "+f"(d[92]), "+f"(d[93]), "+f"(d[94]), "+f"(d[95]),
		       "+f"(d[96]), "+f"(d[97]), "+f"(d[98]), "+f"(d[99]), "+f"(d[100]),
		       "+f"(d[101]), "+f"(d[102]), "+f"(d[103]), "+f"(d[104]), "+f"(d[105]),
		       "+f"(d[106]), "+f"(d[107]), "+f"(d[108]), "+f"(d[109]), "+f"(d[110]),
		       "+f"(d[111]), "+f"(d[112]), "+f"(d[113]), "+f"(d[114]), "+f"(d[115]),
		       "+f"(d[116]), "+f"(d[117]), "+f"(d[118]), "+f"(d[119]), "+f"(d[120]),
		       "+f"(d[121]), "+f"(d[122]), "+f"(d[123]), "+f"(d[124]), "+f"(d[125]),
		       "+f"(d[126]), "+f"(d[127])
		     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b)
		     : "memory");
}

static __device__ __forceinline__ void wgmma_rs(float (&d)[64], const uint32_t *a, uint64_t b)
{
	asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
		     " %0, %1, %2, %3, %4, %5, %6, %7,"
		     " %8, %9, %10, %11, %12, %13, %14, %15,"
		     " %16, %17, %18, %19, %20, %21, %22, %23,"
		     " %24, %25, %26, %27, %28, %29, %30, %31,"
		     " %32, %33, %34, %35, %36, %37, %38, %39,"
		     " %40, %41, %42, %43, %44, %45, %46, %47,"
		     " %48, %49, %50, %51, %52, %53, %54, %55,"
		     " %56, %57, %58, %59, %60, %61, %62, %63},"
		     " {%64, %65, %66, %67}, %68, 1, 1, 1, 0;\n"
		     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]),
		       "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]),
		       "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]),
		       "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
		       "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]),
		       "+f"(d[30]), "+f"(d[31]), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]),
		       "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]), "+f"(d[41]),
		       "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]),
		       "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]),
		       "+f"(d[54]), "+f"(d[55]), "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]),
		       "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])
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
