/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of kernels/cpu share among themselves: the functions behind the
 * tables of dispatch.c, named <op>_<isa>, and the packed formats' shape. Nobody
 * outside this folder includes it, but for tests of single kernels.
 * Contracts stand at the table in kernels_cpu.h.
 */
#ifndef TARN_KERNELS_PRIVATE_H
#define TARN_KERNELS_PRIVATE_H

#include <string.h>

#include "kernels/cpu/half.h"
#include "kernels/cpu/kernels_cpu.h"

/* ---- packed formats ----------------------------------------------------- */

enum {
	PACK_ALIGN = 64,
	/* Values a K-quant's d (and dmin) cover. */
	PACK_SUPER = 256,
};

struct pack_format {
	uint16_t source_values; /* values of a block as the file has them */
	uint16_t source_bytes;
	uint16_t scale_values; /* values an entry of the scale plane covers; 0: no such plane */
	uint16_t scale_bytes; /* of a scale entry, all 16 rows */
	uint16_t code_bytes; /* per 32 values, 16 rows; float types: per value */
	uint16_t high_bytes; /* per 32 values, 16 rows */
	uint8_t offset; /* value = code - offset */
	bool has_min;
	bool has_halves; /* sub-scales per 16 values, not 32 */
	uint8_t sc_at; /* where integer sub-scales begin in a scale entry; 0: none */
	const int8_t *values; /* [16]: value = values[code]; NULL: code - offset */
};

/* What the codes of IQ4_NL and IQ4_XS, and of MXFP4 (E2M1, doubled), stand for. */
static const int8_t pack_iq4_values[16] = { -127, -104, -83, -65, -49, -35, -22, -10,
					    1,	  13,	25,  38,  53,  69,  89,	 113 };
static const int8_t pack_fp4_values[16] = {
	0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12
};

/* NULL for an unknown type. */
const struct pack_format *pack_format_get(enum pack_type type);

static inline bool pack_is_float(enum pack_type type)
{
	return type == PACK_F32 || type == PACK_F16 || type == PACK_BF16;
}

/* The planes of one group. A plane the type lacks is empty. */
struct pack_planes {
	const uint8_t *scales;
	const uint8_t *codes;
	const uint8_t *high;
};

/* Byte offsets of the planes inside a group; @end is the group's size. */
struct pack_offsets {
	uint64_t codes;
	uint64_t high;
	uint64_t end;
};

void pack_offsets_get(const struct pack_format *format, uint32_t nr_cols,
		      struct pack_offsets *out_offsets);

static inline struct pack_planes pack_planes_at(const struct packed_matrix *m,
						const struct pack_offsets *offsets, uint32_t group)
{
	const uint8_t *p = m->data + group * m->group_bytes;

	return (struct pack_planes){ p, p + offsets->codes, p + offsets->high };
}

/* Where row @r of a group gets a block of its own: a source block is one scale entry. */
struct pack_lane {
	uint8_t *scales; /* of the entry, row 0 */
	uint8_t *codes; /* of the first 32 values: byte (0, r, 0) */
	uint8_t *high;
	unsigned int r;
};

/* One block as the file has it into its lane; quantised types only. */
void pack_put_block(enum pack_type type, const struct pack_lane *to, const uint8_t *src);

/* 32 values of 16 rows, in the terms of the chains in kernels_cpu.h. */
struct unpacked_block {
	int16_t q[ACT_BLOCK][PACK_ROWS]; /* codes, offset taken out */
	int16_t sc[2][PACK_ROWS]; /* integer sub-scales of the halves; 1 where there are none */
	float d[PACK_ROWS];
	float m[PACK_ROWS]; /* the chain's mw; 0 without mins */
	int16_t mn[2][PACK_ROWS]; /* what m is multiplied by: Q2_K's of the halves, else 1 */
};

/* Quantised types only. */
void unpack_block_ref(enum pack_type type, const struct pack_planes *planes, uint32_t block,
		      struct unpacked_block *out_block);

