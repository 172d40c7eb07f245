/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Linear layer over int8 activations, AVX-512 VNNI: the instances for types
 * with one scale per 32 values, and the entry for all types (the K-quants'
 * instances lie in linear_k_avx512.c). Same bits as linear_q8_ref(). Any
 * thread, disjoint groups or rows.
 */
#include "kernels/cpu/linear_q8_avx512.h"

Q8_TILES(q4_0_packed, q8_kind_q4_0, false)
Q8_TILES(q4_1_packed, q8_kind_q4_1, false)
Q8_TILES(q5_0_packed, q8_kind_q5_0, false)
Q8_TILES(q5_1_packed, q8_kind_q5_1, false)
Q8_TILES(q8_0_packed, q8_kind_q8_0, false)
Q8_TILES(iq4_nl_packed, q8_kind_iq4_nl, false)
Q8_TILES(mxfp4_packed, q8_kind_mxfp4, false)

/* Widened, types differ by their scales alone. */
Q8_TILES(plain_wide, q8_kind_q4_0, true)
Q8_TILES(min_wide, q8_kind_q4_1, true)

Q8_WIDEN(q4_0_widen, q8_kind_q4_0)
Q8_WIDEN(q4_1_widen, q8_kind_q4_1)
Q8_WIDEN(q5_0_widen, q8_kind_q5_0)
Q8_WIDEN(q5_1_widen, q8_kind_q5_1)
Q8_WIDEN(iq4_nl_widen, q8_kind_iq4_nl)
Q8_WIDEN(mxfp4_widen, q8_kind_mxfp4)

static const struct q8_linear q4_0_linear = { q8_kind_q4_0, Q8_MAX_COLS, q4_0_packed, plain_wide,
					      q4_0_widen };
static const struct q8_linear q4_1_linear = { q8_kind_q4_1, Q8_MAX_COLS, q4_1_packed, min_wide,
					      q4_1_widen };
static const struct q8_linear q5_0_linear = { q8_kind_q5_0, Q8_MAX_COLS, q5_0_packed, plain_wide,
					      q5_0_widen };
static const struct q8_linear q5_1_linear = { q8_kind_q5_1, Q8_MAX_COLS, q5_1_packed, min_wide,
					      q5_1_widen };
static const struct q8_linear iq4_nl_linear = { q8_kind_iq4_nl, Q8_MAX_COLS, iq4_nl_packed,
						plain_wide, iq4_nl_widen };
static const struct q8_linear mxfp4_linear = { q8_kind_mxfp4, Q8_MAX_COLS, mxfp4_packed, plain_wide,
					       mxfp4_widen };
/* Bytes already: only the scales would be saved. */
static const struct q8_linear q8_0_linear = { q8_kind_q8_0, Q8_MAX_COLS, q8_0_packed, NULL, NULL };

static const struct q8_linear *linear_of(enum pack_type type)
{
	switch (type) {
	case PACK_Q4_0:
		return &q4_0_linear;
	case PACK_Q4_1:
		return &q4_1_linear;
	case PACK_Q5_0:
		return &q5_0_linear;
	case PACK_Q5_1:
		return &q5_1_linear;
	case PACK_Q8_0:
		return &q8_0_linear;
	case PACK_Q2_K:
		return &q2_k_linear_avx512;
	case PACK_Q3_K:
		return &q3_k_linear_avx512;
	case PACK_Q4_K:
		return &q4_k_linear_avx512;
	case PACK_Q5_K:
		return &q5_k_linear_avx512;
	case PACK_Q6_K:
		return &q6_k_linear_avx512;
	case PACK_IQ4_NL:
		return &iq4_nl_linear;
	case PACK_IQ4_XS:
		return &iq4_xs_linear_avx512;
	case PACK_MXFP4:
		return &mxfp4_linear;
	case PACK_F32:
	case PACK_F16:
	case PACK_BF16:
		break; /* the caller's error: float types have linear_f32 alone */
	}
	return NULL;
}

void linear_q8_avx512(const struct linear_q8_args *args)
{
	linear_q8_walk(args, linear_of(args->w->type));
}
