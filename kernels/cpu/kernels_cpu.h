/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The CPU kernels: pure functions over memory, one table per instruction set.
 *
 * The plain C versions (*_ref.c) define the bits; AVX2 and AVX-512 versions
 * give the same bits (handbook numerics: integer sums exact, one ascending
 * chain of fused multiply-adds per output, fixed trees elsewhere). Everything
 * is compiled with -ffp-contract=off: each fused operation is written out.
 *
 * Kernels own no memory, start no thread, fail never: the caller checks shapes
 * once. They are: head_dim a multiple of 16; query heads a multiple of KV heads; nr_rot even, at
 * most head_dim; K of int8 layers a multiple of 32; slots, scratch and packed weights 64-byte
 * aligned; rms_norm's and rope's output may be their input. Work is cut along outputs (groups of
 * rows, heads, batch rows), which changes no bit. Any thread may call any kernel on disjoint
 * outputs.
 *
 * Legend: M batch rows (tokens), K inputs, N outputs of a linear layer.
 */
#ifndef TARN_KERNELS_CPU_H
#define TARN_KERNELS_CPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/attn_plan.h"

enum {
	/* Weight rows in lanes: outputs come in groups of 16. */
	PACK_ROWS = 16,
	/* Values per activation block and per link of a chain. */
	ACT_BLOCK = 32,
};

/* ---- weights ---------------------------------------------------------- */

/* Types as GGUF numbers them, so that no table is needed between the two. */
enum pack_type {
	PACK_F32 = 0,
	PACK_F16 = 1,
	PACK_Q4_0 = 2,
	PACK_Q4_1 = 3,
	PACK_Q5_0 = 6,
	PACK_Q5_1 = 7,
	PACK_Q8_0 = 8,
	PACK_Q2_K = 10,
	PACK_Q3_K = 11,
	PACK_Q4_K = 12,
	PACK_Q5_K = 13,
	PACK_Q6_K = 14,
	PACK_IQ4_NL = 20,
	PACK_IQ4_XS = 23,
	PACK_BF16 = 30,
	PACK_MXFP4 = 39,
};

/*
 * A matrix [N][K] in packed form: ceil(N / 16) groups of 16 rows, group_bytes
 * each, 64-byte aligned; missing rows of the last group are zero. Inside a
 * group (nb = K / 32 blocks, ns = K / 256 super-blocks), planes one after the
 * other, each padded to 64 bytes:
 *
 *   scales  Q4_0 Q5_0 Q8_0   [nb] { f16 d[16] } (IQ4_NL too)
 *           MXFP4            [nb] { u8 e[16] }, d = 2^(e - 128)
 *           Q4_1 Q5_1        [nb] { f16 d[16], f16 m[16] }
 *           Q4_K Q5_K        [ns] { f16 d[16], f16 dmin[16], u8 sc[8][16], u8 mn[8][16] }
 *           Q6_K             [ns] { f16 d[16], pad[32], i8 sc[16][16] }
 *           Q2_K             [ns] { f16 d[16], f16 dmin[16], u8 sc_mn[16][16] }: sc low nibble
 *           Q3_K             [ns] { f16 d[16], i8 sc[16][16] }, 32 taken off
 *           IQ4_XS           [ns] { f16 d[16], i8 sc[8][16] }, 32 taken off
 *   codes   2, 3 bits        [nb] { u8 [2][16 rows][4] }: bits 2 j, 2 j + 1 of byte (h, r, c)
 *                            hold the low two bits of k = 4 (4 h + j) + c
 *           4, 5, 6 bits     [nb] { u8 [4][16 rows][4] }: byte (i, r, c) holds the low four
 *                            bits of k = 4 i + c (low nibble) and of k = 4 (i + 4) + c (high)
 *           8 bits           [nb] { u8 [8][16 rows][4] }: k = 4 i + c, value + 128
 *   high    3, 5 bits        [nb] { u8 [16 rows][4] }: bit j is bit 2 or 4 of k = 4 j + c
 *           6 bits           [nb] { u8 [2][16 rows][4] }: bits 2 j, 2 j + 1 of byte (h, r, c)
 *                            are bits 4, 5 of k = 4 (4 h + j) + c
 *   float types              one plane [K][16 rows] of the file's type
 *
 * Codes and scales are the file's own: nothing is requantised. 16 rows of 256 values take, in
 * bytes a row, packed (and in the file): Q2_K 84 (84), Q3_K 114 (110), IQ4_NL 144 (144),
 * IQ4_XS 138 (136), MXFP4 136 (136).
 */
struct packed_matrix {
	enum pack_type type;
	uint32_t nr_rows; /* N */
	uint32_t nr_cols; /* K */
	uint64_t group_bytes;
	const uint8_t *data;
};

/*
 * Fill in type, shape and group_bytes of @m (not data). Return: bytes of the
 * whole packed matrix; 0 when K is not a multiple of the type's block, when
 * the type is unknown, or when the size would overflow.
 */
