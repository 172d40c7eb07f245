/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Weights of a linear layer as the CUDA kernels read them: the layout, and the
 * packer that makes it from the rows of a model file when a model is loaded.
 * Codes and scales stay the file's own; nothing is requantised. Pure functions
 * over the caller's memory; any thread may pack disjoint groups at once. No
 * CUDA header is needed.
 *
 * A matrix [N][K] is tiles of 16 rows (a group) by 128 columns, in the order
 * [ceil(K / 128)][ceil(N / 16)]: the tiles of neighbouring groups over the same
 * k are one contiguous copy. Missing rows and columns are zero. A tile holds
 * its codes in the order in which the lanes of a warp want them for MMAs of 16
 * rows x 16 k, its high bits, and its scales behind them.
 *
 * Lane l of a warp, g = l / 4, c = l % 4, takes from each k16 step the pairs
 *   j = 0: row g,     k = 2c, 2c + 1        j = 1: row g + 8, the same k
 *   j = 2: row g,     k = 2c + 8, 2c + 9    j = 3: row g + 8, the same k
 * ("lo" is the pair's lower k.) A tile, h = 0, 1 being its halves of 64 k, s the
 * k16 steps of a half (Q6_K's scales: of the tile), b the tile's blocks of 32 k:
 *   BF16   [2 h][4 s][32 lanes][4 j] { u16 lo, hi }
 *   Q8_0   [2 h][2][32 lanes][2 s][2] { u8 lo(j), lo(j + 1), hi(j), hi(j + 1) }, j = 0, 2;
 *          value + 128
 *   4-bit  [2 h][32 lanes][4 s] u32: nibble j is lo(j), nibble 4 + j is hi(j)
 *   Q5_0   behind them [2 h][32 lanes] u32: bit 4 s + j is bit 4 of lo(j), bit
 *          16 + 4 s + j of hi(j)
 *   Q6_K   behind them [2 h][32 lanes][2] u32, one for each 32 k: bits 2 (4 s + j), + 1 are
 *          bits 4, 5 of lo(j), 16 more of hi(j), s = 0, 1
 * and scales:
 *   Q8_0 Q4_0 Q5_0  [8 g][4 b] { f16 d(g), d(g + 8) }
 *   Q4_1            the same, then the same of m
 *   Q4_K            [8 g][4 b] { u8 sc(g), sc(g + 8), mn(g), mn(g + 8) };
 *                   [8 g] { f16 d(g), d(g + 8), dmin(g), dmin(g + 8) }
 *   Q6_K            [8 g][8 s] { i8 sc(g), sc(g + 8) }; [8 g] { f16 d(g), d(g + 8) }
 */
#ifndef TARN_KERNELS_CUDA_LINEAR_PACK_H
#define TARN_KERNELS_CUDA_LINEAR_PACK_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Types as GGUF numbers them. */
enum gpu_linear_type {
	GPU_LINEAR_Q4_0 = 2,
	GPU_LINEAR_Q4_1 = 3,
	GPU_LINEAR_Q5_0 = 6,
	GPU_LINEAR_Q8_0 = 8,
	GPU_LINEAR_Q4_K = 12,
	GPU_LINEAR_Q6_K = 14,
	GPU_LINEAR_BF16 = 30,
};

enum {
	GPU_LINEAR_GROUP_ROWS = 16,
	GPU_LINEAR_TILE_K = 128,
};

/* Bytes of a tile, by the layout above. */
enum gpu_linear_tile_bytes {
	GPU_LINEAR_TILE_BF16 = 4096,
	GPU_LINEAR_TILE_Q8_0 = 2048 + 128,
	GPU_LINEAR_TILE_Q4_0 = 1024 + 128,
	GPU_LINEAR_TILE_Q4_1 = 1024 + 128 + 128,
	GPU_LINEAR_TILE_Q5_0 = 1024 + 256 + 128,
	GPU_LINEAR_TILE_Q4_K = 1024 + 128 + 64,
	GPU_LINEAR_TILE_Q6_K = 1024 + 512 + 128 + 32,
};

/*
 * Bytes of the packed matrix [nr_rows][nr_cols], a multiple of 16. Return: 0
 * when the type is unknown, when nr_rows is 0 or no multiple of 8, when nr_cols
 * is 0 or no multiple of 64 (K-quants: 256), or when the size would overflow.
 */
uint64_t gpu_linear_packed_bytes(enum gpu_linear_type type, uint32_t nr_rows, uint32_t nr_cols);

/* Bytes of one row as the file stores it; 0 as above. */
uint64_t gpu_linear_source_row_bytes(enum gpu_linear_type type, uint32_t nr_cols);

/*
 * Packs groups [first_group, end_group) of the matrix from @src, the file's
 * rows [nr_rows][gpu_linear_source_row_bytes()], any alignment, into @dst, the
 * start of the whole packed matrix. The shape must be one that
 * gpu_linear_packed_bytes() accepts.
 */
void gpu_linear_pack(enum gpu_linear_type type, uint32_t nr_rows, uint32_t nr_cols, const void *src,
		     uint32_t first_group, uint32_t end_group, void *dst);

#ifdef __cplusplus
}
#endif

#endif
