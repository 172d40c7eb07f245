/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Linear layer over int8 activations, AVX-512 VNNI: the tile kernels of the
 * K-quants and IQ4_XS. linear_q8_avx512.c is the entry. Any thread.
 */
#include "kernels/cpu/linear_q8_avx512.h"

Q8_TILES(q2_k_packed, q8_kind_q2_k, false)
Q8_TILES(q3_k_packed, q8_kind_q3_k, false)
Q8_TILES(iq4_xs_packed, q8_kind_iq4_xs, false)
Q8_TILES(q4_k_packed, q8_kind_q4_k, false)
Q8_TILES(q5_k_packed, q8_kind_q5_k, false)
Q8_TILES(q6_k_packed, q8_kind_q6_k, false)

/* Widened, Q4_K and Q5_K are the same, and so are Q3_K and Q6_K. */
Q8_TILES(q2_k_wide, q8_kind_q2_k, true)
Q8_TILES(super_wide, q8_kind_iq4_xs, true)
Q8_TILES(min_wide, q8_kind_q4_k, true)
Q8_TILES(halves_wide, q8_kind_q6_k, true)

Q8_WIDEN(q2_k_widen, q8_kind_q2_k)
Q8_WIDEN(q3_k_widen, q8_kind_q3_k)
Q8_WIDEN(iq4_xs_widen, q8_kind_iq4_xs)
Q8_WIDEN(q4_k_widen, q8_kind_q4_k)
Q8_WIDEN(q5_k_widen, q8_kind_q5_k)
Q8_WIDEN(q6_k_widen, q8_kind_q6_k)

const struct q8_linear q2_k_linear_avx512 = { q8_kind_q2_k, Q8_MAX_COLS, q2_k_packed, q2_k_wide,
					      q2_k_widen };
const struct q8_linear q3_k_linear_avx512 = { q8_kind_q3_k, Q8_MAX_COLS, q3_k_packed, halves_wide,
					      q3_k_widen };
const struct q8_linear iq4_xs_linear_avx512 = { q8_kind_iq4_xs, Q8_MAX_COLS, iq4_xs_packed,
						super_wide, iq4_xs_widen };
const struct q8_linear q4_k_linear_avx512 = { q8_kind_q4_k, Q8_MAX_COLS, q4_k_packed, min_wide,
					      q4_k_widen };
const struct q8_linear q5_k_linear_avx512 = { q8_kind_q5_k, Q8_MAX_COLS, q5_k_packed, min_wide,
					      q5_k_widen };
const struct q8_linear q6_k_linear_avx512 = { q8_kind_q6_k, Q8_MAX_COLS, q6_k_packed, halves_wide,
					      q6_k_widen };