uint64_t pack_layout(struct packed_matrix *m, enum pack_type type, uint32_t nr_rows,
		     uint32_t nr_cols);
/* Bytes of one row as the file stores it. */
uint64_t pack_source_row_bytes(enum pack_type type, uint32_t nr_cols);
/*
 * Pack groups [first_group, end_group) from @src, the file's rows
 * [N][pack_source_row_bytes()] (any alignment), into @dst, the start of the whole
 * packed matrix.
 */
void pack_groups(const struct packed_matrix *m, const void *src, uint32_t first_group,
		 uint32_t end_group, uint8_t *dst);
/* One row as float32 [K], for embedding look-up and tests. */
void pack_row_f32(const struct packed_matrix *m, uint32_t row, float *out);

/* ---- activations ------------------------------------------------------ */

/*
 * Rows quantised per 32 values: x ~= d q. q: int8 [M][K]; d: float [M][K / 32];
 * sum16: int16 [M][K / 32][2], the sums of q over each half of a block.
 * d = amax / 127, q = round-to-nearest-even(x * (127 / amax)); amax = 0 gives zeros.
 */
struct act_q8 {
	int8_t *q;
	float *d;
	int16_t *sum16;
	uint32_t nr_cols; /* K, a multiple of 32 */
};

/* ---- linear ----------------------------------------------------------- */

/*
 * y[m][n] (+)= sum over k of x[m][k] w[n][k] for groups [first_group, end_group).
 * y: float [M], rows y_stride apart, column 0 being output 0 of the matrix.
 * The chain, per output, one link per 32 values, acc from +0:
 *   acc = fmaf(dw * dx, (float)isum, acc); then, with mins, acc = fmaf(mw, dx * (float)sum, acc)
 * where isum is the exact integer sum (codes with their offset taken out; K-quants: times the
 * integer sub-scale, dw = d; Q2_K, Q3_K, Q6_K: the two halves' sub-scales inside one isum; codes
 * of IQ4_NL, IQ4_XS and MXFP4 are their table's integers), mw = m for
 * Q4_1 and Q5_1, mw = -(dmin * mn) for Q4_K and Q5_K. Q2_K's mins are per half: the exact integer
 * imin = mn[0] * sum[0] + mn[1] * sum[1], acc = fmaf(-dmin * dx, (float)imin, acc).
 * accumulate: y = y + acc at the end.
 */
struct linear_q8_args {
	const struct packed_matrix *w; /* a quantised type */
	const struct act_q8 *x; /* row 0 is batch row 0 */
	uint32_t nr_rows; /* M */
	float *y;
	size_t y_stride; /* floats */
	bool accumulate;
	uint32_t first_group;
	uint32_t end_group;
};

/*
 * The same over float activations: acc = fmaf(x[k], w[k], acc), k ascending from 0, acc from +0.
 * Weights of quantised types are expanded first: w = d * (float)q for types without minimum
 * (Q3_K, Q6_K, IQ4_XS: (d * sc) * q), fmaf(d, q, m) with (Q2_K, Q4_K, Q5_K:
 * fmaf(d * sc, q, -(dmin * mn))).
 */
struct linear_f32_args {
	const struct packed_matrix *w; /* any type */
	const float *x; /* [M], rows x_stride apart */
	size_t x_stride;
	uint32_t nr_rows;
	float *y;
	size_t y_stride;
	bool accumulate;
	uint32_t first_group;
	uint32_t end_group;
};

/* ---- the rest ---------------------------------------------------------- */

enum gate_kind {
	GATE_SILU, /* g / (1 + e^-g) * u */
	/* (0.5 g) * (1 + tanh(g * fmaf(g * g, b, a))) * u, a = sqrt(2 / pi), b = 0.044715 a */
	GATE_GELU_TANH,
};

/*
 * Rotation of one head: pairs (i, i + rot / 2) when @neox, else (2 i, 2 i + 1), by
 * cos_sin: float [rot / 2][2] of the row's position. Values past @rot stay.
 * a' = fmaf(a, cos, -(b * sin)); b' = fmaf(a, sin, b * cos).
 */
struct rope_args {
	const float *cos_sin;
	uint32_t nr_rot;
	bool neox;
};

/* Where one token's K and V of one layer go. */
struct append_args {
	const struct attn_layout *layout;
	uint8_t *tile; /* the tile that holds the token */
	uint32_t layer; /* in the stream */
	uint32_t token; /* position inside the tile, [0, T) */
	const float *k; /* [nr_kv_heads][head_dim] */
	const float *v;
};