/* ---- unaligned loads ----------------------------------------------------- */

static inline uint16_t load_u16(const uint8_t *p)
{
	uint16_t v;

	memcpy(&v, p, sizeof(v));
	return v;
}

static inline uint32_t load_u32(const uint8_t *p)
{
	uint32_t v;

	memcpy(&v, p, sizeof(v));
	return v;
}

static inline void store_u32(uint8_t *p, uint32_t v)
{
	memcpy(p, &v, sizeof(v));
}

/* ---- the operations ------------------------------------------------------ */

void quantize_ref(const float *x, size_t x_stride, uint32_t first_row, uint32_t nr_rows,
		  const struct act_q8 *out);
void linear_q8_ref(const struct linear_q8_args *args);
void linear_f32_ref(const struct linear_f32_args *args);
void rms_norm_ref(const float *x, const float *w, uint32_t n, float eps, bool add, float *out);
void rope_ref(float *head, const struct rope_args *args);
void append_ref(const struct append_args *args);
void attend_ref(const struct attn_args *args, uint32_t unit, uint32_t kv_head, void *scratch);
void merge_ref(const struct attn_args *args, uint32_t merge, uint32_t first_head,
	       uint32_t end_head);
void gate_ref(enum gate_kind kind, const float *g, const float *u, uint32_t n, float *h);
void add_ref(float *y, const float *x, uint32_t n);
void scale_ref(float *y, float s, uint32_t n);
void softcap_ref(float *y, float cap, uint32_t n);
uint32_t argmax_ref(const float *x, uint32_t n);
float exp_sum_ref(const float *x, float max, float inv_temp, uint32_t n, float *out);

void quantize_avx2(const float *x, size_t x_stride, uint32_t first_row, uint32_t nr_rows,
		   const struct act_q8 *out);
void linear_q8_avx2(const struct linear_q8_args *args);
void linear_f32_avx2(const struct linear_f32_args *args);
void rms_norm_avx2(const float *x, const float *w, uint32_t n, float eps, bool add, float *out);
void rope_avx2(float *head, const struct rope_args *args);
void append_avx2(const struct append_args *args);
void attend_avx2(const struct attn_args *args, uint32_t unit, uint32_t kv_head, void *scratch);
void merge_avx2(const struct attn_args *args, uint32_t merge, uint32_t first_head,
		uint32_t end_head);
void gate_avx2(enum gate_kind kind, const float *g, const float *u, uint32_t n, float *h);
void add_avx2(float *y, const float *x, uint32_t n);
void scale_avx2(float *y, float s, uint32_t n);
void softcap_avx2(float *y, float cap, uint32_t n);
uint32_t argmax_avx2(const float *x, uint32_t n);
float exp_sum_avx2(const float *x, float max, float inv_temp, uint32_t n, float *out);

void quantize_avx512(const float *x, size_t x_stride, uint32_t first_row, uint32_t nr_rows,
		     const struct act_q8 *out);
void linear_q8_avx512(const struct linear_q8_args *args);
void linear_f32_avx512(const struct linear_f32_args *args);
void rms_norm_avx512(const float *x, const float *w, uint32_t n, float eps, bool add, float *out);
void rope_avx512(float *head, const struct rope_args *args);
void append_avx512(const struct append_args *args);
void attend_avx512(const struct attn_args *args, uint32_t unit, uint32_t kv_head, void *scratch);
void merge_avx512(const struct attn_args *args, uint32_t merge, uint32_t first_head,
		  uint32_t end_head);
void gate_avx512(enum gate_kind kind, const float *g, const float *u, uint32_t n, float *h);
void add_avx512(float *y, const float *x, uint32_t n);
void scale_avx512(float *y, float s, uint32_t n);
void softcap_avx512(float *y, float cap, uint32_t n);
uint32_t argmax_avx512(const float *x, uint32_t n);
float exp_sum_avx512(const float *x, float max, float inv_temp, uint32_t n, float *out);

#endif /* TARN_KERNELS_PRIVATE_H */
