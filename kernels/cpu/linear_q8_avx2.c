/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Linear layer over int8 activations, AVX2: the instances for types with one
 * scale per 32 values, and the entry for all types (the K-quants' instances lie
 * in linear_k_avx2.c). Same bits as linear_q8_ref(). Any thread, disjoint
 * groups or rows.
 */
#include "kernels/cpu/linear_q8_avx2.h"

Q8_LINEAR(q4_0_linear_avx2, q8_kind_q4_0)
Q8_LINEAR(q4_1_linear_avx2, q8_kind_q4_1)
Q8_LINEAR(q5_0_linear_avx2, q8_kind_q5_0)
Q8_LINEAR(q5_1_linear_avx2, q8_kind_q5_1)
Q8_LINEAR(iq4_nl_linear_avx2, q8_kind_iq4_nl)
Q8_LINEAR(mxfp4_linear_avx2, q8_kind_mxfp4)

/* Bytes already: widening would save the scales alone. */
Q8_TILES(q8_0_packed, q8_kind_q8_0, false)
const struct q8_linear q8_0_linear_avx2 = { q8_kind_q8_0, Q8_AVX2_COLS, q8_0_packed, NULL, NULL };

static const struct q8_linear *linear_of(enum pack_type type)
{
	switch (type) {
	case PACK_Q4_0:
		return &q4_0_linear_avx2;
	case PACK_Q4_1:
		return &q4_1_linear_avx2;
	case PACK_Q5_0:
		return &q5_0_linear_avx2;
	case PACK_Q5_1:
		return &q5_1_linear_avx2;
	case PACK_Q8_0:
		return &q8_0_linear_avx2;
	case PACK_Q2_K:
		return &q2_k_linear_avx2;
	case PACK_Q3_K:
		return &q3_k_linear_avx2;
	case PACK_Q4_K:
		return &q4_k_linear_avx2;
	case PACK_Q5_K:
		return &q5_k_linear_avx2;
	case PACK_Q6_K:
		return &q6_k_linear_avx2;
	case PACK_IQ4_NL:
		return &iq4_nl_linear_avx2;
	case PACK_IQ4_XS:
		return &iq4_xs_linear_avx2;
	case PACK_MXFP4:
		return &mxfp4_linear_avx2;
	case PACK_F32:
	case PACK_F16:
	case PACK_BF16:
		break; /* the caller's error: float types have linear_f32 alone */
	}
	return NULL;
}

void linear_q8_avx2(const struct linear_q8_args *args)
{
	linear_q8_walk(args, linear_of(args->w->type));
}