/*
 * Attention of one (unit, kv_head): the G = nr_q_heads / nr_kv_heads query heads of the group,
 * all rows of the unit, split by split. Scores: s = chain over head_dim ascending, fmaf(q, k, s),
 * times scale. Per
 * anchored group of 16 tokens: m' = max(m, visible scores); if m' > m: c = exp(m - m'), the 16
 * lane sums and
 * the accumulators are multiplied by c (a first group starts from zeros instead); lane sum
 * l[t % 16] += p, p = exp(s - m'); acc[d] = fmaf(p, v[t][d], acc[d]) over visible tokens ascending.
 * Hidden tokens are skipped; a group without a visible token changes nothing. A split's sum l is
 * the fixed tree over its 16 lanes (fold 8, 4, 2, 1). Splits of a unit are folded as merge() does.
 *
 * Result: rows with ATTN_SLOT_DIRECT get acc[d] / l at out; others store acc, m, l
 * (m at index head_dim, l behind) in slots[(slot * nr_q_heads + head) * attn_slot_floats()].
 */
struct attn_args {
	const struct attn_layout *layout;
	const struct attn_plan *plan;
	uint32_t layer; /* in the stream */
	uint32_t nr_q_heads;
	float scale;
	const float *q; /* [M], rows q_stride apart: [nr_q_heads][head_dim] */
	size_t q_stride;
	float *out; /* [M], rows out_stride apart: [nr_q_heads][head_dim] */
	size_t out_stride;
	float *slots; /* [nr_slots][nr_q_heads][attn_slot_floats()], 64-byte aligned */
};

struct cpu_kernels {
	const char *isa; /* "ref", "avx2", "avx512": for messages */

	/* x: float [M][K], rows x_stride apart -> out rows [first_row, first_row + nr_rows). */
	void (*quantize)(const float *x, size_t x_stride, uint32_t first_row, uint32_t nr_rows,
			 const struct act_q8 *out);
	void (*linear_q8)(const struct linear_q8_args *args);
	void (*linear_f32)(const struct linear_f32_args *args);
	/*
	 * out[i] = (x[i] * (1 / sqrt(ss / n + eps))) * w[i]; ss by 16 lanes, lane j the ascending
	 * fmaf chain over x[16 i + j], then folded 8, 4, 2, 1. @add: out[i] += that instead.
	 */
	void (*rms_norm)(const float *x, const float *w, uint32_t n, float eps, bool add,
			 float *out);
	void (*rope)(float *head, const struct rope_args *args);
	void (*append)(const struct append_args *args);
	/* scratch: attn_scratch_bytes(), 64-byte aligned, private to the caller. */
	void (*attend)(const struct attn_args *args, uint32_t unit, uint32_t kv_head,
		       void *scratch);
	/*
	 * Fold the slots of plan->merges[merge], query heads [first_head, end_head): ascending,
	 * M' = max(M, m); O = fmaf(O, e^(M - M'), acc * e^(m - M')), L likewise; the first slot
	 * is taken as it is; slots without a visible token (m = -inf) are skipped; out = O / L.
	 */
	void (*merge)(const struct attn_args *args, uint32_t merge, uint32_t first_head,
		      uint32_t end_head);
	/* h[i] = act(g[i]) * u[i] */
	void (*gate)(enum gate_kind kind, const float *g, const float *u, uint32_t n, float *h);
	void (*add)(float *y, const float *x, uint32_t n); /* y[i] = y[i] + x[i] */
	void (*scale)(float *y, float s, uint32_t n); /* y[i] = y[i] * s */
	/* y[i] = cap * tanh(y[i] / cap) */
	void (*softcap)(float *y, float cap, uint32_t n);
	/* Index of the largest value; the lowest index among equals; NaN never wins. */
	uint32_t (*argmax)(const float *x, uint32_t n);
	/*
	 * Sum of exp((x[i] - max) * inv_temp): 16 lanes ascending, folded 8, 4, 2, 1; out (may
	 * be NULL): the terms.
	 */
	float (*exp_sum)(const float *x, float max, float inv_temp, uint32_t n, float *out);
};

enum cpu_isa {
	CPU_ISA_REF,
	CPU_ISA_AVX2, /* AVX2, FMA, F16C */
	CPU_ISA_AVX512, /* AVX-512 F, BW, VL, DQ and VNNI */
	CPU_NR_ISAS,
};

/* NULL where this CPU (or this build) lacks it. CPU_ISA_REF is always there. */
const struct cpu_kernels *cpu_kernels_get(enum cpu_isa isa);
/* The fastest; the environment's TARN_CPU_ISA=ref|avx2|avx512 lowers it. */
const struct cpu_kernels *cpu_kernels_best(void);

size_t attn_scratch_bytes(const struct attn_layout *layout, uint32_t nr_q_heads,
			  uint32_t max_unit_rows);

/*
 * cos and sin of pos * inv_freq[i] in float, by our own double arithmetic, so that no C library
 * changes them. inv_freq: double [nr_rot / 2], see rope_inv_freq().
 */
void rope_cos_sin(const double *inv_freq, uint32_t nr_rot, uint32_t pos, float *out_cos_sin);
/* inv_freq[i] = base^(-2 i / nr_rot) * @pos_scale / factors[i] (NULL: not divided). */
void rope_inv_freq(double base, const float *factors, double pos_scale, uint32_t nr_rot,
		   double *out_inv_freq);

#endif /* TARN_KERNELS_CPU_H */
